"""A loader that is built again gives the same batches, and a changed argument changes nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

import stoker
from stoker.bench.rebuild import RebuildError, arguments_of, close, kind_of, rebuild
from stoker.bench.settings import GIVEN, STOKER, TORCH
from stoker.testing.difference import difference

NUMBERS = list(range(23))


class Letters(IterableDataset[str]):
    def __iter__(self) -> Iterator[str]:
        return iter("abcdefg")


def doubled(samples: list[int]) -> torch.Tensor:
    return torch.tensor([2 * sample for sample in samples])


TORCH_CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batches": {"batch_size": 4},
    "shuffled": {"batch_size": 4, "shuffle": True},
    "dropping the last": {"batch_size": 4, "drop_last": True},
    "own collate": {"batch_size": 4, "collate_fn": doubled},
    "own sampler": {"batch_size": 4, "sampler": WeightedRandomSampler([1.0] * 23, 9, generator=None)},
    "own batch sampler": {"batch_sampler": BatchSampler(SequentialSampler(NUMBERS), 5, True)},
    "no batches": {"batch_size": None},
    "workers": {"batch_size": 4, "num_workers": 1, "prefetch_factor": 3, "persistent_workers": True, "timeout": 50},
    "another context": {"batch_size": 4, "num_workers": 1, "multiprocessing_context": "fork"},
}
STOKER_CALLS: dict[str, dict[str, Any]] = {
    "seeded": {"batch_size": 4, "seed": 7, "shuffle": True},
    "sharded": {"batch_size": 4, "seed": 7, "shard": (1, 2), "drop_last": True},
    "ordered": {"batch_size": 4, "order": "sequential", "last": "even", "shard": (0, 2)},
    "threads": {"batch_size": 4, "workers": stoker.Workers(lanes=2), "prefetch_factor": 5},
    "lanes": {"batch_size": 4, "workers": stoker.Workers(processes=1, lanes=2, start_method="fork", share="rows")},
    "careful": {"batch_size": 4, "on_error": "skip", "reseed": "sample", "seed": 2},
}


def batches_of(loader: Any) -> list[Any]:
    torch.manual_seed(0)
    try:
        return list(loader)
    finally:
        close(loader)


@pytest.mark.parametrize("name", TORCH_CALLS)
@pytest.mark.parametrize("kind", [TORCH, STOKER])
def test_the_same_batches_come_again(name: str, kind: str) -> None:
    loader: Any = (DataLoader if kind == TORCH else stoker.DataLoader)(NUMBERS, **TORCH_CALLS[name])  # type: ignore[operator]
    again = rebuild(loader)
    assert type(again) is type(loader)
    assert difference(batches_of(loader), batches_of(again)) is None


@pytest.mark.parametrize("name", STOKER_CALLS)
def test_what_only_stoker_knows_comes_again(name: str) -> None:
    loader = stoker.DataLoader(NUMBERS, **STOKER_CALLS[name])
    again = rebuild(loader)
    assert again.workers == loader.workers
    assert again.prefetch_factor == loader.prefetch_factor
    assert (again.seed, again.reseed, again.on_error) == (loader.seed, loader.reseed, loader.on_error)
    assert difference(batches_of(loader), batches_of(again)) is None


@pytest.mark.parametrize("name", TORCH_CALLS)
def test_a_loader_of_torch_becomes_one_of_stoker(name: str) -> None:
    loader: Any = DataLoader(NUMBERS, **TORCH_CALLS[name])  # type: ignore[arg-type]
    ours = rebuild(loader, STOKER)
    assert kind_of(ours) == STOKER
    assert difference(batches_of(loader), batches_of(ours)) is None


@pytest.mark.parametrize("name", [*TORCH_CALLS, *STOKER_CALLS])
def test_a_loader_of_stoker_becomes_one_of_torch(name: str) -> None:
    loader = stoker.DataLoader(NUMBERS, **{**TORCH_CALLS, **STOKER_CALLS}[name])
    theirs = rebuild(loader, TORCH)
    assert kind_of(theirs) == TORCH
    assert len(theirs) == len(loader)


def test_iterable_datasets_are_built_again() -> None:
    loader: Any = DataLoader(Letters(), batch_size=3)
    assert batches_of(rebuild(loader, num_workers=1)) == batches_of(rebuild(loader, STOKER)) == batches_of(loader)


def test_an_argument_is_changed_and_no_other() -> None:
    loader: Any = DataLoader(NUMBERS, **TORCH_CALLS["workers"])  # type: ignore[arg-type]
    changed = rebuild(loader, num_workers=2)
    before, after = arguments_of(loader), arguments_of(changed)
    assert (before.pop("num_workers"), after.pop("num_workers")) == (1, 2)
    assert before == after


@pytest.mark.parametrize("kind", [TORCH, STOKER])
def test_without_workers_what_needs_them_is_dropped(kind: str) -> None:
    loader: Any = DataLoader(NUMBERS, **TORCH_CALLS["workers"])  # type: ignore[arg-type]
    inline = rebuild(loader, kind, num_workers=0)
    assert (inline.num_workers, inline.prefetch_factor, inline.persistent_workers, inline.timeout) == (
        0,
        None,
        False,
        0,
    )


def test_stokers_lanes_and_processes_change_apart() -> None:
    loader = stoker.DataLoader(NUMBERS, workers=stoker.Workers(processes=1, lanes=4))
    assert rebuild(loader, num_workers=2).workers == stoker.Workers(processes=2, lanes=4)
    assert rebuild(loader, workers=stoker.Workers(lanes=2)).workers == stoker.Workers(lanes=2)
    assert rebuild(loader, num_workers="auto").workers.processes >= 0
    assert rebuild(loader, batch_size=5).workers == loader.workers


def test_a_number_of_workers_that_was_set_later_counts() -> None:
    loader = stoker.DataLoader(NUMBERS, num_workers=1)
    loader.num_workers = 2
    assert rebuild(loader).workers.processes == 2


def test_the_batch_size_changes_with_any_order() -> None:
    seeded = stoker.DataLoader(NUMBERS, batch_size=4, seed=7, shuffle=True)
    assert [len(batch) for batch in rebuild(seeded, batch_size=10)] == [10, 10, 3]
    shuffled: Any = DataLoader(NUMBERS, batch_size=4, sampler=RandomSampler(NUMBERS))  # type: ignore[arg-type]
    assert [len(batch) for batch in rebuild(shuffled, batch_size=10)] == [10, 10, 3]


def test_a_batch_samplers_size_is_not_the_loaders_to_change() -> None:
    loader: Any = DataLoader(NUMBERS, **TORCH_CALLS["own batch sampler"])  # type: ignore[arg-type]
    with pytest.raises(RebuildError, match="change batch_size there"):
        rebuild(loader, batch_size=2)


class Wrapped(DataLoader[Any]):
    def __iter__(self) -> Any:
        return iter(())


class Named(DataLoader[Any]):
    name = "only a name more"


def test_only_what_iterates_as_its_kind_does_is_built_again() -> None:
    assert kind_of(Wrapped(NUMBERS)) == kind_of([1]) == GIVEN  # type: ignore[arg-type]
    assert kind_of(Named(NUMBERS)) == TORCH  # type: ignore[arg-type]
    with pytest.raises(RebuildError, match="a Wrapped cannot be built again"):
        rebuild(Wrapped(NUMBERS))  # type: ignore[arg-type]
