"""A trace of who does what: `with loader.trace("run.json"):` around the training loop, then open it in Perfetto.

The file is in the Chrome trace-event format, an array of events. The training loop is one track: waits for batches, and
the steps between them. Each worker is a process with a track for each lane: the runs of rows it loads. So one sees who
waits for whom. Events are written as they come, a thousand at a time.
"""

from __future__ import annotations

import json
import os
from typing import Any

_AT_ONCE = 1000


class Trace:
    """Writes events of a loader's passes to a file, until closed."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - closed by `close`, when the user is done
        self._file.write("[\n")
        self._events: list[str] = []
        self._named: set[tuple[int, int]] = set()
        self._written = False
        self._last_end_ns = 0
        self._pid = os.getpid()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, kind: Any, error: Any, trail: Any) -> None:
        self.close()

    def close(self) -> None:
        if not self._file.closed:
            self._flush()
            self._file.write("\n]\n")
            self._file.close()

    def wait(self, begin_ns: int, end_ns: int, batch: int) -> None:
        """The training loop waited for a batch; before that it made a step."""
        self._name(self._pid, 0, "training process", "training loop")
        if self._last_end_ns:
            self._span("step", self._pid, 0, self._last_end_ns, begin_ns, {})
        self._span("wait", self._pid, 0, begin_ns, end_ns, {"batch": batch})
        self._last_end_ns = end_ns

    def load(self, worker: int, pid: int, lane: int, begin_ns: int, busy_ns: int, what: dict[str, Any]) -> None:
        """A lane loaded a run of rows."""
        self._name(pid, lane + 1, f"worker {worker}", f"lane {lane}")
        self._span("load", pid, lane + 1, begin_ns, begin_ns + busy_ns, what)

    def begin_pass(self) -> None:
        self._last_end_ns = 0  # what happened between two passes is not a step

    def _span(self, name: str, pid: int, lane: int, begin_ns: int, end_ns: int, what: dict[str, Any]) -> None:
        event = {
            "name": name,
            "ph": "X",
            "pid": pid,
            "tid": lane,
            "ts": begin_ns / 1e3,
            "dur": max(0, end_ns - begin_ns) / 1e3,
            "args": what,
        }
        self._add(event)

    def _name(self, pid: int, lane: int, process: str, thread: str) -> None:
        if (pid, lane) not in self._named:
            self._named.add((pid, lane))
            self._add({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": process}})
            self._add({"name": "thread_name", "ph": "M", "pid": pid, "tid": lane, "args": {"name": thread}})

    def _add(self, event: dict[str, Any]) -> None:
        if self._file.closed:
            return
        self._events.append(json.dumps(event))
        if len(self._events) >= _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._events:
            self._file.write((",\n" if self._written else "") + ",\n".join(self._events))
            self._events.clear()
            self._written = True
