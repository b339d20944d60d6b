"""A trace is valid at any moment, names its tracks, and shows who did what without two things at once on one track."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.datasets import Awaited, Made, Numbers, number, picture
from tests.watch.watched import DiesOnce

import stoker.watch.trace
from stoker import DataLoader, Workers

PROCESSES = Workers(2, 2, start_method="fork")
WHO = {"inline": Workers(), "threads": Workers(0, 3), "processes": PROCESSES}
who = pytest.mark.parametrize("workers", WHO.values(), ids=WHO)
Event = dict[str, Any]


def traced(path: Path, loader: DataLoader[Any], epochs: int = 1) -> list[Event]:
    with loader.trace(path):
        for _ in range(epochs):
            for _ in loader:
                pass
    return read(path)


def read(path: Path) -> list[Event]:
    events: list[Event] = json.loads(path.read_text())
    for event in events:
        assert {"name", "ph", "pid", "tid", "ts"} <= set(event)
        assert event["ph"] in ("X", "M", "C", "i")
        assert event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] >= 0
    return events


def named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event["name"] == name]


def track_names(events: list[Event]) -> dict[tuple[int, int], tuple[str, str]]:
    """(pid, tid) to the names of process and track."""
    processes = {event["pid"]: event["args"]["name"] for event in named(events, "process_name")}
    return {
        (event["pid"], event["tid"]): (processes[event["pid"]], event["args"]["name"])
        for event in named(events, "thread_name")
    }


def overlaps(events: list[Event]) -> list[tuple[Event, Event]]:
    """Spans of one track that begin before the one before them has ended."""
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    found = []
    for spans in tracks.values():
        spans.sort(key=lambda span: (span["ts"], span["ts"] + span["dur"]))
        found += [(one, two) for one, two in pairwise(spans) if one["ts"] + one["dur"] > two["ts"] + 1e-3]
    return found


@who
def test_the_training_loop_starts_waits_steps_and_ends(workers: Workers, tmp_path: Path) -> None:
    events = traced(tmp_path / "trace.json", DataLoader(Made(23, number), 4, workers=workers), epochs=2)
    loop = (os.getpid(), 1)
    names = [event["name"] for event in events if (event["pid"], event["tid"]) == loop and event["ph"] == "X"]
    epoch = ["start", "before the first batch", *["wait", "step"] * 6, "end"]
    assert names == epoch * 2
    assert [event["args"]["batch"] for event in named(events, "wait")] == [*range(6), *range(6)]
    assert [event["args"]["samples"] for event in named(events, "wait")] == [4, 4, 4, 4, 4, 3] * 2
    assert track_names(events)[loop] == ("training process", "training loop")


@pytest.mark.parametrize("ways", [{}, {"num_workers": 1}], ids=["inline", "process"])
def test_a_loop_that_is_read_ahead_of_waits_as_any_other(ways: dict[str, Any], tmp_path: Path) -> None:
    events = traced(tmp_path / "trace.json", DataLoader(Made(23, number), 4, device="cpu", **ways), epochs=2)
    waits = named(events, "wait")
    assert [(event["args"]["batch"], event["args"]["samples"]) for event in waits] == [
        *zip(range(6), [4, 4, 4, 4, 4, 3], strict=True),
        *zip(range(6), [4, 4, 4, 4, 4, 3], strict=True),
    ]
    assert overlaps(events) == []


@who
def test_things_on_one_track_happen_one_after_the_other(workers: Workers, tmp_path: Path) -> None:
    events = traced(tmp_path / "trace.json", DataLoader(Made(60, picture), 4, workers=workers), epochs=2)
    assert overlaps(events) == []
    spans = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    assert spans <= set(track_names(events))


@pytest.mark.parametrize("share", ["auto", "rows", "batches"])
@pytest.mark.parametrize("processes", [0, 2])
def test_every_row_was_loaded_on_some_lane(processes: int, share: Any, tmp_path: Path) -> None:
    workers = Workers(processes, 2, share=share)
    events = traced(tmp_path / "trace.json", DataLoader(Made(23, number), 4, workers=workers))
    runs = [event["args"] for event in named(events, "load")]
    rows = sorted((run["batch"], row) for run in runs for row in range(*run["rows"]))
    assert rows == [(position // 4, position % 4) for position in range(23)]
    names = track_names(events)
    lanes = {names[event["pid"], event["tid"]] for event in named(events, "load")}
    processes_seen = {process for process, _lane in lanes}
    assert processes_seen <= ({"worker 0", "worker 1"} if processes else {"training process"})
    assert {lane for _process, lane in lanes} <= {"lane 0", "lane 1"}


def test_awaited_samples_and_iterable_datasets_have_lanes_too(tmp_path: Path) -> None:
    awaited = traced(tmp_path / "awaited.json", DataLoader(Awaited(12), 4, workers=Workers(1, 3, start_method="fork")))
    iterated = traced(tmp_path / "iterated.json", DataLoader(Numbers(12), 4, num_workers=2))
    for events in (awaited, iterated):
        assert overlaps(events) == []
        loaded = [event for event in named(events, "load") if event["args"]["answer"] == "done"]
        assert sum(event["args"]["rows"][1] - event["args"]["rows"][0] for event in loaded) == 12


def test_slots_are_filled_and_then_wait_and_ready_batches_are_counted(tmp_path: Path) -> None:
    events = traced(tmp_path / "trace.json", DataLoader(Made(24, picture), 4, workers=PROCESSES))
    filling, waiting = named(events, "filling"), named(events, "waiting")
    assert [event["args"]["batch"] for event in filling] == list(range(6))
    for fill, wait, load in zip(filling, waiting, named(events, "wait"), strict=True):
        assert wait["ts"] == pytest.approx(fill["ts"] + fill["dur"])
        assert fill["tid"] == wait["tid"]
        assert wait["ts"] + wait["dur"] <= load["ts"] + load["dur"]  # taken before the training loop had it
    assert all(name[1].startswith("slot ") for name in (track_names(events)[e["pid"], e["tid"]] for e in filling))
    ready = named(events, "batches ready")
    assert len(ready) == 6
    assert ready[0]["ts"] == named(events, "wait")[0]["ts"]
    assert all(event["ph"] == "C" and event["args"]["ready"] >= 0 for event in ready)


@pytest.mark.faults
def test_a_worker_that_was_replaced_leaves_a_mark_and_no_span_of_nothing(tmp_path: Path) -> None:
    workers = Workers(1, start_method="fork", on_death="restart")
    events = traced(tmp_path / "trace.json", DataLoader(DiesOnce(tmp_path), 2, workers=workers))
    assert [event["args"]["workers"] for event in named(events, "restart")] == [1]
    assert all(event["ts"] > 0 for event in named(events, "load"))
    assert overlaps(events) == []


def test_iterators_side_by_side_have_tracks_of_their_own(tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Made(12, number), 2, workers=Workers(0, 2))
    with loader.trace(tmp_path / "trace.json"):
        assert len(list(zip(loader, loader, strict=True))) == 6
        list(loader)
    events = read(tmp_path / "trace.json")
    assert overlaps(events) == []
    tracks = [event["tid"] for event in named(events, "start")]
    assert tracks == [1, 2, 1]


def test_an_error_is_on_the_track_and_what_follows_too(tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Made(4, fails_at_2), 1)
    with loader.trace(tmp_path / "trace.json"):
        batches = iter(loader)
        next(batches), next(batches)
        with pytest.raises(ZeroDivisionError):
            next(batches)
        assert len(list(batches)) == 1
    events = read(tmp_path / "trace.json")
    assert len(named(events, "ZeroDivisionError")) == 1
    assert len(named(events, "wait")) == 3
    assert overlaps(events) == []


def fails_at_2(index: int) -> float:
    return 1 / (index - 2)


def test_the_file_is_valid_while_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stoker.watch.trace, "_AT_ONCE", 7)
    path, seen = tmp_path / "trace.json", []
    loader: DataLoader[Any] = DataLoader(Made(40, number), 1)
    with loader.trace(path):
        seen.append(len(read(path)))
        for _ in loader:
            seen.append(len(read(path)))
    seen.append(len(read(path)))
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert len(set(seen)) > 10


@pytest.mark.faults
def test_a_run_that_is_killed_leaves_a_valid_trace(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        loader: DataLoader[Any] = DataLoader(Made(1500, number))
        loader.trace(tmp_path / "trace.json")
        for step, _ in enumerate(loader):
            if step == 1200:
                os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert 700 <= len(named(read(tmp_path / "trace.json"), "wait")) <= 1200


def test_a_program_that_ends_without_closing_leaves_the_whole_trace(tmp_path: Path) -> None:
    program = 'import stoker; loader = stoker.DataLoader(range(9)); loader.trace("trace.json"); list(loader)'
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=100)
    assert len(named(read(tmp_path / "trace.json"), "wait")) == 9


def test_a_trace_that_nobody_closed_is_finished_with_its_loader(tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Made(5, number), 1)
    loader.trace(tmp_path / "trace.json")
    list(loader)
    del loader
    assert len(named(read(tmp_path / "trace.json"), "wait")) == 5


def test_what_happens_after_closing_is_not_written(tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Made(6, number), 1, num_workers=1, persistent_workers=True)
    trace = loader.trace(tmp_path / "trace.json")
    batches = iter(loader)
    next(batches)
    trace.close()
    trace.close()
    before = (tmp_path / "trace.json").read_bytes()
    assert len(list(batches)) == 5
    assert len(list(loader)) == 6
    assert (tmp_path / "trace.json").read_bytes() == before
    assert trace.closed


def test_a_second_trace_takes_over(tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Made(6, number), 1)
    first = loader.trace(tmp_path / "first.json")
    list(loader)
    with loader.trace(str(tmp_path / "second.json")):
        assert first.closed
        list(loader)
    for name in ("first.json", "second.json"):
        assert len(named(read(tmp_path / name), "wait")) == 6


def test_a_forked_child_does_not_write_into_the_trace(tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Made(6, number), 1)
    with loader.trace(tmp_path / "trace.json") as trace:
        batches = iter(loader)
        next(batches)
        child = os.fork()
        if not child:
            try:
                list(batches)
                trace.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert len(list(batches)) == 5
    assert [event["args"]["batch"] for event in named(read(tmp_path / "trace.json"), "wait")] == list(range(6))


def test_threads_may_iterate_at_once(tmp_path: Path) -> None:
    loader: DataLoader[Any] = DataLoader(Made(300, number), 1)
    with loader.trace(tmp_path / "trace.json"):
        threads = [threading.Thread(target=lambda: list(loader)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = read(tmp_path / "trace.json")
    assert len(named(events, "wait")) == 900
    assert overlaps(events) == []


def test_a_path_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DataLoader(Made(6, number)).trace(tmp_path / "no" / "such" / "folder.json")
