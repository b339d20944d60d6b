"""Errors of the user's code come back as themselves, one batch at a time; bad input is refused in torch's types."""

from __future__ import annotations

import asyncio
import os
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.comparing import outcomes, tried
from tests.datasets import Awaited, InRuns, Made, Numbers, number, picture
from tests.faults.hanging import outcome_of
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

import stoker
from stoker import Workers

FORK: dict[str, Any] = {"multiprocessing_context": "fork"}
CREWS = [Workers(), Workers(0, 3), Workers(2, 1, "fork"), Workers(2, 3, "fork"), Workers(2, 3, "fork", "rows")]
each_crew = pytest.mark.parametrize("workers", CREWS, ids=str)


class Odd(Exception):
    """Cannot be made from one text."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one, two)


def spoilt(error: Any) -> Any:
    def make(index: int) -> int:
        if index == 5:
            raise error
        return index

    return make


ERRORS = [KeyError("missing"), KeyError(("a", 1)), ValueError("two\nlines"), Odd(1, 2), OSError(2, "no file", "x"),
          IndexError("gone"), UnicodeDecodeError("utf-8", b"x", 0, 1, "why"), StopIteration("early"),
          ZeroDivisionError(), AssertionError("claim")]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_workers_error_has_torchs_type_and_traceback_and_the_next_batches_come(error: Exception) -> None:
    dataset = Made(12, spoilt(error))
    expected = outcomes(DataLoader(dataset, 2, num_workers=1, **FORK))
    found = outcomes(stoker.DataLoader(dataset, 2, num_workers=2, **FORK))
    assert found == expected


@each_crew
def test_an_error_spoils_its_own_batch_only(workers: Workers) -> None:
    found = outcomes(stoker.DataLoader(Made(40, spoilt(ValueError("spoilt"))), 2, workers=workers))
    expected = outcomes(DataLoader(Made(40, spoilt(ValueError("spoilt"))), 2))
    assert found == expected


def test_the_text_of_a_workers_error_shows_where_it_happened() -> None:
    with pytest.raises(KeyError) as caught:
        list(stoker.DataLoader(Made(12, spoilt(KeyError("missing"))), 2, num_workers=2, **FORK))
    text = str(caught.value)
    assert text.startswith("Caught KeyError in DataLoader worker process ")
    assert "Original Traceback (most recent call last):\n" in text
    assert "raise error\n" in text


@pytest.mark.parametrize(
    "ending", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("workers", [Workers(0, 3), Workers(2, 1, "fork"), Workers(2, 3, "fork")], ids=str)
def test_a_sample_that_ends_its_lane_is_an_error_and_not_a_hang(ending: BaseException, workers: Workers) -> None:
    loader = stoker.DataLoader(Made(12, spoilt(ending)), 2, workers=workers)
    assert outcome_of(lambda: list(loader)) in ("WorkerDied", "RuntimeError", type(ending).__name__)


def test_after_an_interrupt_inside_a_sample_nothing_is_lost_silently() -> None:
    interrupts = [KeyboardInterrupt()]

    def make(index: int) -> int:
        if index == 2 and interrupts:
            raise interrupts.pop()
        return index

    loader = stoker.DataLoader(Made(6, make), 2)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    for _ in range(2):
        with pytest.raises(stoker.PassInterrupted, match=r"interrupted by KeyboardInterrupt.*after 1 batches"):
            next(iterator)
    loader.load_state_dict(loader.state_dict())
    assert [batch.tolist() for batch in loader] == [[2, 3], [4, 5]]


class Cancelled(Awaited):
    async def __agetitem__(self, index: int) -> Any:
        if index == 5:
            raise asyncio.CancelledError
        return index


@pytest.mark.parametrize("workers", [Workers(0, 3), Workers(2, 1, "fork"), Workers(2, 3, "fork")], ids=str)
def test_a_sample_that_was_cancelled_is_an_error_and_not_a_hang(workers: Workers) -> None:
    loader = stoker.DataLoader(Cancelled(12), 2, workers=workers)
    assert outcome_of(lambda: list(loader)) in ("WorkerDied", "RuntimeError", "CancelledError")


class Crowded(Awaited):
    """Notes how many samples are awaited at the same time."""

    now = top = 0

    async def __agetitem__(self, index: int) -> int:
        self.now += 1
        self.top = max(self.top, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return self.top


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_no_more_samples_are_awaited_at_a_time_than_there_are_lanes(lanes: int) -> None:
    loader = stoker.DataLoader(Crowded(64), 16, workers=Workers(1, lanes, "fork"))
    assert int(torch.cat(list(loader)).max()) <= lanes


def broken_init(worker: int) -> None:
    raise ValueError(f"worker {worker} is not well")


class BrokenIterable(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        raise ValueError("no beginning")


class BrokenLater(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(5)
        raise ValueError("no end")


def test_an_error_of_worker_init_fn_is_raised() -> None:
    with pytest.raises(ValueError, match=r"(?s)worker process \d.*worker \d is not well"):
        next(iter(stoker.DataLoader([1, 2], num_workers=2, worker_init_fn=broken_init, **FORK)))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterable_that_cannot_begin_is_an_error(workers: int) -> None:
    with pytest.raises(ValueError, match="no beginning"):
        list(stoker.DataLoader(BrokenIterable(), 2, num_workers=workers))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterable_that_breaks_ends_as_torchs_does(workers: int) -> None:
    expected = outcomes(DataLoader(BrokenLater(), 2, num_workers=workers))
    assert outcomes(stoker.DataLoader(BrokenLater(), 2, num_workers=workers)) == expected


def _lambda(batch: Any) -> Any:
    return lambda: batch


def test_a_batch_that_cannot_be_pickled_is_an_error_of_its_own() -> None:
    found = outcomes(stoker.DataLoader([1, 2, 3, 4], 2, num_workers=1, collate_fn=_lambda, **FORK))
    assert [said[0] for said in found] == ["raised", "raised"]
    assert "pickle" in found[0][2]


def test_samples_of_a_local_class_are_a_pickling_error_for_every_batch() -> None:
    local = namedtuple("local", "x")
    found = outcomes(stoker.DataLoader(Made(8, local), 2, num_workers=1, **FORK))
    assert len(found) == 4
    assert all("pickle" in said[2] for said in found), found


def test_a_worker_that_died_is_not_the_end_of_a_persistent_loader() -> None:
    flag = torch.ones(1).share_memory_()

    def deadly_once(index: int) -> int:
        if index == 5 and flag:
            flag.zero_()
            os._exit(3)
        return index

    loader = stoker.DataLoader(Made(12, deadly_once), 2, num_workers=2, persistent_workers=True, **FORK)
    with pytest.raises(stoker.WorkerDied) as caught:
        list(loader)
    assert caught.value.exit_code == 3  # type: ignore[attr-defined]
    assert 5 in caught.value.samples  # type: ignore[attr-defined]
    assert torch.cat(list(loader)).tolist() == list(range(12))
    del loader


def test_a_timeout_speaks_torchs_words_and_the_pass_can_go_on() -> None:
    gate = torch.multiprocessing.get_context("fork").Semaphore(0)

    def gated(index: int) -> int:
        gate.acquire()
        return index

    iterator = iter(stoker.DataLoader(Made(4, gated), 2, num_workers=1, timeout=0.2, **FORK))
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0.2 seconds"):
        next(iterator)
    for _ in range(4):
        gate.release()
    assert torch.cat(list(iterator)).tolist() == [0, 1, 2, 3]


class Filtering(InRuns):
    """Gives fewer samples than it was asked for."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [picture(index) for index in indices if index % 3]


class Columns(InRuns):
    """Gives a whole batch as columns."""

    def __getitems__(self, indices: list[int]) -> Any:
        return {"x": torch.tensor(indices)}


class NotInRuns(Made):
    def __getitem__(self, index: Any) -> Any:
        return torch.as_tensor(index) * 10

    def __getitems__(self, indices: list[int]) -> Any:
        raise AssertionError("batch_size=None asks for one item at a time")


@each_crew
def test_a_dataset_may_give_fewer_samples_than_asked_for(workers: Workers) -> None:
    dataset = Filtering(12, number)
    assert outcomes(stoker.DataLoader(dataset, 4, workers=workers)) == outcomes(DataLoader(dataset, 4))


@each_crew
def test_what_getitems_gives_reaches_the_collate_function_as_it_is(workers: Workers) -> None:
    loader = stoker.DataLoader(Columns(6, number), 3, collate_fn=_same, workers=workers)
    assert [batch["x"].tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5]]


def _same(batch: Any) -> Any:
    return batch


@each_crew
def test_without_batches_a_list_of_indices_is_one_item(workers: Workers) -> None:
    sampler = BatchSampler(SequentialSampler(range(6)), 3, drop_last=False)
    loader = stoker.DataLoader(NotInRuns(6, number), None, sampler=sampler, workers=workers)
    assert [batch.tolist() for batch in loader] == [[0, 10, 20], [30, 40, 50]]


SAMPLERS: dict[str, list[Any]] = {
    "text": ["a", "b", "c"],
    "tuples": [("x", 1), ("y", 2)],
    "tensors": list(torch.arange(5)),
    "numpy numbers": list(np.arange(4)),
    "negative": [-1, -2],
    "bools": [True, False],
    "huge": [2**70, -(2**65)],
}


@pytest.mark.parametrize("keys", SAMPLERS.values(), ids=SAMPLERS)
@each_crew
def test_keys_reach_the_dataset_as_the_sampler_gave_them(keys: list[Any], workers: Workers) -> None:
    dataset = Made(9, lambda key: f"{type(key)} {key!r}")
    expected = outcomes(DataLoader(dataset, 2, sampler=keys))
    assert outcomes(stoker.DataLoader(dataset, 2, sampler=keys, workers=workers)) == expected


BAD: dict[str, dict[str, Any]] = {
    "negative workers": {"num_workers": -1},
    "batch size 0": {"batch_size": 0},
    "negative timeout": {"timeout": -1},
    "prefetch without workers": {"prefetch_factor": 2},
    "persistent without workers": {"persistent_workers": True},
    "negative prefetch": {"num_workers": 1, "prefetch_factor": -1},
    "shuffle and sampler": {"shuffle": True, "sampler": [0]},
    "batch sampler and size": {"batch_sampler": [[0]], "batch_size": 2},
    "drop_last of singles": {"batch_size": None, "drop_last": True},
    "unknown context": {"num_workers": 1, "multiprocessing_context": "teleport"},
    "context without workers": {"multiprocessing_context": "fork"},
    "context of a wrong type": {"num_workers": 1, "multiprocessing_context": 3},
    "timeout without workers": {"timeout": 3},
    "text as workers": {"num_workers": "two"},
    "half a worker": {"num_workers": 1.5},
}


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD)
def test_bad_arguments_are_refused_with_torchs_type(arguments: dict[str, Any]) -> None:
    ((_, torchs, _),) = tried(lambda: DataLoader([1], **arguments))
    ((what, ours, text),) = tried(lambda: stoker.DataLoader([1], **arguments))
    assert (what, ours) == ("raised", torchs)
    assert text


@pytest.mark.parametrize(
    "wrong",
    [
        {"processes": -1},
        {"threads": -1, "processes": 1},
        {"start_method": "x"},
        {"share": "x"},
        {"rows_per_run": 0},
        {"prefetch_bytes": 0},
    ],
)
def test_bad_crews_are_refused_with_the_name_of_what_is_wrong(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Workers(**wrong)
    with pytest.raises(TypeError, match="whole number"):
        Workers(processes=1.0)  # type: ignore[arg-type]


def test_numpys_numbers_are_numbers_of_workers() -> None:
    assert len(list(stoker.DataLoader([1, 2], num_workers=np.int64(1)))) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_without_length_is_a_type_error_that_says_what_to_do(shuffle: bool, workers: int) -> None:
    class Endless:
        def __getitem__(self, index: int) -> int:
            return index

    with pytest.raises(TypeError, match=r"(?s)no len\(\).*__len__"):
        list(stoker.DataLoader(Endless(), shuffle=shuffle, num_workers=workers))


def test_lanes_for_an_iterable_dataset_are_refused() -> None:
    with pytest.raises(ValueError, match="one thread"):
        stoker.DataLoader(Numbers(3), workers=Workers(2, 2))


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")  # torch's way of giving a hint
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_a_dataset_that_cannot_be_pickled_keeps_torchs_type_and_gets_a_hint(start_method: str) -> None:
    dataset = Made(3, lambda index: index)
    ((_, torchs, _),) = tried(lambda: DataLoader(dataset, num_workers=1, multiprocessing_context=start_method))
    with pytest.raises(torchs) as caught:
        iter(stoker.DataLoader(dataset, num_workers=1, multiprocessing_context=start_method))
    assert any("top level of a module" in note for note in getattr(caught.value, "__notes__", []))
