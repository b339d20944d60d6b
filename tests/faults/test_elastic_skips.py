"""Which sample replaces a bad one is the same on any number of ranks and workers, and after a resume on others."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker import BatchPlan, DataLoader, OnError, Workers
from stoker.contracts import EpochNote
from stoker.order import BlockShuffle, Shuffle, reserve_number
from stoker.sampling.reserves import RESERVES, reserve
from stoker.sampling.streams import KeyStream, Vacancy

PER_STEP = 12
RANKS = (1, 2, 3, 4)
WAYS = {
    "inline": Workers(0, 0),
    "threads": Workers(0, 3),
    "one": Workers(1, 1, "fork"),
    "parts": Workers(2, 1, "fork"),
    "rows": Workers(2, 1, "fork", share="rows"),
    "batches": Workers(2, 1, "fork", share="batches"),
}


class Half:
    """Samples of (index, own draw, a draw from NumPy's global generator); every second is bad, so that chains form."""

    def __init__(self, samples: int, bad: Any = None) -> None:
        self.samples, self.bad = samples, set(range(0, samples, 2)) if bad is None else set(bad)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise ValueError(f"sample {index} is spoilt")
        return np.array([index, stoker.rng().integers(2**40), 0], np.int64)


class Reseeded(Half):
    """The third number is drawn from a global generator, which the loader seeds."""

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        sample[2] = np.random.randint(2**30)
        return sample


def loader_of(rank: int, ranks: int, way: str = "inline", dataset: Any = None, **options: Any) -> DataLoader[Any]:
    arguments: dict[str, Any] = {"shuffle": True, "seed": 5, "on_error": "skip", **options}
    dataset = Half(50) if dataset is None else dataset
    return DataLoader(dataset, PER_STEP // ranks, shard=(rank, ranks), workers=WAYS[way], **arguments)


def rows_of(batch: Any) -> list[tuple[int, ...]]:
    data = batch.data if isinstance(batch, stoker.StepBatch) else batch
    return [tuple(row) for row in data.tolist()]


def steps(ranks: int, way: str = "inline", state: Any = None, **options: Any) -> list[list[tuple[int, ...]]]:
    """The rows of each step, rank after rank."""
    passes = []
    for rank in range(ranks):
        loader = loader_of(rank, ranks, way, **options)
        if state is not None:
            loader.load_state_dict(state)
        passes.append([rows_of(batch) for batch in loader])
    return [list(chain(*parts)) for parts in zip(*passes, strict=True)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ranks", RANKS)
def test_a_step_has_the_same_rows_in_the_same_order_on_any_number_of_ranks(way: str, ranks: int) -> None:
    alone, shared = steps(1), steps(ranks, way)
    assert shared[:4] == alone[:4]
    assert shared[4][:2] == alone[4]  # then whatever makes the ranks equal


@pytest.mark.parametrize("ranks", RANKS)
def test_also_where_generators_are_reseeded_for_each_sample(ranks: int) -> None:
    options: dict[str, Any] = {"dataset": Reseeded(48), "reseed": "sample"}
    assert steps(ranks, "parts", **options) == steps(1, **options)


@pytest.mark.parametrize("tries", [1, 2])
@pytest.mark.parametrize("order", [None, "sequential", BlockShuffle(48, seed=2, block=4, window=3), Shuffle(48, 9)])
def test_also_for_orders_without_the_loaders_seed_and_with_retries(order: Any, tries: int) -> None:
    options: dict[str, Any] = {"dataset": Half(48), "order": order, "shuffle": None, "seed": None}
    policy = OnError("skip", tries=tries, pause_s=0.0)
    alone = steps(1, on_error=policy, **options)
    for ranks in RANKS[1:]:
        indices = [[row[0] for row in step] for step in steps(ranks, on_error=policy, **options)]
        assert indices == [[row[0] for row in step] for step in alone]


@pytest.mark.parametrize("end", ["keep", "even", "drop"])
def test_the_padding_of_a_last_step_is_replaced_alike_too(end: str) -> None:
    """The more ranks, the more rows make them equal: those of fewer ranks are the first of them."""
    for samples in (50, 53, 3):
        last = [steps(ranks, dataset=Half(samples), last=end)[samples // PER_STEP :] for ranks in RANKS]
        for one in last:
            for other in last:
                shorter = min(len(one[0]), len(other[0])) if one and other else 0
                assert not shorter or one[0][:shorter] == other[0][:shorter]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    samples=st.integers(24, 70),
    bad=st.sets(st.integers(0, 69), max_size=40),
    seed=st.integers(0, 2**64 - 1),
    ranks=st.sampled_from(RANKS),
    then=st.sampled_from(RANKS),
    stop=st.integers(0, 2),
    way=st.sampled_from(["inline", "threads"]),
)
def test_after_a_resume_on_other_ranks_the_same_steps_follow(
    samples: int, bad: set[int], seed: int, ranks: int, then: int, stop: int, way: str
) -> None:
    options: dict[str, Any] = {"dataset": Half(samples, bad), "seed": seed, "last": "drop"}
    whole = steps(1, **options)
    first = loader_of(0, ranks, way, **options)
    for _ in zip(range(stop), first, strict=False):
        pass
    state = json.loads(json.dumps(first.state_dict()))
    assert steps(then, way, state, **options) == whole[stop:]


def test_after_a_resume_with_worker_processes_too() -> None:
    for ranks, then, way in ((4, 1, "parts"), (1, 3, "rows"), (2, 4, "batches")):
        first = loader_of(0, ranks, way)
        for _ in zip(range(2), first, strict=False):
            pass
        assert steps(then, way, first.state_dict(), last="drop") == steps(1, last="drop")[2:]


# Plans: a rank may be a replica, whose rows are no neighbours


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tail", ["drop", "keep", "pad"])
def test_replicas_replace_what_one_process_for_all_of_them_would(way: str, tail: Any) -> None:
    plan = BatchPlan(micro_batch=2, gradient_accumulation=3, replicas=2)

    def seen(ranks: int, way: str) -> list[Counter[Any]]:
        passes = []
        for rank in range(ranks):
            options: dict[str, Any] = {"workers": WAYS[way], "plan": plan, "last": tail, "on_error": "skip"}
            loader = DataLoader(Half(53), shard=(rank, ranks), shuffle=True, seed=5, **options)
            passes.append([_real(step) for step in loader])
        return [Counter(chain(*parts)) for parts in zip(*passes, strict=True)]

    assert seen(2, way) == seen(1, "inline")


def _real(step: Any) -> list[tuple[int, ...]]:
    rows = rows_of(step)
    return rows if step.mask is None else [row for row, real in zip(rows, step.mask.tolist(), strict=True) if real]


# What the choice is made of


class Shown(KeyStream):
    """A stream of keys that shows the large number it is given."""

    def reserve(self, chance: int, vacancy: Vacancy) -> int:
        return chance


def _choice(seed: int, epoch: int, position: int, attempt: int) -> Any:
    return reserve(Shown(), EpochNote(seed, epoch), Vacancy(position, [], 0), attempt)


def test_the_choice_differs_with_seed_epoch_position_and_attempt() -> None:
    attempts = range(1, RESERVES + 1)
    places = [(s, e, p, a) for s in range(3) for e in range(3) for p in range(8) for a in attempts]
    assert len({_choice(*place) for place in places}) == len(places)
    assert _choice(-1, 0, 0, 1) == _choice(2**64 - 1, 0, 0, 1)  # a base seed of torch's may be negative
    assert _choice(0, 0, 0, RESERVES + 1) is None


def test_the_choice_is_pinned() -> None:
    """Runs under way would go on with other samples if these numbers changed."""
    assert [reserve_number(*place) for place in ((0, 0, 0, 1), (7, 3, 1000, 2), (2**64 - 1, 2**40, 2**40, 16))] == [
        3957092854884853797,
        4365566314677011968,
        4496973806863540458,
    ]


def test_a_bad_sample_is_never_its_own_replacement() -> None:
    for sampler in (None, [0, 1, 0, 1]):
        options: dict[str, Any] = {"seed": 3} if sampler is None else {"sampler": sampler}
        loader: DataLoader[Any] = DataLoader(Half(2, bad=[0]), 2, on_error="skip", **options)
        assert all(batch[:, 0].tolist() == [1, 1] for batch in loader)
        assert len(loader.failures) == (1 if sampler is None else 2)


def test_the_choice_is_spread_evenly() -> None:
    counts = torch.zeros(10)
    for position in range(2000):
        counts[_choice(3, 0, position, 1) % 10] += 1
    assert ((counts - 200) ** 2 / 200).sum() < 30
