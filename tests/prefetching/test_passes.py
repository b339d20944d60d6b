"""Passes over an accessor: whole, one after the other, cut short, shared, of any kind of source."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from typing import Any

import pytest
import torch
from tests.prefetching.sources import OldSequence, Telling, Unbounded, batch, batches, numbers
from torch.utils.data import DataLoader, TensorDataset

import stoker
from stoker import prefetch

BOTH = pytest.mark.parametrize("by", ["thread", "process"])


@BOTH
@pytest.mark.parametrize("across_epochs", [True, False])
@pytest.mark.parametrize("ahead", [1, 3, 40])
def test_every_pass_is_whole_and_in_order(by: Any, across_epochs: bool, ahead: int) -> None:
    with prefetch(batches(5), ahead=ahead, across_epochs=across_epochs, by=by) as accessor:
        assert [numbers(accessor) for _ in range(3)] == [[0, 1, 2, 3, 4]] * 3


@BOTH
def test_spinning_instead_of_blocking_gives_the_same(by: Any) -> None:
    with prefetch(batches(5), by=by, spin=True) as accessor:
        assert numbers(accessor) == [0, 1, 2, 3, 4]


@BOTH
def test_batches_that_are_kept_never_change(by: Any) -> None:
    with prefetch(batches(12), by=by, ahead=2) as accessor:
        kept = [*accessor, *accessor, *accessor]  # more than are lent as views: the others are copies
    assert numbers(kept) == [*range(12)] * 3


@BOTH
def test_an_iterator_is_an_iterator(by: Any) -> None:
    with prefetch(batches(5), by=by) as accessor:
        iterator = iter(accessor)
        assert iter(iterator) is iterator
        assert numbers([next(iterator)]) == [0]
        assert numbers(iterator) == [1, 2, 3, 4]  # a loop goes on where it was, it does not begin again
        assert list(iterator) == []


@BOTH
def test_a_new_iterator_begins_anew_after_a_break(by: Any) -> None:
    with prefetch(batches(5), by=by) as accessor:
        for taken in range(1, 5):
            for _, _ in zip(range(taken), accessor, strict=False):
                pass
            assert numbers(accessor) == [0, 1, 2, 3, 4]


@BOTH
def test_two_iterators_are_independent(by: Any) -> None:
    with prefetch(batches(5), by=by) as accessor:
        first = iter(accessor)
        assert numbers([next(first), next(first)]) == [0, 1]
        second = iter(accessor)
        assert numbers([next(second)]) == [0]
        assert numbers(first) == [2, 3, 4]
        assert numbers(second) == [1, 2, 3, 4]
        assert numbers(accessor) == [0, 1, 2, 3, 4]


def test_an_iterator_outlives_its_accessor() -> None:
    assert numbers(iter(prefetch(batches(5)))) == [0, 1, 2, 3, 4]


@BOTH
def test_threads_share_an_iterator(by: Any) -> None:
    taken: list[list[torch.Tensor]] = [[], [], []]
    with prefetch(batches(30), by=by) as accessor:
        iterator = iter(accessor)
        threads = [threading.Thread(target=mine.extend, args=(iterator,)) for mine in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(number for mine in taken for number in numbers(mine)) == list(range(30))
    assert all(numbers(mine) == sorted(numbers(mine)) for mine in taken)


SOURCES: dict[str, Any] = {
    "a list": lambda: batches(5),
    "a function that makes a generator": lambda: lambda: (batch(number) for number in range(5)),
    "a sequence that raises IndexError": lambda: OldSequence(5),
    "a sequence that raises StopIteration": lambda: OldSequence(5, StopIteration),
    "a dataset that trusts its length": lambda: Unbounded(),
    "torch's loader": lambda: DataLoader(Unbounded(), batch_size=None),
    "torch's loader with workers": lambda: DataLoader(Unbounded(), batch_size=None, num_workers=2),
    "Stoker's loader": lambda: stoker.DataLoader(Unbounded(), batch_size=None, num_workers=1),
}


@BOTH
@pytest.mark.parametrize("kind", list(SOURCES))
def test_any_source_can_be_gone_over_twice(by: Any, kind: str) -> None:
    with prefetch(SOURCES[kind](), by=by) as accessor:
        assert numbers(accessor) == [0, 1, 2, 3, 4]
        assert numbers(accessor) == [0, 1, 2, 3, 4]


@BOTH
def test_a_generator_gives_one_pass_and_says_so(by: Any) -> None:
    with prefetch((batch(number) for number in range(5)), by=by) as accessor:
        assert numbers(accessor) == [0, 1, 2, 3, 4]
        with pytest.raises(RuntimeError, match=r"used up by the first pass.*prefetch\(lambda"):
            list(accessor)


@BOTH
def test_an_empty_source_gives_empty_passes(by: Any) -> None:
    with prefetch([], by=by) as accessor:
        assert [list(accessor), list(accessor)] == [[], []]


@pytest.mark.parametrize("source", [None, 5, object()])
def test_what_cannot_be_gone_over_is_refused_at_once(source: Any) -> None:
    with pytest.raises(TypeError, match="a loader, an iterable, or a function"):
        prefetch(source)


def test_the_filler_is_no_worker_to_a_dataset() -> None:
    with prefetch(Telling(), by="process") as accessor:
        assert list(accessor) == [-1]


@BOTH
def test_batches_arrive_as_they_are(by: Any) -> None:
    given: dict[str, Any] = {"text": ["a", "b"], "nested": ({"x": torch.arange(4)}, 3.5), "none": None}
    with prefetch([given, None, 7], by=by) as accessor:
        taken, *others = accessor
    assert others == [None, 7]
    assert torch.equal(taken["nested"][0].pop("x"), torch.arange(4))
    assert taken == {"text": ["a", "b"], "nested": ({}, 3.5), "none": None}


def test_length_is_the_sources() -> None:
    assert len(prefetch(batches(5))) == 5
    assert len(prefetch(DataLoader(TensorDataset(torch.arange(10)), 4))) == 3
    with pytest.raises(TypeError, match="'Telling' has no len"):
        len(prefetch(Telling()))


class Broken:
    def __iter__(self) -> Any:
        yield batch(0)
        raise LookupError


@BOTH
@pytest.mark.parametrize("source", [batches(5), Broken()], ids=["whole", "broken"])
def test_a_dropped_accessor_is_gone_at_once_without_the_collector(by: Any, source: Any) -> None:
    gc.collect()
    gc.disable()
    try:
        accessor = prefetch(source, by=by)
        with contextlib.suppress(LookupError):
            list(accessor)
        with contextlib.suppress(LookupError):
            next(iter(accessor))
        ring = accessor._ring
        assert ring is not None
        gone = [weakref.ref(thing) for thing in (accessor, ring, ring._crew)]
        del accessor, ring
        assert [reference() for reference in gone] == [None] * 3
    finally:
        gc.enable()


@BOTH
def test_a_closed_accessor_says_so_and_its_batches_live_on(by: Any) -> None:
    accessor = prefetch(batches(5), by=by)
    iterator = iter(accessor)
    kept = next(iterator)
    accessor.close()
    accessor.terminate()
    assert numbers([kept]) == [0]
    with pytest.raises(RuntimeError, match="was closed"):
        next(iterator)
    with pytest.raises(RuntimeError, match="was closed"):
        iter(accessor)
