"""A run stopped before any of its steps goes on as if it had not stopped: every order, dataset, sampler and crew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.resume.state_datasets import Backwards, Drawn, Forgetful, Remembers, Rotating, WithBookmark, WithPlace
from torch.utils.data import BatchSampler, ConcatDataset, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from stoker import DataLoader, Workers
from stoker.integrations.torchdata import StatefulDistributedSampler
from stoker.order import BlockShuffle, Mix, PreShuffled, Repeat, Shuffle
from stoker.testing import assert_resumes_everywhere

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

N = 14  # in batches of 4: three full steps and a short one
CREWS = {
    "inline": Workers(0),
    "1 process": Workers(1),
    "3 processes": Workers(3),
    "4 threads": Workers(0, threads=4),
    "1 process of 4 lanes": Workers(1, threads=4),
    "3 processes of 4 lanes": Workers(3, threads=4),
}
FEW = ("inline", "3 processes", "4 threads")
PERSISTING = [("inline", False), *((crew, kept) for crew in ("1 process", "3 processes") for kept in (False, True))]
ORDERS: dict[str, dict[str, Any]] = {
    "torch sequential": {},
    "torch shuffle": {"shuffle": True},
    "seeded sequential": {"seed": 5},
    "seeded shuffle": {"shuffle": True, "seed": 5},
    "block shuffle": {"order": BlockShuffle(N, 5, block=3, window=2)},
    "pre-shuffled": {"order": PreShuffled(N, 5, block=2)},
    "repeat": {"order": Repeat(Shuffle(N, 5), N + 5)},
    "repeat, shorter": {"order": Repeat(Shuffle(N, 5), N - 5)},
}


def over(dataset: Callable[[], Any], **arguments: Any) -> Callable[[], Any]:
    """Makes a loader over a new dataset each time, with samplers made anew as well."""
    return lambda: DataLoader(
        dataset(),
        **{"batch_size": 4, "seed": 5}
        | {name: value() if callable(value) else value for name, value in arguments.items()},
    )


def slow_unless(quick: bool, *values: Any) -> Any:
    """Whole matrices are for `make torture`; `make test` plays every row and every column of them."""
    return pytest.param(*values, marks=[] if quick else [pytest.mark.slow])


@pytest.mark.parametrize(
    ("order", "crew"),
    [slow_unless(crew in FEW or "shuffle" in order.split(), order, crew) for order in ORDERS for crew in CREWS],
)
def test_every_order_resumes_with_every_crew(order: str, crew: str) -> None:
    arguments = {"seed": None, **ORDERS[order], "workers": CREWS[crew]}
    assert_resumes_everywhere(lambda: DataLoader(Drawn(N), batch_size=4, **arguments))


@pytest.mark.parametrize("crew", FEW)
@pytest.mark.parametrize("when_used_up", ["stop", "repeat", "drop"])
def test_a_mix_resumes_with_every_crew(when_used_up: Any, crew: str) -> None:
    order = Mix([Shuffle(9, 1), PreShuffled(4, 2)], (2, 1), when_used_up)
    parts = ConcatDataset([Drawn(9), Drawn(4, begin=100)])
    assert_resumes_everywhere(lambda: DataLoader(parts, batch_size=4, seed=5, order=order, workers=CREWS[crew]))


@pytest.mark.parametrize("crew", FEW)
@pytest.mark.parametrize("order", ["torch shuffle", "seeded shuffle"])
def test_a_state_of_any_crew_resumes_with_any_other(order: str, crew: str) -> None:
    makers = [
        lambda each=each: DataLoader(Drawn(N), batch_size=4, workers=each, **ORDERS[order])
        for each in (CREWS[crew], Workers(0), Workers(2, threads=2))
    ]
    assert_resumes_everywhere(makers[0], others=makers[1:])


@pytest.mark.parametrize(
    ("crew", "persistent", "drop_last"),
    [
        slow_unless(not drop_last or (crew != "1 process" and not persistent), crew, persistent, drop_last)
        for crew, persistent in PERSISTING
        for drop_last in (False, True)
    ],
)
@pytest.mark.parametrize("dataset", [Forgetful, WithBookmark, WithPlace])
def test_an_iterable_dataset_resumes(dataset: Any, crew: str, persistent: bool, drop_last: bool) -> None:
    workers = CREWS[crew]
    assert_resumes_everywhere(
        lambda: DataLoader(
            dataset(N), batch_size=3, workers=workers, persistent_workers=persistent, drop_last=drop_last
        )
    )


@pytest.mark.parametrize(("crew", "persistent"), PERSISTING)
def test_a_map_style_dataset_with_a_state_resumes(crew: str, persistent: bool) -> None:
    workers = CREWS[crew]  # of one lane: several share a dataset, and which sample it counts first is anybody's guess
    assert_resumes_everywhere(
        lambda: DataLoader(Remembers(N), batch_size=4, workers=workers, persistent_workers=persistent)
    )


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def _batches() -> list[list[int]]:
    return [[0, 1, 2], [3], [4, 5, 6, 7], [8, 0]]


SAMPLERS: dict[str, Callable[[], dict[str, Any]]] = {
    "batch_sampler that is a list": lambda: {"batch_sampler": _batches()},
    "batch_sampler": lambda: {"batch_sampler": BatchSampler(Backwards(N), 3, drop_last=True)},
    "batch_sampler with a stateful sampler": lambda: {"batch_sampler": BatchSampler(Rotating(N), 3, drop_last=False)},
    "sampler without a state": lambda: {"sampler": Backwards(N), "batch_size": 4},
    "stateful sampler": lambda: {"sampler": Rotating(N), "batch_size": 4},
    "stateful sampler, single samples": lambda: {"sampler": Rotating(5), "batch_size": None},
    "torchdata's sampler": lambda: {"sampler": StatefulDistributedSampler(Drawn(N), 2, 1), "batch_size": 2},
    "with replacement": lambda: {
        "sampler": RandomSampler(range(N), replacement=True, generator=_seeded()),
        "batch_size": 4,
    },
    "more samples than the dataset has": lambda: {
        "sampler": RandomSampler(range(5), replacement=True, num_samples=N, generator=_seeded()),
        "batch_size": 4,
    },
    "weighted": lambda: {
        "sampler": WeightedRandomSampler([1.0, 2.0] * 7, N, generator=_seeded()),
        "batch_size": 4,
    },
    "subset": lambda: {"sampler": SubsetRandomSampler(range(3, N), generator=_seeded()), "batch_size": 4},
    "shuffle with a generator": lambda: {"shuffle": True, "generator": _seeded(), "batch_size": 4},
    "weighted, the loader's own generator": lambda: _shared_generator(_seeded()),
}


def _shared_generator(generator: torch.Generator) -> dict[str, Any]:
    sampler = WeightedRandomSampler([1.0, 2.0] * 7, N, generator=generator)
    return {"sampler": sampler, "generator": generator, "batch_size": 4}


@pytest.mark.parametrize("crew", ["inline", "1 process", slow_unless(False, "3 processes"), "4 threads"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_sampler_of_the_users_resumes(sampler: str, crew: str) -> None:
    length = 5 if sampler.startswith("more") else N
    assert_resumes_everywhere(lambda: DataLoader(Drawn(length), workers=CREWS[crew], **SAMPLERS[sampler]()))


@pytest.mark.parametrize("crew", ["1 process", "3 processes"])
@pytest.mark.parametrize("order", ["torch shuffle", "seeded shuffle"])
def test_persistent_workers_resume(order: str, crew: str) -> None:
    arguments = {**ORDERS[order], "workers": CREWS[crew], "persistent_workers": True}
    assert_resumes_everywhere(lambda: DataLoader(Drawn(N), batch_size=4, **arguments), epochs=2)


@pytest.mark.parametrize("arguments", [{"seed": 5}, {"shuffle": True}, {"sampler": Rotating}], ids=str)
def test_batches_out_of_turn_resume_without_one_lost_or_doubled(arguments: dict[str, Any]) -> None:
    def make() -> Any:
        given = {name: value(N) if callable(value) else value for name, value in arguments.items()}
        return DataLoader(Drawn(N), batch_size=2, num_workers=3, in_order=False, **given)

    assert_resumes_everywhere(make, any_order=True)


def test_a_run_resumed_several_times_in_an_epoch_is_still_the_run() -> None:
    def make() -> Any:
        return DataLoader(Drawn(N), batch_size=2, shuffle=True, num_workers=1)

    torch.manual_seed(1)
    loader = make()
    state = loader.state_dict()
    expected = [batch["index"].tolist() for batch in loader]
    seen = []
    for _ in expected:
        loader = make()
        loader.load_state_dict(state)
        seen.append(next(iter(loader))["index"].tolist())
        state = loader.state_dict()
    assert seen == expected


def test_batches_out_of_turn_resumed_several_times_are_each_handed_over_once() -> None:
    def make() -> Any:
        return DataLoader(Drawn(40), batch_size=2, seed=1, num_workers=3, in_order=False)

    loader, seen = make(), []
    for _ in range(6):
        iterator = iter(loader)
        seen += [index for _ in range(3) for index in next(iterator)["index"].tolist()]
        state = loader.state_dict()
        del iterator
        loader = make()
        loader.load_state_dict(state)
    seen += [index for batch in loader for index in batch["index"].tolist()]
    assert sorted(seen) == list(range(40))
