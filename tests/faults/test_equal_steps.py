"""Whatever is dropped, every rank makes the same number of steps; alone, a batch without rows is passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.programs import Nursery
from torch.utils.data import BatchSampler, DistributedSampler

import stoker
from stoker import BatchPlan, DataLoader, OnError, Workers, prefetch
from stoker.errors import TooManyFailures

SCRIPT = Path(__file__).with_name("equal_ranks.py")
WAYS = {
    "inline": Workers(),
    "threads": Workers(0, 3),
    "parts": Workers(2, 1, "fork"),
    "rows": Workers(2, 1, "fork", share="rows"),
    "batches": Workers(2, 1, "fork", share="batches"),
}
ways = pytest.mark.parametrize("way", WAYS)


class Spoilt:
    """Samples of (index, own draw), some of which raise."""

    def __init__(self, samples: int, bad: Any = ()) -> None:
        self.samples, self.bad = samples, set(bad)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise ValueError(f"sample {index} is spoilt")
        return np.array([index, stoker.rng().integers(2**40)])


def batches_of(loader: Any) -> list[list[int]]:
    batches = (batch.data if isinstance(batch, stoker.StepBatch) else batch for batch in loader)
    return [batch[:, 0].tolist() for batch in batches]


def as_array(samples: list[Any]) -> Any:
    return torch.from_numpy(np.stack(samples))


@pytest.mark.faults
@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("action", ["drop", "skip"])
@pytest.mark.parametrize("kind", ["order", "plan", "distributed", "batch_sampler", "prefetch"])
def test_real_ranks_meet_in_every_step(nursery: Nursery, kind: str, action: str, processes: int) -> None:
    run = nursery.run(SCRIPT, kind, action, processes)
    assert run.returncode == 0, run.stderr
    steps = 24 if kind == "batch_sampler" else 6
    assert run.stdout.split("\n")[0] == f"[{steps}, -{steps}] {steps}"


@ways
@pytest.mark.parametrize("collate", [None, as_array])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_rank_that_loses_a_whole_batch_fills_one_row_of_it(way: str, ranks: int, collate: Any) -> None:
    dataset, size = Spoilt(48, bad=[*range(8), 9, *range(20, 24)]), 12 // ranks
    for rank in range(ranks):
        options: dict[str, Any] = {"shard": (rank, ranks), "seed": 3, "on_error": "drop", "collate_fn": collate}
        loader: DataLoader[Any] = DataLoader(dataset, size, workers=WAYS[way], **options)
        batches = batches_of(loader)
        clean = batches_of(DataLoader(Spoilt(48), size, shard=(rank, ranks), seed=3))
        assert len(batches) == len(clean) == len(loader) == 4
        for batch, own in zip(batches, clean, strict=True):
            good = [index for index in own if index not in dataset.bad]
            assert batch == good if good else len(batch) == 1 and batch[0] not in dataset.bad
        assert batches == batches_of(DataLoader(dataset, size, **options))


@ways
@pytest.mark.parametrize("batch_size", [1, None])
def test_a_rank_that_takes_samples_singly_replaces_bad_ones(way: str, batch_size: int | None) -> None:
    options: dict[str, Any] = {"shard": (1, 2), "seed": 3, "on_error": "drop"}
    dataset = Spoilt(16, bad=(1, 5, 6))
    loader: DataLoader[Any] = DataLoader(dataset, batch_size, workers=WAYS[way], **options)
    items = [item.tolist() for item in loader]
    assert len(items) == 8
    assert items == [item.tolist() for item in DataLoader(dataset, batch_size, **options)]


@ways
def test_alone_a_batch_without_rows_is_passed_over(way: str) -> None:
    for alone in ({}, {"shard": (0, 1)}):
        options: dict[str, Any] = {"workers": WAYS[way], "on_error": "drop", "seed": 3, **alone}
        assert batches_of(DataLoader(Spoilt(24, bad=range(8, 16)), 8, **options)) == [[*range(8)], [*range(16, 24)]]


@ways
@pytest.mark.parametrize("action", ["drop", "skip"])
def test_torchs_distributed_sampler_lets_bad_samples_be_replaced_by_any(way: str, action: Any) -> None:
    dataset: Any = Spoilt(24, bad=range(12))
    for batch_size in (1, 3):
        for given in ("sampler", "batch_sampler"):
            sampler: Any = DistributedSampler(dataset, num_replicas=2, rank=1, shuffle=False)
            options: dict[str, Any] = {"batch_size": batch_size, "sampler": sampler}
            if given == "batch_sampler":
                options = {"batch_sampler": BatchSampler(sampler, batch_size, False)}
            loader: DataLoader[Any] = DataLoader(dataset, workers=WAYS[way], on_error=action, seed=1, **options)
            batches = batches_of(loader)
            assert len(batches) == 12 // batch_size
            assert action == "drop" or all(len(batch) == batch_size for batch in batches)


@ways
@pytest.mark.parametrize("action", ["drop", "skip"])
def test_a_step_that_nothing_can_fill_is_an_error_and_not_a_step_less(
    way: str, action: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    options: dict[str, Any] = {"sampler": list(range(24)), "on_error": action, "workers": WAYS[way]}
    batches = iter(DataLoader(Spoilt(24, bad=range(8, 16)), 8, **options))
    assert len(next(batches)) == 8
    with pytest.raises(TooManyFailures, match="every rank needs a batch in every step") as info:
        next(batches)
    assert {failure.index for failure in info.value.failures} == set(range(8, 16))
    batches.close()


@ways
@pytest.mark.parametrize("tail", ["drop", "pad"])
def test_a_plans_step_that_cannot_be_filled_is_an_error_and_not_a_short_step(way: str, tail: Any) -> None:
    options: dict[str, Any] = {"plan": BatchPlan(4), "last": tail, "workers": WAYS[way]}
    loader: DataLoader[Any] = DataLoader(Spoilt(16, bad=range(1, 16)), on_error="skip", sampler=[*range(16)], **options)
    steps = iter(loader)
    assert batches_of([next(steps)]) == [[0, 0, 0, 0]]
    with pytest.raises(TooManyFailures, match="same number of rows"):
        next(steps)
    steps.close()


@ways
def test_one_row_that_cannot_be_replaced_takes_no_other_with_it(way: str) -> None:
    """Some rows are replaced and some given up, of one batch."""
    dataset = Spoilt(12, bad=set(range(12)) - {5})
    options: dict[str, Any] = {"sampler": list(range(12)), "on_error": "skip", "seed": 1}
    batches = batches_of(DataLoader(dataset, 12, workers=WAYS[way], **options))
    assert batches == batches_of(DataLoader(dataset, 12, **options))
    assert 1 < len(batches[0]) <= 12


@ways
def test_steps_of_a_plan_know_how_many_rows_are_left(way: str) -> None:
    plan = BatchPlan(micro_batch=3, gradient_accumulation=2)
    loader: DataLoader[Any] = DataLoader(
        Spoilt(16, bad=[1, 7, 13]), plan=plan, last="keep", on_error="drop", workers=WAYS[way], seed=1
    )
    steps = list(loader)
    assert batches_of(steps) == [[0, 2, 3, 4, 5], [6, 8, 9, 10, 11], [12, 14, 15]]
    assert [len(step) for step in steps] == [5, 5, 3]
    assert [[len(part) for part in step.micro_batches()] for step in steps] == [[3, 2], [3, 2], [3]]


@ways
def test_the_mask_of_a_shared_last_step_counts_the_rows_that_are_left(way: str) -> None:
    """Fifteen samples for two ranks of four: the last step has 7, and one row to make the ranks equal."""
    cases = (([12], [13, 14, 0], [1, 1, 0]), ([0], [12, 13, 14], [1, 1, 1]), ([13, 0], [12, 14], [1, 1]))
    for bad, kept, mask in cases:
        loader: DataLoader[Any] = DataLoader(
            Spoilt(15, bad),
            plan=BatchPlan(4, hosts=2),
            shard=(1, 2),
            last="keep",
            on_error="drop",
            workers=WAYS[way],
            seed=1,
        )
        last = list(loader)[-1]
        assert batches_of([last]) == [kept]
        assert last.mask.tolist() == [bool(real) for real in mask]


def test_combining_batches_of_ranks_that_drop_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    dropping: DataLoader[Any] = DataLoader(Spoilt(16), 4, seed=1, on_error="drop", shard=(0, 2))
    with pytest.raises(ValueError, match=r'batch_size=8.*on_error="skip"'):
        prefetch(dropping, batch_size=8)
    later: DataLoader[Any] = DataLoader(Spoilt(16), 4, seed=1, on_error=OnError("drop"))
    accessor = prefetch(later, batch_size=8)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r'on_error="skip"'):
        iter(accessor)
    prefetch(DataLoader(Spoilt(16), 4, seed=1, on_error="skip", shard=(0, 2)), batch_size=8).close()
