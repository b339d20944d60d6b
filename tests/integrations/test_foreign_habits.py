"""What other libraries do to a loader beside iterating: their habits, each in a few lines, without their packages."""

from __future__ import annotations

import multiprocessing.context
import pickle
import threading
from typing import Any

import pytest
import torch
from tests.datasets import Made, SizedNumbers, number
from torch.utils.data.dataloader import _BaseDataLoaderIter

import stoker
from stoker import StateError, Workers

DATA = Made(12, number)
KINDS: dict[str, dict[str, Any]] = {
    "inline": {},
    "threads": {"workers": Workers(threads=2)},
    "processes": {"num_workers": 1},
    "persistent": {"num_workers": 1, "persistent_workers": True},
    "on a device": {"device": "cpu"},
}


def taken(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


class Combined:
    """As Lightning's CombinedLoader: holds iterators, and leaves torch's out of what is pickled."""

    def __init__(self, *iterators: Any) -> None:
        self.iterators = list(iterators)

    def __getstate__(self) -> dict[str, Any]:
        return {"iterators": [None if isinstance(one, _BaseDataLoaderIter) else one for one in self.iterators]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_under_way_is_left_out_of_a_pickle_like_torchs(kind: str) -> None:
    loader = stoker.DataLoader(DATA, 4, **KINDS[kind])
    batches = iter(loader)
    next(batches)
    assert pickle.loads(pickle.dumps(Combined(batches))).iterators == [None]
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        pickle.dumps(batches)
    assert taken(batches) == [[4, 5, 6, 7], [8, 9, 10, 11]]


def test_a_loader_on_its_way_to_a_device_is_left_out_too() -> None:
    batches = iter(stoker.to_device(torch.utils.data.DataLoader(DATA, 4), "cpu"))
    next(batches)
    assert pickle.loads(pickle.dumps(Combined(batches))).iterators == [None]


class SelfMade(stoker.DataLoader[Any]):
    """As torchdata's StatefulDataLoader where our class was put in torch's place: it never calls our constructor."""

    def __init__(self, dataset: Any, batch_size: int, num_workers: int = 0) -> None:
        self.__dict__.update(vars(torch.utils.data.DataLoader(dataset, batch_size, num_workers=num_workers)))


class IteratesItself(SelfMade):
    def __iter__(self) -> Any:
        return iter([self.dataset[index] for index in batch] for batch in self.batch_sampler)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_subclass_that_never_calls_the_constructor_works(num_workers: int) -> None:
    loader = SelfMade(DATA, 4, num_workers)
    assert len(loader) == 3
    assert taken(loader) == taken(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert loader.stats().steps == 6


def test_a_subclass_that_does_everything_itself_works() -> None:
    loader = IteratesItself(DATA, 4)
    assert len(loader) == len(pickle.loads(pickle.dumps(loader))) == 3
    assert next(iter(loader)) == [0, 1, 2, 3]


class ThreadAsProcess(threading.Thread):
    """As MONAI's: a thread that looks like a process to torch's loader. It has no sentinel."""

    @property
    def pid(self) -> int:
        return id(self)


class ThreadContext(multiprocessing.context.SpawnContext):
    _name = "processthread"
    Process = ThreadAsProcess  # type: ignore[assignment]


class WhichThread(Made):
    def __getitem__(self, index: int) -> int:
        assert multiprocessing.parent_process() is None
        return int(threading.current_thread() is not threading.main_thread()) * 100 + index


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_a_context_whose_processes_are_threads_gives_threads(num_workers: int) -> None:
    options: dict[str, Any] = {"persistent_workers": False, "prefetch_factor": 2}
    loader = stoker.DataLoader(
        WhichThread(12, number), 4, num_workers=num_workers, multiprocessing_context=ThreadContext(), **options
    )
    assert [[sample % 100 for sample in batch] for batch in taken(loader)] == taken(stoker.DataLoader(DATA, 4))
    if num_workers > 1:
        assert {sample // 100 for batch in taken(loader) for sample in batch} == {1}
    assert (loader.num_workers, loader.multiprocessing_context) == (0, None)


def test_threads_do_not_share_an_iterable() -> None:
    with pytest.raises(ValueError, match="threads for processes"):
        stoker.DataLoader(SizedNumbers(3), num_workers=2, multiprocessing_context=ThreadContext())


class Saveable(stoker.DataLoader[Any]):
    """As SpeechBrain's SaveableDataLoader, whose patch of torch's iterator heeds this number."""

    _speechbrain_recovery_skip_to: int | None = None


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_that_a_patched_iterator_should_begin_is_refused(kind: str) -> None:
    loader = Saveable(DATA, 4, **KINDS[kind])
    loader._speechbrain_recovery_skip_to = 2
    with pytest.raises(StateError, match=r"go on after 2 batches.*torch's loader"):
        iter(loader)
    loader._speechbrain_recovery_skip_to = None
    assert len(list(loader)) == 3


def test_an_iterator_tells_how_many_batches_it_gave() -> None:
    loader = stoker.DataLoader(DATA, 4)
    batches = iter(loader)
    next(batches)
    assert batches._num_yielded == 1
