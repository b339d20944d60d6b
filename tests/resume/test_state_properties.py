"""What a state is: small, plain, exact at any moment, and readable by other people's checkpoint code."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from tests.resume.state_datasets import Drawn, Forgetful, Remembers, Rotating, WithBookmark, WithPlace

import stoker
from stoker import DataLoader
from stoker.order import BlockShuffle, Mix, PreShuffled, Repeat, Shuffle

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

HUGE = 2**40
MANY = Mix([Shuffle(HUGE, seed) for seed in range(4)], (4, 3, 2, 1), "repeat")
ARITHMETIC: dict[str, dict[str, Any]] = {
    "sequential": {"seed": 2**64 - 1},
    "shuffle": {"seed": 2**64 - 1, "shuffle": True},
    "block": {"order": BlockShuffle(HUGE, 2**64 - 1)},
    "pre-shuffled": {"order": PreShuffled(HUGE, 2**64 - 1)},
    "mix": {"order": MANY},
    "repeat": {"order": Repeat(Shuffle(HUGE, 3), 2**50)},
}


def indices(batches: Any) -> list[list[int]]:
    return [batch["index"].tolist() for batch in batches]


def rest_after(state: Any, make: Any) -> list[list[int]]:
    loader = make()
    loader.load_state_dict(state)
    return indices(loader)


class Huge(Drawn):
    """As long as the order's parts together."""

    def __init__(self) -> None:
        super().__init__(4 * HUGE)


@pytest.mark.parametrize("name", ARITHMETIC)
def test_a_state_is_below_a_kilobyte_whatever_the_length(name: str) -> None:
    loader = DataLoader(Huge(), batch_size=4, **ARITHMETIC[name])
    assert len(json.dumps(loader.state_dict())) < 1024
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    state.update(epoch=10**9, position=HUGE - HUGE % 4, batches=HUGE // 4)
    assert len(json.dumps(state)) < 1024
    loader.load_state_dict(state)


def test_a_state_of_torchs_shuffle_is_below_a_kilobyte() -> None:
    loader = DataLoader(Drawn(100_000), batch_size=4, shuffle=True)
    next(iter(loader))
    assert len(json.dumps(loader.state_dict())) < 1024


@pytest.mark.parametrize("prefetch_factor", [1, 2, 7])
@pytest.mark.parametrize("taken", [0, 1, 5])
def test_only_what_was_handed_over_counts(taken: int, prefetch_factor: int) -> None:
    def make() -> Any:
        return DataLoader(Drawn(40), batch_size=2, seed=3, shuffle=True, num_workers=2, prefetch_factor=prefetch_factor)

    loader = make()
    iterator = iter(loader)
    for _ in range(taken):
        next(iterator)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"], state["position"]) == (0, taken, 2 * taken)
    assert rest_after(state, make) == indices(iterator)


def test_a_state_is_asked_for_after_break_and_after_the_iterator_is_gone() -> None:
    def make() -> Any:
        return DataLoader(Drawn(12), batch_size=2, shuffle=True)

    loader, seen = make(), []
    for batch in loader:
        seen += batch["index"].tolist()
        if len(seen) == 6:
            break
    rest = rest_after(loader.state_dict(), make)
    assert sorted(seen + [index for batch in rest for index in batch]) == list(range(12))


def test_a_state_does_not_change_when_the_run_goes_on() -> None:
    for make in (
        lambda: DataLoader(Drawn(12), batch_size=2, sampler=Rotating(12)),
        lambda: DataLoader(WithPlace(12), batch_size=2),
        lambda: DataLoader(WithBookmark(12), batch_size=2, num_workers=2),
        lambda: DataLoader(Remembers(12), batch_size=2, num_workers=1),
    ):
        loader = make()
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        kept = json.dumps(state)
        list(iterator)
        assert json.dumps(state) == kept


def test_loading_a_state_keeps_it_and_gives_it_back() -> None:
    loader = DataLoader(Drawn(12), batch_size=2, seed=3)
    next(iter(loader))
    state = loader.state_dict()
    kept = json.dumps(state)
    other = DataLoader(Drawn(12), batch_size=2, seed=3)
    other.load_state_dict(state)
    assert other.state_dict() == state
    list(other)
    assert json.dumps(state) == kept


def test_a_state_loaded_in_the_middle_of_a_run_takes_it_back() -> None:
    for persistent in (False, True):
        loader = DataLoader(Drawn(12), batch_size=2, seed=3, shuffle=True, num_workers=1, persistent_workers=persistent)
        iterator = iter(loader)
        first = next(iterator)["index"].tolist()
        state = loader.state_dict()
        rest = indices(iterator)
        loader.load_state_dict(state)
        assert indices(loader) == rest
        assert first not in rest


def test_epochs_count_on_after_a_resume() -> None:
    def make() -> Any:
        return DataLoader(Drawn(8), batch_size=4, seed=3, shuffle=True)

    loader = make()
    epochs = [indices(loader) for _ in range(4)]
    assert len({str(epoch) for epoch in epochs}) == 4
    loader = make()
    list(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (1, 0)
    resumed = make()
    resumed.load_state_dict(state)
    assert [indices(resumed) for _ in range(3)] == epochs[1:]


def test_torch_saves_and_loads_a_state_without_pickle() -> None:
    for loader in (
        DataLoader(Drawn(12), batch_size=2, seed=3),
        DataLoader(Drawn(12), batch_size=2, shuffle=True),
        DataLoader(Drawn(12), batch_size=2, shuffle=True, generator=torch.Generator()),
        DataLoader(WithBookmark(12), batch_size=2, num_workers=2),
    ):
        next(iter(loader))
        state, file = loader.state_dict(), io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        assert torch.load(file, weights_only=True) == state


def _makers() -> dict[str, Any]:
    return {
        "arithmetic": lambda: DataLoader(Drawn(12), batch_size=2, seed=3, shuffle=True),
        "torch": lambda: DataLoader(Drawn(12), batch_size=2, shuffle=True),
        "iterable": lambda: DataLoader(WithBookmark(12), batch_size=2),
        "iterable without a state": lambda: DataLoader(Forgetful(12), batch_size=2, num_workers=2),
        "sampler": lambda: DataLoader(Drawn(12), batch_size=2, sampler=Rotating(12)),
    }


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["arithmetic", "torch"])
def test_torchs_distributed_checkpoint_stores_the_loader_itself(kind: str, tmp_path: Path) -> None:
    make = _makers()[kind]
    loader = make()
    iterator = iter(loader)
    next(iterator)
    dcp.save({"loader": loader}, checkpoint_id=tmp_path, no_dist=True)
    rest = indices(iterator)
    resumed = make()
    dcp.load({"loader": resumed}, checkpoint_id=tmp_path, no_dist=True)
    assert indices(resumed) == rest


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", _makers())
def test_torchs_distributed_checkpoint_stores_any_state_as_bytes(kind: str, tmp_path: Path) -> None:
    make = _makers()[kind]
    loader = make()
    iterator = iter(loader)
    next(iterator)
    dcp.save({"loader": json.dumps(loader.state_dict())}, checkpoint_id=tmp_path, no_dist=True)
    rest = pickle.dumps([_plain(batch) for batch in iterator])
    found = {"loader": ""}
    dcp.load(found, checkpoint_id=tmp_path, no_dist=True)
    resumed = make()
    resumed.load_state_dict(json.loads(found["loader"]))
    assert pickle.dumps([_plain(batch) for batch in resumed]) == rest


def _plain(batch: Any) -> Any:
    if isinstance(batch, dict):
        return batch["index"].tolist()
    return batch.tolist() if isinstance(batch, torch.Tensor) else [column.tolist() for column in batch]


# Leaving out steps.


@pytest.mark.parametrize("taken", [0, 3])
@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize(
    "arguments",
    [{"seed": 3, "shuffle": True}, {"order": Repeat(Shuffle(20, 1), 50)}, {"order": Shuffle(15, 1)}],
    ids=["shuffle", "more than the dataset", "less than the dataset"],
)
def test_skip_leaves_out_exactly_these_steps(arguments: dict[str, Any], steps: int, taken: int) -> None:
    def make() -> Any:
        return DataLoader(Drawn(20), batch_size=2, **arguments)

    expected = indices(make())
    loader = make()
    iterator = iter(loader)
    for _ in range(taken):
        next(iterator)
    state = loader.state_dict()
    kept = json.dumps(state)
    assert rest_after(stoker.skip(state, steps=steps), make) == expected[taken + steps :]
    assert json.dumps(state) == kept


def test_skip_of_torchs_shuffle_takes_the_steps_size_from_the_batches_so_far() -> None:
    def make() -> Any:
        return DataLoader(Drawn(20), batch_size=2, shuffle=True)

    loader = make()
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = indices(iterator)
    assert rest_after(stoker.skip(state, steps=4), make) == rest[4:]
    with pytest.raises(stoker.StateError, match="samples_per_step"):
        stoker.skip(make().state_dict(), steps=4)
    fresh = make()
    state = fresh.state_dict()
    assert rest_after(stoker.skip(state, steps=4, samples_per_step=2), make) == indices(fresh)[4:]


def test_skip_is_the_same_for_any_number_of_ranks() -> None:
    def rank(number: int, world: int) -> Any:
        return DataLoader(Drawn(96), batch_size=24 // world, seed=3, shuffle=True, shard=(number, world))

    loader = rank(0, 4)
    next(iter(loader))
    state = stoker.skip(loader.state_dict(), steps=1)
    for number in range(2):
        assert rest_after(state, lambda number=number: rank(number, 2)) == indices(rank(number, 2))[2:]


@pytest.mark.parametrize("steps", [-1, 1.5, True, "3"])
def test_skip_refuses_what_is_not_a_number_of_steps(steps: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"steps should be (a whole number|at least 0), but got"):
        stoker.skip(DataLoader(Drawn(4), seed=1).state_dict(), steps=steps)


def test_skip_refuses_a_state_that_only_a_sampler_or_dataset_can_move() -> None:
    for loader in (DataLoader(WithPlace(12)), DataLoader(Drawn(12), sampler=Rotating(12))):
        next(iter(loader))
        with pytest.raises(stoker.StateError, match="own state"):
            stoker.skip(loader.state_dict(), steps=1)
