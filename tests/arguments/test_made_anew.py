"""Loaders that other code makes anew from a loader's public attributes, as ignite and Lightning do."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.datasets import Made, SizedNumbers, number
from torch.utils.data import BatchSampler, SubsetRandomSampler

import stoker
from stoker import BatchPlan, Workers
from stoker.auto.tuned import Tuned
from stoker.loader.dataloader import setup_of
from stoker.order import BlockShuffle

DATA = Made(24, number)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"batch_size": 4},
    "shuffled": {"batch_size": 4, "shuffle": True, "drop_last": True},
    "single samples": {"batch_size": None},
    "own sampler": {"batch_size": 4, "sampler": SubsetRandomSampler(range(9))},
    "own batch sampler": {"batch_sampler": BatchSampler(range(9), 2, False)},
    "processes": {"batch_size": 4, "num_workers": 1, "prefetch_factor": 3},
    "spawned": {"batch_size": 4, "workers": Workers(1, start_method="spawn")},
    "threads": {"batch_size": 4, "workers": Workers(lanes=3), "prefetch_factor": 3},
    "auto": {"batch_size": 4, "num_workers": "auto"},
    "seeded": {"batch_size": 4, "seed": 3, "shuffle": True, "reseed": "sample"},
    "ordered": {"batch_size": 4, "order": BlockShuffle(24, block=4, seed=2), "last": "drop"},
    "sharded": {"batch_size": 4, "seed": 3, "shard": (1, 2), "last": "even"},
    "on errors": {"batch_size": 4, "on_error": "skip"},
    "on a device": {"batch_size": 4, "device": "cpu"},
    "planned": {"plan": BatchPlan(2, replicas=2)},
    "planned, seeded": {"plan": BatchPlan(2, replicas=2), "seed": 2, "shuffle": True},
    "planned, of hosts": {"plan": BatchPlan(2, replicas=2, hosts=2), "seed": 2, "shard": (1, 2)},
    "planned, of replicas": {"plan": BatchPlan(2, replicas=2, gradient_accumulation=2), "seed": 2, "shard": (1, 2)},
    "planned, own batches": {
        "plan": BatchPlan(2, replicas=2),
        "last": "pad",
        "batch_sampler": BatchSampler(range(9), 2, False),
    },
    "iterable": {"dataset": SizedNumbers(12), "batch_size": 4},
}


class Wrapped(BatchSampler):
    """As ignite's ReproducibleBatchSampler: another batch sampler's batches, listed when a pass begins."""

    def __init__(self, batches: Any) -> None:
        self.batch_sampler = batches

    def __iter__(self) -> Iterator[list[int]]:
        yield from list(self.batch_sampler)

    def __len__(self) -> int:
        return len(self.batch_sampler)


def public(loader: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(loader).items() if not name.startswith("_")}


def rows(loader: Any) -> list[Any]:
    batches = [batch if isinstance(batch, torch.Tensor) else getattr(batch, "data", batch) for batch in loader]
    return [torch.as_tensor(batch).tolist() for batch in batches]


def samples(batches: list[list[int]]) -> list[int]:
    return sorted(sample for batch in batches for sample in batch)


def like_ignite(loader: Any) -> Any:
    left = ("batch_size", "sampler", "drop_last", "batch_sampler")
    arguments = {name: value for name, value in public(loader).items() if name not in left}
    return type(loader)(**arguments, batch_sampler=Wrapped(loader.batch_sampler))


def like_lightning(loader: Any) -> Any:
    sampler = loader.sampler if loader.dataset is DATA else None
    return type(loader)(**{**public(loader), "sampler": sampler, "batch_sampler": None, "shuffle": False})


@pytest.fixture(params=KINDS)
def loader(request: pytest.FixtureRequest) -> Any:
    return stoker.DataLoader(**{"dataset": DATA, **KINDS[request.param]})


def test_no_attribute_is_public_that_the_constructor_does_not_take(loader: Any) -> None:
    list(loader)
    loader.state_dict()
    loader.stats()
    assert set(public(loader)) <= set(inspect.signature(type(loader).__init__).parameters)


def test_ignites_way_gives_the_same_batches(loader: Any) -> None:
    if loader.batch_sampler is None or loader.dataset is not DATA:
        pytest.skip("ignite leaves loaders without a batch sampler, and those of iterables, as they are")
    again = like_ignite(loader)
    assert len(again) == len(loader)
    torch.manual_seed(1)
    expected = rows(loader)
    torch.manual_seed(1)
    assert samples(rows(again)) == samples(expected)
    assert setup_of(again).workers == setup_of(loader).workers


def test_lightnings_way_gives_the_same_batches(loader: Any) -> None:
    if loader.batch_size is None and loader.batch_sampler is not None:
        pytest.skip("Lightning has a way of its own for batch samplers")
    again = like_lightning(loader)
    torch.manual_seed(1)
    expected = rows(loader)
    torch.manual_seed(1)
    assert rows(again) == expected
    assert setup_of(again).workers == setup_of(loader).workers


@pytest.mark.parametrize("remake", [like_ignite, like_lightning])
def test_a_tuned_loader_can_be_made_anew(tmp_path: Path, remake: Any) -> None:
    Tuned(processes=1, lanes=2, start_method="fork", prefetch_factor=2, batch_size=4).save(tmp_path / "stoker.toml")
    loader = stoker.DataLoader(DATA, tuned=tmp_path / "stoker.toml")
    assert rows(remake(loader)) == rows(loader)


def test_a_tuned_loader_takes_the_context_that_it_would_have_had(tmp_path: Path) -> None:
    Tuned(processes=1, start_method="spawn").save(tmp_path / "stoker.toml")
    loader = stoker.DataLoader(DATA, tuned=tmp_path / "stoker.toml")
    context = loader.multiprocessing_context
    assert stoker.DataLoader(DATA, tuned=loader.tuned, multiprocessing_context=context).num_workers == 1
