"""States: what was handed over, not what was prefetched."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from tests.prefetching.sources import Counting, batches, numbers
from torch.utils.data import DataLoader, TensorDataset

import stoker
from stoker import StateError, prefetch

BOTH = pytest.mark.parametrize("by", ["thread", "process"])
ROWS = torch.arange(50)


def shuffled() -> Any:
    return stoker.DataLoader(TensorDataset(ROWS), 4, shuffle=True, seed=3)


def plain() -> Any:
    return DataLoader(TensorDataset(ROWS), 4)


def flat(taken: Any) -> list[int]:
    return [int(row) for batch in taken for row in (batch if isinstance(batch, torch.Tensor) else batch[0])]


def take(iterator: Any, count: int) -> list[Any]:
    return [next(iterator) for _ in range(count)]


SOURCES: dict[str, Any] = {"stateful": Counting, "Stoker's loader": shuffled, "torch's loader": plain}


@BOTH
@pytest.mark.parametrize("rebatch", [None, 3, 7])
@pytest.mark.parametrize("kind", list(SOURCES))
def test_a_run_goes_on_from_every_step(kind: str, rebatch: int | None, by: Any) -> None:
    options: dict[str, Any] = {"batch_size": rebatch, "by": by}
    with prefetch(SOURCES[kind](), **options) as accessor:
        whole = [flat([batch]) for _ in range(2) for batch in accessor]
    steps = len(whole) // 2
    for step in {0, 1, steps // 2, steps - 1, steps}:
        with prefetch(SOURCES[kind](), **options) as accessor:
            taken = flat(take(iter(accessor), step))
            state = json.loads(json.dumps(accessor.state_dict()))
        with prefetch(SOURCES[kind](), **options) as again:
            again.load_state_dict(state)
            assert again.state_dict() == state
            rest = flat(again) + flat(again)
        assert taken + rest == [row for batch in whole for row in batch]


@BOTH
def test_between_passes_the_state_is_the_next_ones_beginning(by: Any) -> None:
    with prefetch(Counting(), by=by) as accessor:
        list(accessor)
        state = accessor.state_dict()
        following = flat(accessor)
    with prefetch(Counting(), by=by) as again:
        again.load_state_dict(state)
        assert flat(again) == following == list(range(100, 109))


@BOTH
def test_a_pass_that_was_cut_short_does_not_skip_epochs(by: Any) -> None:
    """The filler has run ahead into later epochs by then; the source is taken back to where the loop was."""
    orders = [flat(shuffled_epoch) for shuffled_epoch in _epochs(3)]
    with prefetch(shuffled(), by=by, ahead=40) as accessor:
        iterator = iter(accessor)
        take(iterator, 12)
        while accessor.stats().ready < 36:  # blocked fillers are not waited for: this one is far ahead
            pass
        del iterator
        assert flat(accessor) == orders[1]
        assert flat(accessor) == orders[2]


def _epochs(count: int) -> list[Any]:
    loader = shuffled()
    return [list(loader) for _ in range(count)]


@BOTH
def test_asking_for_the_state_takes_nothing(by: Any) -> None:
    with prefetch(Counting(), by=by) as accessor:
        state = accessor.state_dict()
        iterator = iter(accessor)
        assert accessor.state_dict()["items"]["dataset"] == state["items"]["dataset"] == {"passes": 0, "at": 0}
        assert flat(take(iterator, 2)) == [0, 1]
        assert accessor.state_dict()["items"]["dataset"] == {"passes": 0, "at": 2}


def test_a_source_without_a_state_is_walked_again() -> None:
    with prefetch(batches(5)) as accessor:
        take(iter(accessor), 2)
        state = accessor.state_dict()
    with prefetch(batches(5)) as again:
        again.load_state_dict(state)
        assert numbers(again) == [2, 3, 4]
        assert numbers(again) == [0, 1, 2, 3, 4]


def test_a_source_that_cannot_tell_its_state_still_gives_batches() -> None:
    class Secretive(Counting):
        def state_dict(self) -> dict[str, Any]:
            raise LookupError("not now")

    with prefetch(Secretive()) as accessor:
        assert flat(accessor) == list(range(9))
        with pytest.raises(StateError, match="LookupError: not now"):
            accessor.state_dict()


@pytest.mark.parametrize(
    ("state", "words"),
    [({"epoch": 1}, "no state of stoker.prefetch"), ({"version": 9, "items": {}, "rows": 0}, "version 9")],
)
def test_what_is_no_state_is_refused(state: Any, words: str) -> None:
    with pytest.raises(StateError, match=words):
        prefetch([]).load_state_dict(state)


def test_a_state_in_the_middle_of_an_inner_batch_needs_rebatch() -> None:
    with prefetch(plain(), batch_size=3) as accessor:
        next(iter(accessor))
        state = accessor.state_dict()
    assert state["rows"] == 3
    with pytest.raises(StateError, match="3 rows into a batch"):
        prefetch(plain()).load_state_dict(state)
    with prefetch(plain(), batch_size=10) as again:  # another size goes on from the same row
        again.load_state_dict(state)
        assert flat(again) == list(range(3, 50))
