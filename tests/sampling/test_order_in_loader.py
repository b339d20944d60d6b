"""Arithmetic order through the loader: what ranks get, when epochs change, and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, ConcatDataset, DistributedSampler, IterableDataset

import stoker
from stoker import DataLoader
from stoker.order import BlockShuffle, Mix, PreShuffled, Repeat, Sequential, Shuffle

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def batches(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def flat(loader: Any) -> list[int]:
    return [index for batch in loader for index in batch.tolist()]


def rank(number: int, world: int, length: int = 30, per_step: int = 12, **more: Any) -> Any:
    arguments = {"seed": 5, "shuffle": True, **more}
    return DataLoader(range(length), batch_size=per_step // world, shard=(number, world), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_seed_and_the_epoch_decide_the_order(workers: int) -> None:
    loader = DataLoader(range(30), batch_size=4, shuffle=True, seed=5, num_workers=workers)  # type: ignore[arg-type]
    order = Shuffle(30, 5)
    for epoch in range(3):
        assert flat(loader) == order.indices(range(30), epoch).tolist()


def test_a_seed_without_shuffle_is_sequential() -> None:
    assert flat(DataLoader(range(7), batch_size=2, seed=5)) == list(range(7))  # type: ignore[arg-type]


def test_plain_shuffle_keeps_torchs_order() -> None:
    torch.manual_seed(4)
    expected = [batch.tolist() for batch in torch.utils.data.DataLoader(range(30), 4, shuffle=True)]  # type: ignore[arg-type]
    torch.manual_seed(4)
    assert batches(DataLoader(range(30), batch_size=4, shuffle=True)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "order",
    [Sequential(30), BlockShuffle(30, 2, block=4, window=2), PreShuffled(30, 2), Repeat(Shuffle(30, 2), 70)],
    ids=lambda order: type(order).__name__,
)
def test_an_order_is_followed(order: Any) -> None:
    loader = DataLoader(range(30), batch_size=4, order=order)  # type: ignore[arg-type]
    assert len(loader) == -(-order.n // 4)
    for epoch in range(3):
        assert flat(loader) == order.indices(range(order.n), epoch).tolist()


def test_a_mix_takes_from_datasets_put_one_behind_the_other() -> None:
    parts = ConcatDataset([list(range(100)), list(range(1000, 1020))])  # type: ignore[list-item]
    order = Mix([Shuffle(100, 1), Shuffle(20, 2)], (3, 1), "repeat")
    seen = Counter("large" if index < 1000 else "small" for index in flat(DataLoader(parts, batch_size=8, order=order)))
    assert abs(seen["large"] - 3 * seen["small"]) <= 3


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(0, 60),
    world=st.sampled_from([1, 2, 3, 4, 6, 12]),
    end=st.sampled_from(["keep", "even", "drop"]),
)
def test_ranks_make_equal_steps_and_share_the_epoch(length: int, world: int, end: str) -> None:
    loaders = [rank(number, world, length, last=end) for number in range(world)]
    parts = [batches(loader) for loader in loaders]
    assert len({tuple(map(len, part)) for part in parts}) == 1
    assert [len(part) for part in parts] == [len(loader) for loader in loaders]
    order = Shuffle(length, 5).indices(range(length), 0).tolist()
    together = [index for step in zip(*parts, strict=True) for batch in step for index in batch]
    left = length % 12
    kept = {"keep": length, "even": length - left % world, "drop": length - left}[end]
    assert together[:kept] == order[:kept]
    padding = together[kept:]
    assert len(padding) == (-left % world if end == "keep" else 0)
    assert padding == [order[place % length] for place in range(len(padding))]


@pytest.mark.parametrize("world", [2, 3, 4, 6])
def test_a_step_is_the_same_for_any_number_of_ranks(world: int) -> None:
    alone = batches(rank(0, 1, 36))
    parts = [batches(rank(number, world, 36)) for number in range(world)]
    assert [[index for batch in step for index in batch] for step in zip(*parts, strict=True)] == alone


def test_torchruns_environment_says_who_this_rank_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    loader = DataLoader(range(30), batch_size=4, shuffle=True, seed=5)  # type: ignore[arg-type]
    assert batches(loader) == batches(rank(2, 3))
    plain = DataLoader(range(30), batch_size=4)  # type: ignore[arg-type]
    assert flat(plain) == list(range(30))


def test_drop_last_drops_the_last_step_of_all_ranks() -> None:
    assert batches(rank(1, 3, drop_last=True)) == batches(rank(1, 3, last="drop"))


def test_a_distributed_sampler_keeps_working_as_it_is() -> None:
    sampler = DistributedSampler(range(30), num_replicas=3, rank=1, seed=4)  # type: ignore[arg-type, var-annotated]
    loader = DataLoader(range(30), batch_size=4, sampler=sampler, seed=9)  # type: ignore[arg-type]
    for epoch in (0, 3):
        sampler.set_epoch(epoch)
        assert flat(loader) == list(sampler)


def test_trainers_see_a_sampler_that_shards_already() -> None:
    loader = rank(1, 3)
    assert isinstance(loader.sampler, DistributedSampler)
    assert (loader.sampler.num_replicas, loader.sampler.rank) == (3, 1)
    assert len(loader.sampler) == len(flat(loader)) == 10
    assert isinstance(loader.batch_sampler, BatchSampler)


def test_set_epoch_chooses_the_epoch() -> None:
    loader = rank(0, 1)
    loader.sampler.set_epoch(7)
    assert flat(loader) == Shuffle(30, 5).indices(range(30), 7).tolist()
    assert flat(loader) == Shuffle(30, 5).indices(range(30), 8).tolist()


def test_set_epoch_counts_after_a_state_was_asked_for() -> None:
    loader = rank(0, 1)
    loader.state_dict()
    loader.sampler.set_epoch(7)
    assert flat(loader) == Shuffle(30, 5).indices(range(30), 7).tolist()


def test_set_epoch_with_the_saved_epoch_keeps_the_place() -> None:
    loader = rank(0, 1)
    loader.sampler.set_epoch(3)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    resumed = rank(0, 1)
    resumed.load_state_dict(state)
    resumed.sampler.set_epoch(3)  # as trainers do before each epoch
    assert batches(resumed) == batches(iterator)


class Endless(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"order": "backwards"}, ValueError, "backwards"),
        ({"order": 3}, TypeError, "int"),
        ({"order": Shuffle(31)}, ValueError, "31 samples.*30"),
        ({"order": Repeat(Shuffle(31), 5)}, ValueError, "31"),
        ({"order": "shuffle", "sampler": range(3)}, ValueError, "sampler"),
        ({"order": "shuffle", "batch_sampler": [[1]]}, ValueError, "sampler"),
        ({"shard": (3, 3)}, ValueError, "rank 3"),
        ({"shard": (0, 2), "shuffle": True}, ValueError, "seed="),
        ({"last": "even"}, ValueError, "seed="),
        ({"last": "odd", "seed": 1}, ValueError, "odd"),
        ({"reseed": "batch"}, ValueError, "reseed"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        DataLoader(range(30), **arguments)  # type: ignore[arg-type]


def test_an_iterable_dataset_has_an_order_of_its_own() -> None:
    with pytest.raises(ValueError, match="IterableDataset"):
        DataLoader(Endless(), order="shuffle")
    assert flat(DataLoader(Endless(), seed=3)) == [0, 1, 2]


def test_the_mix_must_fit_its_dataset() -> None:
    with pytest.raises(ValueError, match="120"):
        DataLoader(range(30), order=Mix([Shuffle(100), Shuffle(20)], (1, 1)))  # type: ignore[arg-type]


def test_shuffle_quality_of_what_the_loader_gives() -> None:
    fully = stoker.shuffle_quality(flat(rank(0, 1, 600)))
    blocks = BlockShuffle(600, 5, block=50, window=2)
    partly = stoker.shuffle_quality(flat(DataLoader(range(600), batch_size=12, order=blocks)))  # type: ignore[arg-type]
    assert fully.quality > partly.quality > stoker.shuffle_quality(range(600)).quality
