"""A trainer that counts epochs itself is understood: before `iter()`, after it, and after a state was loaded."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed
from torch.utils.data import BatchSampler, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

from stoker import DataLoader, StateError, Workers, rng
from stoker.order import Shuffle

N, BATCH = 14, 4  # three full steps and a short one


class Drawn(torch.utils.data.Dataset[torch.Tensor]):
    """A sample says which it is, and what its own generator gave it."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, rng().random()], dtype=torch.float64)


class Counting(IterableDataset[int]):
    def __len__(self) -> int:
        return N

    def __iter__(self) -> Any:
        return iter(range(N))


CREWS: dict[str, Any] = {"inline": Workers(0), "process": Workers(1), "threads": Workers(0, lanes=2)}
LOADERS: dict[str, Callable[..., Any]] = {
    "seeded": lambda **more: DataLoader(Drawn(), BATCH, shuffle=True, seed=5, **more),
    "sequential": lambda **more: DataLoader(Drawn(), BATCH, seed=None, **more),
    "generator": lambda **more: DataLoader(
        Drawn(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(3), **more
    ),
    "on a device": lambda **more: DataLoader(Drawn(), BATCH, shuffle=True, seed=5, device="cpu", **more),
    "sampler": lambda **more: DataLoader(Drawn(), BATCH, sampler=DistributedSampler(range(N), 1, 0), seed=5, **more),  # type: ignore[arg-type, var-annotated]
}


def batches(iterator: Any) -> list[Any]:
    return [batch.tolist() for batch in iterator]


def told(loader: Any, epoch: int, after_iter: bool) -> list[Any]:
    """A pass as a trainer makes it: it stops when it has counted enough batches, and never sees the end."""
    if after_iter:
        iterator = iter(loader)
        loader.set_epoch(epoch)
    else:
        loader.sampler.set_epoch(epoch)
        iterator = iter(loader)
    return [next(iterator).tolist() for _ in range(len(loader))]


@pytest.fixture(params=CREWS)
def crew(request: pytest.FixtureRequest) -> Workers:
    return CREWS[request.param]


@pytest.mark.parametrize("kind", ["seeded", "sampler", "on a device"])
def test_an_epoch_told_after_iter_is_the_one_told_before_it(kind: str, crew: Workers) -> None:
    before, after = (told(LOADERS[kind](workers=crew), 7, late) for late in (False, True))
    assert [[row[0] for row in batch] for batch in after] == [[row[0] for row in batch] for batch in before]
    if kind != "sampler":  # and so is what samples drew
        assert after == before
        assert [row[0] for batch in after for row in batch] == Shuffle(N, 5).indices(range(N), 7).tolist()


def test_a_state_at_an_epochs_end_does_not_cost_the_trainer_its_next_epoch(crew: Workers) -> None:
    def make() -> Any:
        return LOADERS["seeded"](workers=crew)

    whole = make()
    first, second = (told(whole, epoch, after_iter=True) for epoch in (0, 1))
    loader = make()
    assert told(loader, 0, after_iter=True) == first
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert told(resumed, 1, after_iter=True) == second


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("stop", [1, 3, 4])
def test_a_run_under_a_trainer_goes_on_exactly(kind: str, stop: int, crew: Workers) -> None:
    """Stopped in the middle of its second epoch, before its last batch, and at its end."""

    def make() -> Any:
        torch.manual_seed(1)  # what torch's order without a generator is drawn from, and the workers' seeds
        return LOADERS[kind](workers=crew)

    def indices(seen: list[Any]) -> list[Any]:
        return [[row[0] for row in batch] for batch in seen]

    whole = make()
    expected = [told(whole, epoch, after_iter=epoch == 0) for epoch in range(3)]
    loader = make()
    told(loader, 0, after_iter=True)
    loader.sampler.set_epoch(1)
    iterator = iter(loader)
    for _ in range(stop):
        next(iterator)
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    rest = iter(resumed)
    resumed.sampler.set_epoch(1 if stop < 4 else 2)
    seen = [next(rest).tolist() for _ in range(4 - stop or 4)]
    assert indices(seen) == indices((expected[1] + expected[2])[stop:][: len(seen)])
    if stop < 4:
        assert indices(told(resumed, 2, after_iter=False)) == indices(expected[2])


def test_a_short_loader_that_goes_round_within_an_epoch_keeps_its_round() -> None:
    def make() -> Any:
        return LOADERS["seeded"]()

    whole = make()
    rounds = [told(whole, 0, after_iter=True), batches(whole), batches(whole)]
    assert len({json.dumps(each) for each in rounds}) == 3
    loader = make()
    told(loader, 0, after_iter=True)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    assert (state["epoch"], state["told"]) == (1, 0)
    resumed = make()
    resumed.load_state_dict(state)
    rest = iter(resumed)
    resumed.sampler.set_epoch(0)  # the trainer's epoch is still the first
    assert batches(rest) == rounds[1][1:]
    assert batches(resumed) == rounds[2]


def test_a_trainer_that_counts_from_0_in_every_process_goes_on_where_the_state_was() -> None:
    def make() -> Any:
        return LOADERS["seeded"]()

    whole = make()
    passes = [told(whole, epoch, after_iter=False) for epoch in range(5)]
    loader = make()
    loader.set_epoch(2)
    iterator = iter(loader)
    next(iterator)
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    resumed.set_epoch(0)
    assert batches(resumed) == passes[2][1:]
    assert [told(resumed, epoch, after_iter=False) for epoch in (1, 2)] == passes[3:]


def test_a_state_says_the_trainers_epoch_only_where_it_differs() -> None:
    loader = LOADERS["seeded"]()
    told(loader, 3, after_iter=False)
    state = loader.state_dict()
    assert state["epoch"] == 3
    assert "told" not in state


class CountsItself(torch.utils.data.Sampler[int]):
    """Has a `set_epoch`, and goes to the next epoch by itself whenever it is asked for its indices."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Any:
        self.epoch += 1
        yield from torch.randperm(N, generator=torch.Generator().manual_seed(self.epoch)).tolist()


def test_a_sampler_that_counts_its_passes_is_asked_once_for_each(crew: Workers) -> None:
    def make() -> Any:
        return DataLoader(range(N), BATCH, sampler=CountsItself(), workers=crew)  # type: ignore[arg-type]

    whole = make()
    passes = [batches(whole) for _ in range(3)]
    assert [[index for batch in each for index in batch] for each in passes] == [
        torch.randperm(N, generator=torch.Generator().manual_seed(epoch)).tolist() for epoch in (1, 2, 3)
    ]
    loader = make()
    batches(loader)
    iterator = iter(loader)
    next(iterator)
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    assert batches(resumed) == passes[1][1:]
    assert batches(resumed) == passes[2]


@pytest.mark.parametrize("wrong", [-1, "1", 1.5, True, 2**63])
def test_a_trainers_epoch_that_is_none_is_refused(wrong: Any) -> None:
    state = LOADERS["seeded"]().state_dict()
    with pytest.raises(StateError, match="told"):
        LOADERS["seeded"]().load_state_dict({**state, "told": wrong})


def test_an_iterable_that_was_at_its_end_begins_the_epoch_that_is_told(crew: Workers) -> None:
    workers = Workers(0) if crew.lanes > 1 else crew
    loader = DataLoader(Counting(), BATCH, workers=workers)
    first = told(loader, 0, after_iter=True)
    resumed = DataLoader(Counting(), BATCH, workers=workers)
    resumed.load_state_dict(loader.state_dict())
    assert told(resumed, 1, after_iter=True) == first


def test_persistent_workers_that_were_resumed_begin_the_next_epoch_at_its_start() -> None:
    """The first pass is left at once, so that a worker may hear of the second epoch before it has begun the first."""
    arguments: dict[str, Any] = {"batch_size": BATCH, "num_workers": 2, "persistent_workers": True}
    loader = DataLoader(Counting(), **arguments)
    iterator = iter(loader)
    whole = [next(iterator).tolist() for _ in range(8)]
    state = loader.state_dict()
    for _ in range(5):
        resumed = DataLoader(Counting(), **arguments)
        resumed.load_state_dict(state)
        iter(resumed)
        assert batches(resumed) == whole


@pytest.mark.parametrize(("arguments", "kind"), [({}, SequentialSampler), ({"shuffle": True}, RandomSampler)])
def test_torchs_samplers_keep_their_types(arguments: Any, kind: type) -> None:
    loader = DataLoader(Drawn(), BATCH, **arguments)
    assert type(loader.sampler) is kind
    assert type(loader.batch_sampler) is BatchSampler


def test_a_list_as_a_sampler_is_left_alone() -> None:
    loader = DataLoader(range(N), BATCH, sampler=[3, 1, 2])  # type: ignore[arg-type]
    assert batches(loader) == [[3, 1, 2]]


@pytest.mark.parametrize("kind", LOADERS)
def test_a_loader_that_was_used_can_be_pickled(kind: str) -> None:
    loader = LOADERS[kind]()
    first = batches(loader)
    copied = pickle.loads(pickle.dumps(loader))
    assert len(batches(copied)) == len(first)


class TestRanksThatStartLater:
    """A loader is made before its ranks exist: trainers are handed loaders first and start their ranks afterwards."""

    def test_the_rank_is_looked_up_when_a_pass_begins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loader = DataLoader(range(24), 4, shuffle=True, seed=5)  # type: ignore[arg-type]
        assert len(loader) == 6
        expected = DataLoader(range(24), 4, shuffle=True, seed=5, shard=(1, 3))  # type: ignore[arg-type]
        self.join(monkeypatch, 1, 3)
        assert len(loader) == 2
        assert (loader.sampler.rank, loader.sampler.num_replicas) == (1, 3)  # type: ignore[attr-defined]
        assert batches(loader) == batches(expected)

    def test_a_pass_keeps_the_ranks_it_began_with(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loader = DataLoader(range(24), 4, shuffle=True, seed=5)  # type: ignore[arg-type]
        whole, iterator = batches(loader), iter(DataLoader(range(24), 4, shuffle=True, seed=5))  # type: ignore[arg-type]
        first = next(iterator).tolist()
        self.join(monkeypatch, 1, 3)
        assert [first, *batches(iterator)] == whole

    def test_a_given_shard_stays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loader = DataLoader(range(24), 4, seed=5, shard=(0, 2))  # type: ignore[arg-type]
        self.join(monkeypatch, 1, 3)
        assert (loader.sampler.rank, len(loader)) == (0, 3)  # type: ignore[attr-defined]

    @staticmethod
    def join(monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> None:
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: world)


class TestLoadersMadeAnewByATrainer:
    """Trainers call the class again with all its arguments and a sampler of their own, and say shuffle=False."""

    @pytest.mark.parametrize("own", [{"order": "shuffle"}, {"seed": 3, "last": "even"}, {"seed": 3, "shard": (0, 2)}])
    def test_their_sampler_takes_the_place_of_the_order(self, own: Any) -> None:
        loader = DataLoader(range(6), 2, sampler=SequentialSampler(range(6)), shuffle=False, **own)  # type: ignore[arg-type]
        assert batches(loader) == [[0, 1], [2, 3], [4, 5]]

    def test_their_batch_sampler_is_asked_for_every_batch(self) -> None:
        asked = []

        class Watched(BatchSampler):
            def __iter__(self) -> Any:
                for batch in super().__iter__():
                    asked.append(batch)
                    yield batch

        seeded = DataLoader(range(6), 2, shuffle=True, seed=3)  # type: ignore[arg-type]
        watched = Watched(seeded.sampler, 2, False)
        loader = DataLoader(range(6), batch_sampler=watched, shuffle=False, seed=3)  # type: ignore[arg-type]
        assert batches(loader) == asked == batches(seeded)

    def test_a_person_who_gives_both_is_still_told(self) -> None:
        with pytest.raises(ValueError, match="one or the other"):
            DataLoader(range(6), 2, sampler=SequentialSampler(range(6)), order="shuffle")  # type: ignore[arg-type]
