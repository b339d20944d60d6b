"""A look into a loader sees what is there, changes nothing, and says what it could not see."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import stoker
from stoker.bench.runs import Trouble
from stoker.diagnosis import cost as cost_module
from stoker.diagnosis.aside import aside
from stoker.diagnosis.copies import StepCopies
from stoker.diagnosis.cost import crowding, timed
from stoker.diagnosis.facts import Inside
from stoker.diagnosis.inside import look_inside
from stoker.diagnosis.rig import DiagnosisError, given_of, moved_to, rig_of


class Noting:
    """Remembers what it was asked for."""

    def __init__(self, length: int = 64) -> None:
        self.asked: list[Any] = []
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return np.full(256, index % 256, np.uint8)


class Awaited:
    def __len__(self) -> int:
        return 8

    async def __agetitem__(self, index: int) -> int:
        await asyncio.sleep(0)
        return index


class Lines(IterableDataset[str]):
    def __iter__(self) -> Iterator[str]:
        return iter(["a", "b", "c"] * 20)


class Sour(Noting):
    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise KeyError("sample 3")
        return index


def stack(samples: list[Any]) -> torch.Tensor:
    return torch.stack([torch.as_tensor(sample) for sample in samples])


def first(samples: list[Any]) -> Any:
    return samples[0]


def look(loader: Any) -> Inside:
    return look_inside(loader, given_of(loader), 0.05)


def test_looking_leaves_the_dataset_as_it_was() -> None:
    dataset = Noting()
    inside = look(DataLoader(dataset, batch_size=4))  # type: ignore[arg-type]
    assert inside.trouble == ""
    assert dataset.asked == []
    assert inside.sample is not None
    assert inside.sample.size_bytes == 256
    assert inside.collate_s is not None
    assert inside.handed_s is None  # nobody to hand over to


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Noting(), batch_size=4, num_workers=1),  # type: ignore[arg-type]
        DataLoader(Noting(), batch_size=4, num_workers=1, persistent_workers=True),  # type: ignore[arg-type]
        stoker.DataLoader(Noting(), batch_size=4, num_workers=1),
        stoker.DataLoader(Noting(), batch_size=4, seed=3, shuffle=True, workers=stoker.Workers(threads=2)),
        DataLoader(Lines(), batch_size=4, num_workers=1),
    ],
    ids=["torch", "kept", "stoker", "lanes", "iterable"],
)
def test_handing_over_is_measured_where_somebody_does(loader: Any) -> None:
    inside = look(loader)
    assert inside.trouble == ""
    assert inside.handed_s is not None
    assert inside.handed_s > 0
    assert getattr(loader, "_iterator", None) is None


def test_every_kind_of_loader_can_be_looked_into() -> None:
    for loader, kind in (
        (stoker.DataLoader(Awaited(), batch_size=2), "awaited"),
        (DataLoader(Lines(), batch_size=2), "iterable"),
        (DataLoader(Noting(), batch_size=None), "map"),  # type: ignore[arg-type]
        (DataLoader(Noting(), batch_sampler=[[1, 2], [3]]), "map"),  # type: ignore[arg-type]
        (DataLoader(TensorDataset(torch.zeros(9))), "map"),
    ):
        assert given_of(loader).dataset == kind
        inside = look(loader)
        assert inside.trouble == ""
        assert inside.sample is not None
    arrays = stoker.DataLoader(TensorDataset(torch.zeros(9)))
    assert given_of(arrays).dataset == "arrays"
    assert look(arrays) == Inside()


def test_the_default_collate_is_compared_with_the_loaders_own() -> None:
    same = look(DataLoader(Noting(), batch_size=4, collate_fn=stack))  # type: ignore[arg-type]
    other = look(DataLoader(Noting(), batch_size=4, collate_fn=first))  # type: ignore[arg-type]
    assert (same.default_collate_fits, other.default_collate_fits) == (True, False)


def test_what_cannot_be_seen_is_named_with_its_line() -> None:
    inside = look(DataLoader(Sour(), batch_size=4))  # type: ignore[arg-type]
    assert inside.sample is None or inside.sample.count <= 3  # those before it, as far as they were come to
    assert "KeyError at " in inside.trouble
    assert "test_look.py" in inside.trouble
    empty = look(DataLoader([], batch_size=4))  # type: ignore[arg-type]
    assert "is the dataset empty" in empty.trouble


def test_a_look_in_another_process_gives_its_result_or_why_not() -> None:
    home = os.getpid()
    assert aside(lambda _: os.getpid(), 30.0) not in (home, None)
    raised = aside(lambda _: 1 // 0, 30.0)
    assert isinstance(raised, Trouble)
    assert raised.type == "ZeroDivisionError"
    killed = aside(lambda _: os._exit(3), 30.0)
    assert isinstance(killed, Trouble)
    assert killed.type == "Ended"
    late = aside(lambda _: time.sleep(60), 0.01)
    assert isinstance(late, Trouble)
    assert late.type == "TooLong"


def test_without_fork_the_look_happens_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    assert aside(lambda _: os.getpid(), 1.0) == os.getpid()


def test_sleeping_is_waiting_and_computing_is_not() -> None:
    _, slept = timed(lambda: time.sleep(0.05))
    assert slept.waiting_s > 0.8 * slept.own_s
    _, spun = timed(lambda: sum(range(500_000)))
    assert spun.computing_s > 0
    for cost in (slept, spun):  # nothing is left over, whatever else the machine does
        assert cost.waiting_s + cost.queued_s + cost.computing_s == pytest.approx(cost.seconds)
    assert crowding() >= 1.0


def test_without_the_kernels_word_a_thread_that_never_gave_way_has_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_module, "_queued_s", lambda: None)
    monkeypatch.setattr(cost_module, "_voluntary_switches", lambda: 7)
    _, cost = timed(lambda: time.sleep(0.001))
    assert cost.waiting_s == 0.0
    counts = iter([7, 8])
    monkeypatch.setattr(cost_module, "_voluntary_switches", lambda: next(counts))
    _, cost = timed(lambda: time.sleep(0.001))
    assert cost.waiting_s > 0.0
    assert cost.queued_s == 0.0


def test_reading_is_not_told_where_the_system_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> str:
        raise OSError

    monkeypatch.setattr(Path, "read_text", missing)
    _, cost = timed(lambda: None)
    assert cost.read_bytes == 0.0


BYTES = torch.zeros(4, 3, 8, dtype=torch.uint8)
STATIC = torch.zeros(4, 3, 8)


@pytest.mark.parametrize(
    ("step", "calls"),
    [
        (lambda batch: batch.to("meta"), [".to"]),
        (lambda batch: batch.to("cpu", torch.float32), [".to"]),
        (lambda batch: batch.float(), [".float"]),
        (lambda batch: batch.permute(2, 0, 1).contiguous(), [".contiguous"]),
        (lambda batch: batch[1:].type(torch.int32), [".type"]),
        (lambda batch: STATIC.copy_(batch), [".copy_"]),
        (lambda batch: torch.empty(4, 3, 8).copy_(batch, non_blocking=True), [".copy_"]),
        (lambda batch: batch.clone().double(), [".clone", ".double"]),
        (lambda batch: torch.stack([batch, batch]), ["torch.stack"]),
        (lambda batch: torch.tensor([[1, 2], [3, 4]]), ["torch.tensor"]),
    ],
)
def test_a_step_that_moves_or_converts_the_bytes_of_its_batch_copies(step: Any, calls: list[str]) -> None:
    with StepCopies() as copies:
        step(BYTES)
    assert list(copies.by_name) == calls
    assert copies.seconds > 0.0


@pytest.mark.parametrize(
    "step",
    [
        lambda batch: batch.to("cpu").contiguous().cpu(),  # there already
        lambda batch: (batch + 1).float(),  # computed
        lambda batch: (batch * 2).sum().cpu().item(),
        lambda batch: batch.reshape(-1).view(-1)[:3],
        lambda batch: STATIC.copy_(torch.relu(STATIC)),
        lambda batch: torch.nn.Linear(8, 2).weight.double(),  # a parameter
    ],
)
def test_what_a_step_does_with_what_it_computed_is_no_copying(step: Any) -> None:
    with StepCopies() as copies:
        step(BYTES)
    assert copies.by_name == {}


def test_a_batch_moves_with_all_its_parts() -> None:
    from collections import namedtuple

    named = namedtuple("named", "x y")
    batch = {"a": torch.zeros(2), "b": [torch.zeros(1), "text"], "c": named(torch.zeros(3), 4)}
    moved = moved_to(batch, "meta")
    assert moved["a"].device.type == moved["b"][0].device.type == moved["c"].x.device.type == "meta"
    assert (moved["b"][1], moved["c"].y) == ("text", 4)
    assert type(moved["c"]) is named


def test_what_cannot_be_iterated_twice_is_refused() -> None:
    with pytest.raises(DiagnosisError, match="can be iterated only once"):
        rig_of(iter([1]))
    with pytest.raises(DiagnosisError, match="is no loader"):
        rig_of(3)
