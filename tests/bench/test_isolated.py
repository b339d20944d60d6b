"""A trial in a process of its own: what it gives, what it costs, every way it can fail. Real processes, no clocks."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.bench.isolated import Length, run_isolated
from stoker.bench.process_tree import ProcessTree
from stoker.bench.spans import Noted, read_spans

Prepared = tuple[Iterable[Any], Callable[[Any], object] | None]


def batches(count: int = 5) -> Callable[[Path | None], Prepared]:
    return lambda folder: ([np.zeros((4, 2), np.float32)] * count, None)


def prepare_with(iterate: Callable[[], Iterator[Any]]) -> Callable[[Path | None], Prepared]:
    class Loader:
        def __iter__(self) -> Iterator[Any]:
            return iterate()

    return lambda folder: (Loader(), None)


def test_a_trial_gives_its_series_and_its_costs() -> None:
    outcome = run_isolated(batches(5), Length(batches=3, warmup=2))
    assert outcome.failure is None
    assert outcome.trial is not None
    assert (outcome.trial.batches, outcome.trial.samples, outcome.trial.size_bytes) == (3, 12, 96)
    assert outcome.memory_samples >= 1
    assert outcome.peak_pss_bytes > 2**20
    assert outcome.cpu_s >= 0.0


def test_every_trial_starts_from_the_measuring_process_untouched() -> None:
    seen: list[int] = []
    run_isolated(lambda folder: (seen.append(1) or [np.zeros(1)], None), Length())  # type: ignore[func-returns-value]
    assert seen == []


def test_memory_of_a_child_counts_and_what_is_shared_counts_once() -> None:
    ballast = np.ones(40 * 2**20, np.uint8)  # here before the fork, so shared with the trial

    def prepare(folder: Path | None) -> Prepared:
        return [np.full(30 * 2**20, ballast[0], np.uint8)], None

    outcome = run_isolated(prepare, Length())
    small = run_isolated(batches(1), Length())
    grown = outcome.peak_pss_bytes - small.peak_pss_bytes
    assert 25 * 2**20 < grown < 45 * 2**20


def test_the_tick_is_called_while_the_trial_runs() -> None:
    ticks: list[int] = []
    run_isolated(batches(), Length(), tick=lambda: ticks.append(1))
    assert ticks


def failing() -> Iterator[Any]:
    yield np.zeros(2)
    raise KeyError("label 3 is missing")


def test_an_exception_comes_back_with_the_line_that_raised_it() -> None:
    failure = run_isolated(prepare_with(failing), Length()).failure
    assert failure is not None
    assert (failure.type, failure.message) == ("KeyError", "'label 3 is missing'")
    line = failing.__code__.co_firstlineno + 2
    assert failure.place == f"{__file__}:{line} in failing"
    assert "raise KeyError" in failure.traceback


class Sour:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise LookupError("sample 3 is sour")
        return index


@pytest.mark.parametrize("kind", ["torch", "stoker"])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_a_worker_names_the_datasets_line(kind: str, workers: int) -> None:
    import torch.utils.data

    import stoker

    make = torch.utils.data.DataLoader if kind == "torch" else stoker.DataLoader
    failure = run_isolated(lambda folder: (make(Sour(), 2, num_workers=workers), None), Length()).failure
    assert failure is not None
    assert (failure.type, failure.message) == ("LookupError", "sample 3 is sour")
    assert failure.place.startswith(__file__)
    assert failure.place.endswith("in __getitem__")


def killed() -> Iterator[Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield


def leaves() -> Iterator[Any]:
    os._exit(7)
    yield


def waits_for_ever() -> Iterator[Any]:
    signal.pause()
    yield


@pytest.mark.parametrize(
    ("iterate", "timeout_s", "kind", "message"),
    [
        (killed, 60.0, "Killed", "killed by SIGKILL; usually the kernel's out-of-memory killer"),
        (leaves, 60.0, "Ended", "left with status 7"),
        (waits_for_ever, 0.3, "TooLong", "not finished after 0.3 s"),
        (lambda: iter(()), 60.0, "NoBatch", "is the dataset empty"),
    ],
)
def test_a_trial_that_ends_otherwise_says_how(
    iterate: Callable[[], Iterator[Any]], timeout_s: float, kind: str, message: str
) -> None:
    failure = run_isolated(prepare_with(iterate), Length(timeout_s=timeout_s)).failure
    assert failure is not None
    assert failure.type == kind
    assert message in failure.message


def test_what_was_started_by_a_trial_that_was_given_up_is_ended_too() -> None:
    def iterate() -> Iterator[Any]:
        if os.fork() == 0:
            signal.pause()
        signal.pause()
        yield

    # The count of what is left behind, around every test, is the assertion.
    assert run_isolated(prepare_with(iterate), Length(timeout_s=0.5)).failure is not None


def test_a_watch_sees_its_own_process() -> None:
    tree = ProcessTree(os.getpid())
    tree.look()
    assert tree.peak_bytes > 2**20
    assert tree.cpu_s() > 0
    assert tree.pause_s >= 0.05


def test_notes_of_samples_are_joined_to_spans_of_batches(tmp_path: Path) -> None:
    noted = Noted(list("abcdef"), tmp_path, batch_size=2)
    assert [noted[index] for index in range(len(noted))] == list("abcdef")
    spans = read_spans(tmp_path, 0.0)
    assert [(span.worker, span.batch) for span in spans] == [(os.getpid(), 0), (os.getpid(), 1), (os.getpid(), 2)]
    assert all(span.start_s <= span.end_s for span in spans)
    assert all(one.end_s <= two.start_s for one, two in itertools.pairwise(spans))
