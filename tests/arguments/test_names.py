"""Names that a subclass uses for itself: it keeps them, and the loader works as if they were not there."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from tests.datasets import Made, number

import stoker
from stoker import BatchPlan, Workers
from stoker.arguments.asked import Asked

TORCHS = set(inspect.signature(torch.utils.data.DataLoader.__init__).parameters)
ARGUMENTS = sorted(set(inspect.signature(stoker.DataLoader.__init__).parameters) - TORCHS)
METHODS = ["failures", "stats", "on_stats", "trace", "set_epoch", "use_stateful_dataloader", "asked"]
NAMES = [*ARGUMENTS, *METHODS]
THEIRS = object()
DATA = Made(12, number)


class Before(stoker.DataLoader[Any]):
    """Sets its attributes first, as torch's modules may not but loaders may."""

    def __init__(self, name: str, **arguments: Any) -> None:
        setattr(self, name, THEIRS)
        super().__init__(**arguments)


class After(stoker.DataLoader[Any]):
    def __init__(self, name: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        setattr(self, name, THEIRS)


def with_property(name: str, **arguments: Any) -> Any:
    return type("Sub", (stoker.DataLoader,), {name: property(lambda self: THEIRS)})(**arguments)


def with_value(name: str, **arguments: Any) -> Any:
    return type("Sub", (stoker.DataLoader,), {name: THEIRS})(**arguments)


def with_slot(name: str, **arguments: Any) -> Any:
    loader = type("Sub", (stoker.DataLoader,), {"__slots__": (name,)})(**arguments)
    setattr(loader, name, THEIRS)
    return loader


TAKERS = [Before, After, with_property, with_value, with_slot]
SETTINGS: dict[str, dict[str, Any]] = {
    "inline": {},
    "threads": {"workers": Workers(lanes=2)},
    "processes": {"num_workers": 1},
    "ordered": {"seed": 3, "shuffle": True, "shard": (0, 2), "reseed": "sample", "on_error": "skip"},
    "planned": {"plan": BatchPlan(2, replicas=2), "last": "pad", "seed": 1},
    "on a device": {"device": "cpu", "seed": 1},
}


def taken(loader: Any) -> list[Any]:
    return [batch.tolist() if isinstance(batch, torch.Tensor) else batch.rows.tolist() for batch in loader]


def batches(arguments: dict[str, Any], **more: Any) -> list[Any]:
    return taken(stoker.DataLoader(DATA, **arguments, **more))


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_subclass_keeps_any_name_and_gets_its_batches(name: str, take: Any) -> None:
    arguments = {"batch_size": 4, "seed": 3, "shuffle": True, "device": "cpu", "on_error": "skip"}
    loader = take(name, dataset=DATA, **arguments)
    assert getattr(loader, name) is THEIRS
    assert taken(loader) == batches(arguments)
    loader.load_state_dict(loader.state_dict())


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("take", [Before, After, with_property])
def test_every_kind_of_loader_goes_on_under_a_subclass(setting: str, take: Any) -> None:
    arguments = {"batch_size": 4, **SETTINGS[setting]} if "plan" not in SETTINGS[setting] else SETTINGS[setting]
    expected = len(list(stoker.DataLoader(DATA, **arguments)))
    for name in ("workers", "seed", "device", "plan", "reseed", "on_error"):
        assert len(list(take(name, dataset=DATA, **arguments))) == expected


def test_a_device_is_used_although_a_subclass_has_a_device_of_its_own() -> None:
    loader = Before("device", dataset=DATA, batch_size=4, device="meta")
    assert {batch.device.type for batch in loader} == {"meta"}


def test_what_was_asked_is_seen_where_nobody_else_uses_the_name() -> None:
    loader = stoker.DataLoader(DATA, seed=3, shuffle=True, device="cpu", workers=Workers(lanes=2), on_error="drop")
    assert (loader.seed, loader.device, loader.workers, loader.on_error) == (3, "cpu", Workers(lanes=2), "drop")
    assert (loader.order, loader.shard, loader.plan, loader.last, loader.tuned) == (None,) * 5
    assert loader.failures == []


def test_the_record_has_the_arguments_of_the_constructor_in_its_order_with_its_defaults() -> None:
    asked, given = inspect.signature(Asked), inspect.signature(stoker.DataLoader)
    assert [(one.name, one.default) for one in asked.parameters.values()] == [
        (one.name, one.default) for one in given.parameters.values()
    ]
