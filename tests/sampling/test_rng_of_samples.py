"""Chance belongs to the sample: the same draws whoever loads it, and after a resume; others in other epochs."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset

import stoker
from stoker import DataLoader, Workers
from stoker.order import generator_for

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

N = 11
CREWS = {
    "inline": Workers(0),
    "1 process": Workers(1),
    "3 processes": Workers(3),
    "3 processes, any rows": Workers(3, share="rows", rows_per_run=1),
    "3 processes, whole batches": Workers(3, share="batches"),
    "4 threads": Workers(0, lanes=4),
    "2 processes of 4 lanes": Workers(2, lanes=4),
}
ONE_LANE = {name: crew for name, crew in CREWS.items() if crew.lanes == 1}


def draw() -> list[float]:
    """What a sample draws: twice from one generator, once from a new one, and from torch's."""
    mine = stoker.rng()
    torchs = torch.rand(1, generator=stoker.torch_rng()).item()
    return [mine.random(), mine.random(), stoker.rng().random(), torchs]


class Draws(Dataset[Any]):
    def __init__(self, length: int = N) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> list[float]:
        return draw()


class DrawsInRuns(Draws):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self._at(row) for row in range(len(indices))]

    @staticmethod
    def _at(row: int) -> list[float]:
        mine = stoker.rng(row)
        torchs = torch.rand(1, generator=stoker.torch_rng(row)).item()
        return [mine.random(), mine.random(), stoker.rng(row).random(), torchs]


class DrawsAwaited(Draws):
    async def __agetitem__(self, index: int) -> list[float]:
        await asyncio.sleep(0)  # another sample's turn
        drawn = draw()
        await asyncio.sleep(0)
        return drawn


class DrawsIntoRows(Draws):
    def read_into(self, index: int, row: Any) -> None:
        for column, value in zip(row, draw(), strict=True):
            column[...] = value


KINDS: dict[str, Any] = {
    "samples": Draws,
    "runs": DrawsInRuns,
    "awaited": DrawsAwaited,
    "read into rows": DrawsIntoRows,
    "a subset": lambda: Subset(Draws(2 * N), range(N)),
    "a subset of a subset": lambda: Subset(Subset(Draws(3 * N), range(2 * N)), range(N)),
    "a subset of runs": lambda: Subset(DrawsInRuns(2 * N), range(N)),
}


def drawn_in(loader: Any) -> list[list[float]]:
    return [row for batch in loader for row in torch.stack(batch, 1).tolist()]


def expected(epoch: int = 0, seed: int = 7) -> list[list[float]]:
    """By the definition: generators keyed by seed, epoch and position."""
    rows = []
    for position in range(N):
        mine = generator_for(seed, epoch, position)
        first, second = mine.random(), mine.random()
        rows.append([first, second, first])
    return rows


@pytest.mark.parametrize("crew", CREWS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shuffle", [False, True], ids=["", "shuffled"])
def test_draws_are_those_of_the_position_whoever_loads(kind: str, crew: str, shuffle: bool) -> None:
    loader = DataLoader(KINDS[kind](), batch_size=4, seed=7, shuffle=shuffle, workers=CREWS[crew])
    rows = drawn_in(loader)
    assert [row[:3] for row in rows] == expected()
    assert [row[3] for row in rows] == _torchs()


def _torchs() -> list[float]:
    return [row[3] for row in drawn_in(DataLoader(Draws(), batch_size=N, seed=7))]


def test_draws_differ_between_samples_epochs_and_seeds() -> None:
    loader = DataLoader(Draws(), batch_size=4, seed=7)
    everything = [row for _ in range(3) for row in drawn_in(loader)] + drawn_in(DataLoader(Draws(), seed=8))
    for column in (0, 1, 3):
        assert len({row[column] for row in everything}) == 4 * N


@pytest.mark.parametrize("crew", ["inline", "3 processes", "4 threads"])
def test_draws_without_a_seed_differ_between_epochs_and_repeat_after_a_resume(crew: str) -> None:
    def make() -> Any:
        return DataLoader(Draws(), batch_size=4, shuffle=True, workers=CREWS[crew])

    loader = make()
    first = drawn_in(loader)
    state = loader.state_dict()
    second = drawn_in(loader)
    assert len({row[0] for row in first + second}) == 2 * N
    resumed = make()
    resumed.load_state_dict(state)
    assert drawn_in(resumed) == second


@pytest.mark.parametrize("kind", KINDS)
def test_draws_repeat_after_a_resume_in_the_middle_of_an_epoch(kind: str) -> None:
    loader = DataLoader(KINDS[kind](), batch_size=4, seed=7)
    list(loader)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    resumed = DataLoader(KINDS[kind](), batch_size=4, seed=7, num_workers=2)
    resumed.load_state_dict(state)
    assert [row[:3] for row in drawn_in(resumed)] == expected(epoch=1)[4:]


def test_ranks_draw_what_one_rank_would() -> None:
    ranks = [drawn_in(DataLoader(Draws(), batch_size=3, seed=7, shard=(rank, 3), last="drop")) for rank in range(3)]
    assert [row[:3] for rank in ranks for row in rank] == expected()[:9]


def test_outside_a_loader_there_is_a_generator_too() -> None:
    assert stoker.rng().random() != stoker.rng().random()
    assert torch.rand(1, generator=stoker.torch_rng()) != torch.rand(1, generator=stoker.torch_rng())
    list(DataLoader(Draws(), seed=7))
    assert stoker.rng().random() != stoker.rng().random()


# reseed="sample": code that draws from the global generators.


class DrawsGlobally(Dataset[Any]):
    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> list[float]:
        return [random.random(), float(np.random.rand()), torch.rand(1).item(), torch.randn(1).item()]


class DrawsGloballyInRuns(DrawsGlobally):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class DrawsGloballyIntoRows(DrawsGlobally):
    def read_into(self, index: int, row: Any) -> None:
        for column, value in zip(row, self[index], strict=True):
            column[...] = value


class DrawsGloballyAwaited(DrawsGlobally):
    async def __agetitem__(self, index: int) -> list[float]:
        await asyncio.sleep(0)
        return self[index]


@pytest.mark.parametrize("crew", ONE_LANE)
@pytest.mark.parametrize("kind", [DrawsGlobally, DrawsGloballyInRuns, DrawsGloballyIntoRows])
def test_reseeded_draws_do_not_depend_on_who_loads(kind: Any, crew: str) -> None:
    def make(workers: Workers) -> Any:
        return DataLoader(kind(), batch_size=4, seed=7, reseed="sample", workers=workers)

    rows = drawn_in(make(CREWS[crew]))
    assert rows == drawn_in(DataLoader(DrawsGlobally(), batch_size=3, seed=7, reseed="sample"))
    for column in range(4):
        assert len({row[column] for row in rows}) == N


@pytest.mark.parametrize("crew", ["inline", "3 processes"])
def test_reseeded_draws_repeat_after_a_resume_and_differ_between_epochs(crew: str) -> None:
    def make() -> Any:
        return DataLoader(DrawsGlobally(), batch_size=4, shuffle=True, reseed="sample", workers=CREWS[crew])

    loader = make()
    first = drawn_in(loader)
    iterator = iter(loader)
    second = drawn_in([next(iterator)])
    state = loader.state_dict()
    second += drawn_in(iterator)
    resumed = make()
    resumed.load_state_dict(state)
    assert drawn_in(resumed) == second[4:]
    assert len({row[2] for row in first + second}) == 2 * N


def test_the_training_process_keeps_its_generators() -> None:
    loader = DataLoader(DrawsGlobally(), batch_size=4, seed=7, reseed="sample")
    iterator = iter(loader)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    before = random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()
    list(iterator)
    assert random.getstate() == before[0]
    assert repr(np.random.get_state(legacy=False)) == repr(before[1])
    assert torch.equal(torch.get_rng_state(), before[2])


def test_the_training_process_keeps_its_generators_when_a_sample_fails() -> None:
    class Fails(DrawsGlobally):
        def __getitem__(self, index: int) -> Any:
            torch.rand(1)
            raise ValueError("a bad sample")

    iterator = iter(DataLoader(Fails(), batch_size=4, seed=7, reseed="sample"))
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="a bad sample"):
        next(iterator)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_collate_fn_that_draws_is_keyed_too() -> None:
    def mixed_up(samples: list[Any]) -> torch.Tensor:
        return torch.rand(2) + random.random()

    def make(workers: int) -> Any:
        arguments: dict[str, Any] = {"seed": 7, "reseed": "sample", "num_workers": workers}
        return DataLoader(DrawsGlobally(), batch_size=4, collate_fn=mixed_up, **arguments)

    assert torch.cat(list(make(0))).tolist() == torch.cat(list(make(3))).tolist()


def test_reseeding_is_refused_where_it_cannot_be_kept() -> None:
    class Numbers(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(3))

    with pytest.raises(ValueError, match="reseed"):
        DataLoader(DrawsGlobally(), reseed="sample", workers=Workers(0, lanes=2))
    with pytest.raises(ValueError, match="reseed"):
        DataLoader(DrawsGlobally(), reseed="worker")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reseed"):
        DataLoader(Numbers(), reseed="sample")
    with pytest.raises(ValueError, match="reseed"):
        DataLoader(DrawsGloballyAwaited(), reseed="sample")
