"""The filler: errors and deaths reach the consumer in their place, and what is closed is gone."""

from __future__ import annotations

import os
import re
import signal
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import torch
from tests.prefetching.sources import Drawing, Failing, Trouble, Waiting, batch, batches, numbers
from torch.utils.data import DataLoader, TensorDataset

import stoker
from stoker import Prefetcher, WorkerDied, prefetch

BOTH = pytest.mark.parametrize("by", ["thread", "process"])


def taken_until_trouble(accessor: Prefetcher, kind: type[BaseException]) -> tuple[list[int], BaseException]:
    taken: list[Any] = []
    iterator = iter(accessor)
    with pytest.raises(kind) as caught:
        taken.extend(iterator)
    assert next(iterator, None) is None  # the pass is over, and stays over
    return numbers(taken), caught.value


@BOTH
def test_an_error_comes_in_its_place_as_what_it_was(by: Any) -> None:
    with prefetch(Failing("raise"), by=by, ahead=2) as accessor:
        for _ in range(2):  # a new pass begins anew, and fails anew
            taken, error = taken_until_trouble(accessor, Trouble)
            assert taken == [0, 1, 2]
            assert isinstance(error, Trouble)
            assert (error.code, error.what) == (7, "the disk is full")
            told = "".join(traceback.format_exception(error))
            assert "in __iter__" in told
            assert 'raise Trouble(7, "the disk is full")' in told


def test_an_error_whose_class_cannot_travel_keeps_its_text() -> None:
    with prefetch(Failing("local"), by="process") as accessor:
        taken, error = taken_until_trouble(accessor, RuntimeError)
    assert taken == [0, 1, 2]
    assert "a class of a function" in str(error)
    assert "in __iter__" in str(error)


def spoilt_collate(samples: list[Any]) -> Any:
    if samples[0] == 4:
        raise ValueError("spoilt")
    return torch.tensor(samples)


@BOTH
@pytest.mark.parametrize(("make", "workers"), [(DataLoader, 0), (stoker.DataLoader, 1)])
def test_an_error_of_the_inner_loader_comes_through(by: Any, make: Any, workers: int) -> None:
    loader = make(list(range(8)), 2, collate_fn=spoilt_collate, num_workers=workers)
    with prefetch(loader, by=by) as accessor:
        iterator = iter(accessor)
        assert [next(iterator).tolist(), next(iterator).tolist()] == [[0, 1], [2, 3]]
        with pytest.raises(ValueError, match="spoilt"):
            next(iterator)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("SIGKILL", "SIGKILL.*out-of-memory"),
        ("SIGTERM", "SIGTERM"),
        ("exit0", "exit code 0"),
        ("exit3", "exit code 3"),
    ],
)
@pytest.mark.parametrize("start_method", ["fork", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_a_filler_that_dies_wakes_the_consumer(how: str, words: str, start_method: Any) -> None:
    with prefetch(Failing(how), by="process", start_method=start_method) as accessor:
        taken, error = taken_until_trouble(accessor, WorkerDied)
        assert re.search(rf"loads ahead \(pid \d+\).*{words}.*A new iter\(\)", str(error))
        assert taken == [*range(len(taken))]  # what it had made before
        assert numbers([next(iter(accessor))]) == [0]  # a new pass has a new filler


@pytest.mark.faults
def test_ctrl_c_for_the_filler_alone_changes_nothing() -> None:
    with prefetch(Failing("SIGINT"), by="process") as accessor:
        assert numbers(accessor) == [0, 1, 2, 3]


@pytest.mark.faults
def test_a_filler_that_is_killed_while_its_workers_live_wakes_the_consumer() -> None:
    loader = DataLoader(TensorDataset(torch.arange(400)), 2, num_workers=1)
    with prefetch(loader, by="process", ahead=1) as accessor:
        iterator = iter(accessor)
        next(iterator)
        filler = psutil.Process(accessor.stats().filler_pid)
        (worker,) = filler.children()
        worker.suspend()  # it cannot notice, and holds whatever it inherited
        filler.kill()
        with pytest.raises(WorkerDied, match="SIGKILL"):
            list(iterator)
        worker.kill()


@pytest.fixture
def silent() -> Iterator[int]:
    reader, writer = os.pipe()
    yield reader
    os.close(writer)
    os.close(reader)


@pytest.mark.parametrize("by", ["thread", "process"])
def test_closing_wakes_a_consumer_that_waits(by: Any) -> None:
    reader, writer = os.pipe()
    accessor = prefetch(Waiting(reader), by=by)
    iterator = iter(accessor)
    next(iterator)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            next(iterator)
        except BaseException as error:
            errors.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    while not iterator._ring._is_waiting:
        pass
    closer = threading.Thread(target=accessor.close)
    closer.start()
    waiter.join()
    os.close(writer)  # a thread cannot be interrupted: its source has to come to an end
    closer.join()
    os.close(reader)
    assert "was closed" in str(errors[0])


@BOTH
def test_closing_ends_the_workers_of_the_source(by: Any) -> None:
    loader = DataLoader(TensorDataset(torch.arange(400)), 2, num_workers=1)
    others = set(psutil.Process().children(recursive=True))  # a fork server of tests before this one
    accessor = prefetch(loader, by=by)
    next(iter(accessor))
    started = set(psutil.Process().children(recursive=True)) - others
    accessor.close()
    assert started
    assert psutil.wait_procs(started, 10)[1] == []


def test_terminating_does_not_wait_for_a_batch(silent: int) -> None:
    accessor = prefetch(Waiting(silent), by="process")
    next(iter(accessor))
    process = psutil.Process(accessor.stats().filler_pid)
    accessor.terminate()
    assert not process.is_running()


def test_a_handler_may_close_while_the_main_thread_waits(silent: int) -> None:
    accessor = prefetch(Waiting(silent), by="process")
    iterator = iter(accessor)
    next(iterator)
    before = signal.signal(signal.SIGUSR1, lambda *_: accessor.close())
    try:
        sender = threading.Thread(target=_signal_when_waiting, args=(iterator,))
        sender.start()
        with pytest.raises(RuntimeError, match="was closed"):
            next(iterator)
        sender.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


@BOTH
def test_an_interrupted_pass_is_over_and_the_next_is_whole(by: Any) -> None:
    """An interrupt may take a batch with it; going on as if nothing had happened would lose it in silence."""
    reader, writer = os.pipe()

    def interrupt(*_: object) -> None:
        os.write(writer, b"x")  # the source gets on
        raise KeyboardInterrupt

    with prefetch(Waiting(reader), by=by, across_epochs=False) as accessor:
        iterator = iter(accessor)
        next(iterator)
        before = signal.signal(signal.SIGUSR1, interrupt)
        sender = threading.Thread(target=_signal_when_waiting, args=(iterator,))
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        sender.join()
        signal.signal(signal.SIGUSR1, before)
        with pytest.raises(RuntimeError, match="was interrupted while it took a batch"):
            next(iterator)
        os.write(writer, b"xx")
        assert numbers(accessor) == [0]
    os.close(writer)
    os.close(reader)


def _signal_when_waiting(iterator: Any) -> None:
    while not iterator._ring._is_waiting:
        pass
    os.kill(os.getpid(), signal.SIGUSR1)


@BOTH
@pytest.mark.faults
def test_a_forked_child_has_passes_of_its_own(by: Any) -> None:
    with prefetch(batches(5), by=by) as accessor:
        iterator = iter(accessor)
        kept = next(iterator)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with pytest.raises(RuntimeError, match="belongs to process"):
                    next(iterator)
                code = int(numbers(accessor) != [0, 1, 2, 3, 4] or numbers([kept]) != [0])
                accessor.close()
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert numbers(iterator) == [1, 2, 3, 4]
        assert numbers([kept]) == [0]


def test_a_source_that_cannot_be_pickled_says_what_to_do() -> None:
    accessor = prefetch(lambda: iter(batches(2)), by="process", start_method="spawn")
    with pytest.raises(Exception, match="lambda") as caught:
        iter(accessor)
    assert 'by="thread" needs no pickling' in "".join(getattr(caught.value, "__notes__", []))
    accessor.close()


def orders(seed: int, **options: Any) -> list[Any]:
    torch.manual_seed(seed)
    with prefetch(DataLoader(TensorDataset(torch.arange(32)), 8, shuffle=True), by="process", **options) as one:
        return [torch.cat([rows for (rows,) in one]).tolist() for _ in range(3)]


def test_a_seed_in_the_parent_fixes_the_order_in_the_filler() -> None:
    first = orders(1)
    assert first == orders(1)
    assert first == orders(1, across_epochs=False, ahead=1)[:1] + first[1:]
    assert first != orders(2)
    assert len({tuple(order) for order in first}) == 3


def test_all_generators_of_the_filler_are_seeded_however_far_it_ran_ahead() -> None:
    def drawn(cut: int) -> list[Any]:
        torch.manual_seed(5)
        with prefetch(Drawing(), by="process", ahead=cut) as accessor:
            next(iter(accessor))
            return list(accessor)

    assert drawn(1) == drawn(20)


@BOTH
def test_nothing_is_loaded_before_it_is_wanted(by: Any) -> None:
    with prefetch(Failing("raise"), by=by) as accessor:
        assert accessor.stats().filler_pid is None
        assert accessor.stats().ready == 0


@BOTH
def test_early_preload_fills_the_ring(by: Any) -> None:
    with prefetch(batches(9), ahead=4, at_once=True, by=by) as accessor:
        while accessor.stats().ready < 4:
            pass
        assert numbers(accessor) == list(range(9))


@BOTH
def test_the_next_pass_is_prepared_at_the_end_of_this_one(by: Any) -> None:
    with prefetch(batches(3), ahead=3, by=by) as accessor:
        list(accessor)
        while accessor.stats().ready < 3:
            pass


@BOTH
@pytest.mark.parametrize("rebatch", [None, 16])
def test_the_byte_budget_bounds_what_is_ahead(by: Any, rebatch: int | None) -> None:
    size = batch(0).nbytes
    options: dict[str, Any] = {"by": by, "batch_size": rebatch, "at_once": True, "max_bytes": 3 * size + 100}
    with prefetch(batches(12), ahead=8, **options) as accessor:
        while accessor.stats().ready < 3:
            pass
        seen, taken = [], []
        for one in accessor:
            taken.append(one)
            seen.append(accessor.stats().ready)
    assert numbers(taken) == list(range(12))
    assert max(seen) <= 3


@BOTH
def test_a_batch_larger_than_the_budget_comes_alone(by: Any) -> None:
    with prefetch(batches(5), ahead=4, by=by, max_bytes=1) as accessor:
        assert numbers(accessor) == [0, 1, 2, 3, 4]


def test_stats_say_who_waited() -> None:
    with prefetch(batches(9), ahead=2, by="thread") as accessor:
        list(accessor)
        stats = accessor.stats()
    assert (stats.steps, stats.passes, stats.ahead) == (9, 1, 2)
    assert stats.size_bytes == 9 * batch(0).nbytes
    assert 0 <= stats.ready_mean <= 2
    assert stats.filler_busy_s > 0
    assert "steps     9 in 1 ended passes" in str(stats)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"ahead": 0}, "ahead should be at least 1.*got 0"),
    ({"ahead": 2.5}, "whole number"),
    ({"max_bytes": 0}, "max_bytes should be at least 1"),
    ({"batch_size": 0}, "batch_size should be at least 1"),
    ({"drop_last": True}, "give batch_size too"),
    ({"by": "magic"}, '"thread" or "process"'),
    ({"start_method": "fork"}, 'give by="process" too'),
    ({"by": "process", "start_method": "beam"}, "start_method should be one of"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_options_are_refused_with_what_they_were(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        stoker.prefetch([], **options)
