"""A trace of who does what: `with loader.trace("run.json"):` around the training loop, then open it in Perfetto.

The file is an array in the Chrome trace-event format. What is seen in it:

    training process   training loop   start ▏wait ▏step ▏wait ▏step ▏… ▏end     who waits, and for how long
                       slot n          filling ▏waiting    ▏   filling ▏…          batches that stand ready
                       batches ready   a counter, at each moment the training loop asks
    worker n           lane n          load ▏load ▏   load ▏…                      runs of rows, and which

Lanes of the training process are tracks of that process. Spans of one track never overlap: a lane does one thing at a
time, a slot holds one batch at a time, and iterators that run side by side get tracks of their own.

The file is valid JSON whenever it is looked at, up to a thousand events or a second behind: each write goes over the
closing bracket of the last and ends with a new one. So a run that is killed leaves a trace of all but its end.
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from stoker.contracts import Answer, Report
from stoker.watch.tally import PassTally

_AT_ONCE = 1000
_AT_LEAST_EVERY_NS = 1_000_000_000
_TRACKS = 10_000  # of each iterator: lanes from 0, slots from the middle


class Trace:
    """Writes events of a loader's passes to a file, until closed. Passes that are under way already are left out."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._events = EventFile(path)
        self._close = weakref.finalize(self, self._events.close)  # also when the program ends
        self._passes: list[PassTrace] = []  # who has which track
        self._lock = threading.Lock()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, kind: Any, error: Any, trail: Any) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return not self._close.alive

    def close(self) -> None:
        """Write what is left. Passes that are still under way go on without a trace."""
        self._close()

    def begin_pass(self, count: PassTally) -> PassTrace:
        """A pass has begun; its track is the first that no other pass has used since."""
        with self._lock:
            taken = [one.is_using_its_track(count.begun_ns) for one in self._passes]
            track = taken.index(False) if False in taken else len(taken)
            begun = PassTrace(self._events, count, track)
            self._passes[track : track + 1] = [begun]
        return begun


class PassTrace:
    """Writes down one pass. Called by whoever holds the iterator's lock."""

    def __init__(self, events: EventFile, count: PassTally, track: int) -> None:
        self._events, self._count, self._pid = events, count, os.getpid()
        self._loop, self._first_lane = track + 1, _TRACKS * (track + 1)
        self._first_slot = self._first_lane + _TRACKS // 2
        self._filled_ns: dict[int, tuple[int, int]] = {}  # by batch: when it was begun and, so far, finished
        self._steps = 0
        events.name(self._pid, "training process", 0)
        events.name_track(self._pid, self._loop, "training loop" if not track else f"training loop {track + 1}")
        self._last_end_ns = count.begun_ns + count.start_ns
        self._span("start", self._loop, count.begun_ns, self._last_end_ns, {})

    def is_using_its_track(self, since_ns: int) -> bool:
        """Whether anything of this pass lies, or may yet lie, after that time."""
        return self._count.is_running or self._last_end_ns > since_ns

    def wait(self, begin_ns: int, end_ns: int, batch: int, samples: int) -> None:
        """The training loop waited for a batch; before that it made a step."""
        self._step(begin_ns)
        self._span("wait", self._loop, begin_ns, end_ns, {"batch": batch, "samples": samples})
        self._last_end_ns = end_ns
        self._events.flush_if_due(end_ns)

    def end(self, begin_ns: int, end_ns: int, error: BaseException) -> None:
        """The training loop asked once more, and the pass was over or broke off."""
        self._step(begin_ns)
        name = "end" if isinstance(error, StopIteration) else type(error).__name__
        self._span(name, self._loop, begin_ns, end_ns, {})
        self._last_end_ns = end_ns

    def ready(self, asked_ns: int, batches: int) -> None:
        """So many batches stood ready when the training loop asked."""
        self._add("batches ready", "C", self._pid, self._loop, asked_ns, {"args": {"ready": batches}})

    def load(self, report: Report, pid: int | None, batch: int | None) -> None:
        """A lane loaded a run of rows. `pid` is None for lanes of the training process."""
        if report.answer is Answer.CANCELLED or not report.busy_ns:
            return  # nobody did anything
        end_ns = report.began_ns + report.busy_ns
        track = self._first_lane + report.lane
        if pid is None:
            self._events.name_track(self._pid, track, f"lane {report.lane}")
        else:
            self._events.name(pid, f"worker {report.worker}", report.worker + 1)
            self._events.name_track(pid, track, f"lane {report.lane}")
        what = {"batch": batch, "rows": [report.start, report.stop], "answer": report.answer.name.lower()}
        self._span("load", track, report.began_ns, end_ns, what, pid)
        begun_ns, done_ns = self._filled_ns.get(report.number, (report.began_ns, end_ns))
        self._filled_ns[report.number] = min(begun_ns, report.began_ns), max(done_ns, end_ns)

    def taken(self, number: int, slot: int, what: dict[str, Any], clock: Callable[[], int]) -> None:
        """A batch left the queue: its slot was being filled, then stood waiting until now."""
        now_ns = clock()
        begun_ns, done_ns = self._filled_ns.pop(number, (now_ns, now_ns))
        track = self._first_slot + slot
        self._events.name_track(self._pid, track, f"slot {slot}")
        self._span("filling", track, begun_ns, done_ns, what)
        self._span("waiting", track, done_ns, now_ns, what)

    def restarted(self, now_ns: int, workers: int) -> None:
        """Workers were started in the place of others."""
        self._add("restart", "i", self._pid, self._loop, now_ns, {"s": "p", "args": {"workers": workers}})

    def decided(self, now_ns: int, size: str, reason: str) -> None:
        """Another number of workers is to load."""
        self._add("auto", "i", self._pid, self._loop, now_ns, {"s": "p", "args": {"workers": size, "because": reason}})

    def _step(self, begin_ns: int) -> None:
        if self._steps or self._last_end_ns < begin_ns:
            name = "step" if self._steps else "before the first batch"
            self._span(name, self._loop, self._last_end_ns, begin_ns, {"step": self._steps - 1} if self._steps else {})
        self._steps += 1

    def _span(
        self, name: str, track: int, begin_ns: int, end_ns: int, what: dict[str, Any], pid: int | None = None
    ) -> None:
        duration_us = max(0, end_ns - begin_ns) / 1e3
        self._add(name, "X", self._pid if pid is None else pid, track, begin_ns, {"dur": duration_us, "args": what})

    def _add(self, name: str, phase: str, pid: int, track: int, at_ns: int, more: dict[str, Any]) -> None:
        self._events.add({"name": name, "ph": phase, "pid": pid, "tid": track, "ts": at_ns / 1e3, **more})


class NoTrace:
    """Stands where nobody has asked for a trace."""

    def wait(self, begin_ns: int, end_ns: int, batch: int, samples: int) -> None: ...

    def end(self, begin_ns: int, end_ns: int, error: BaseException) -> None: ...

    def ready(self, asked_ns: int, batches: int) -> None: ...

    def load(self, report: Report, pid: int | None, batch: int | None) -> None: ...

    def taken(self, number: int, slot: int, what: dict[str, Any], clock: Callable[[], int]) -> None: ...

    def restarted(self, now_ns: int, workers: int) -> None: ...

    def decided(self, now_ns: int, size: str, reason: str) -> None: ...


NO_TRACE = NoTrace()


class EventFile:
    """An array of events in a file, valid after every write. Any thread may add to it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self._owner_pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._named: set[tuple[int, int]] = set()
        self._end = os.pwrite(self._fd, b"[\n", 0)
        self._has_events = False
        self._flushed_ns = time.perf_counter_ns()
        os.pwrite(self._fd, b"]\n", self._end)

    def name(self, pid: int, name: str, place: int) -> None:
        """Give a process its name, and its place among the others."""
        if (pid, -1) not in self._named:
            self._named.add((pid, -1))
            self.add({"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}})
            place_of = {"name": "process_sort_index", "args": {"sort_index": place}}
            self.add({**place_of, "ph": "M", "pid": pid, "tid": 0, "ts": 0})

    def name_track(self, pid: int, track: int, name: str) -> None:
        """Give a track of a process its name; tracks stand in the order of their numbers."""
        if (pid, track) not in self._named:
            self._named.add((pid, track))
            self.add({"name": "thread_name", "ph": "M", "pid": pid, "tid": track, "ts": 0, "args": {"name": name}})
            place = {"name": "thread_sort_index", "args": {"sort_index": track}}
            self.add({**place, "ph": "M", "pid": pid, "tid": track, "ts": 0})

    def add(self, event: dict[str, Any]) -> None:
        if self._fd < 0:
            return
        text = json.dumps(event)
        with self._lock:
            self._waiting.append(text)
            if len(self._waiting) >= _AT_ONCE:
                self._flush()

    def flush_if_due(self, now_ns: int) -> None:
        if now_ns - self._flushed_ns > _AT_LEAST_EVERY_NS:
            self._flushed_ns = now_ns
            with self._lock:
                self._flush()

    def close(self) -> None:
        with self._lock:
            self._flush()
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    def _flush(self) -> None:
        events, self._waiting = self._waiting, []
        if not events or self._fd < 0 or os.getpid() != self._owner_pid:  # a forked child has no part in the file
            return
        text = (",\n" if self._has_events else "") + ",\n".join(events)
        data = text.encode()
        _write_all(self._fd, data + b"\n]\n", self._end)
        self._end += len(data)
        self._has_events = True


def _write_all(fd: int, data: bytes, place: int) -> None:
    while data:
        written = os.pwrite(fd, data, place)
        data, place = data[written:], place + written
