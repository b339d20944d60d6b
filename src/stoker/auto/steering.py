"""A loader's hands at the wheel: takes readings while passes go on, asks the controller, remembers what it decided.

One for each loader, over all its passes. A look costs a comparison with the clock for every batch, and some tens of
microseconds twice a second. Loaders of one process leave each other cores: who has loaded within the last second
counts with the processes that it has. Where memory is short nobody is added.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from stoker.auto.controller import Controller, Decision, Reading
from stoker.auto.memory import room_for
from stoker.auto.processor import ProcessorTime, core_share
from stoker.auto.size import Limits, Size
from stoker.options import Workers
from stoker.watch.tally import Counts

log = logging.getLogger("stoker.auto")

_LOOK_EVERY_S = 0.5
_KEPT = 20  # decisions that are shown
_LATELY_S = 1.0
_PATIENCE_S = 5.0  # for a change to be there; what is measured from then on is not less true, only less clear


@dataclass(frozen=True)
class Noted:
    """A decision as it is shown."""

    at_s: float  # of passes
    size: Size
    reason: str

    def __str__(self) -> str:
        return f"after {self.at_s:.1f} s: {self.size}, because {self.reason}"


class Steering:
    """Says how many load, from batch to batch."""

    def __init__(self, workers: Workers, limits: Limits, first: Size, clock: Callable[[], float] = time.monotonic):
        self.workers = workers  # with all options but the numbers
        self.limits = limits
        self.noted: deque[Noted] = deque(maxlen=_KEPT)
        self.changes = 0
        self._controller = Controller(limits, first, self.free_cores)
        self._clock = clock
        self._due_s = 0.0
        self._loaded = 0
        self._busy_s = 0.0
        self._processor = ProcessorTime()
        self._here_s = 0.0  # processor time of batches that the training process made itself
        self._at_work_s = 0.0  # when somebody last loaded
        self._asked_s = 0.0  # when the size was last to be changed
        self._pids: list[int] = []  # of those who load
        _ALL.add(self)

    def anew(self) -> Steering:
        """One for a copy of the loader, which begins with what was found so far."""
        return Steering(self.workers, self.limits, self.size)

    def __reduce__(self) -> tuple[Any, ...]:
        return Steering, (self.workers, self.limits, self.size)

    @property
    def size(self) -> Size:
        return self._controller.size

    @property
    def fixed(self) -> Workers:
        """What to write down to have the best size so far from the start."""
        settled = self._controller.settled
        return self.workers.fixed_at(settled.processes, settled.lanes)

    def in_words(self) -> str:
        """What it has come to, and where it met its limits."""
        settled, limits = self._controller.settled, self.limits
        met = [
            f"no more than {most} {name} may be tried"
            for most, name, now in (
                (limits.most_processes, "processes", settled.processes),
                (limits.most_lanes, "threads each", settled.lanes),
            )
            if now == most
        ]
        return f'"auto" has come to {settled} in {self.changes} changes' + "".join(f"; {one}" for one in met)

    def shown(self) -> dict[str, Any]:
        """What the statistics say of it."""
        return {"fixed": self.fixed, "changes": self.changes, "decisions": tuple(map(str, self.noted))}

    def loaded(self, samples: int, busy_s: float, here_s: float = 0.0) -> None:
        """Samples were loaded; `here_s` is the processor time of those that the training process loaded itself."""
        self._loaded += samples
        self._busy_s += busy_s
        self._here_s += here_s

    @property
    def is_due(self) -> bool:
        """Whether to look again."""
        return self._clock() >= self._due_s

    def look(self, counted: Counts, pids: Iterable[int]) -> Noted | None:
        """A decision, if the size is to be changed now."""
        self._due_s = self._at_work_s = self._clock()
        self._due_s += _LOOK_EVERY_S
        now = self._read(counted, pids)
        if self._controller.is_changing and self._at_work_s > self._asked_s + _PATIENCE_S:
            self._controller.changed(now)  # whoever was started has had nothing to do so far
        decision = self._controller.look(now)
        return None if decision is None else self._note(decision, counted.pass_ns / 1e9)

    def changed(self, counted: Counts, pids: Iterable[int]) -> None:
        """The size that was asked for is there."""
        if self._controller.is_changing:
            self._controller.changed(self._read(counted, pids))
            self._due_s = self._clock() + _LOOK_EVERY_S

    def refused(self, size: Size, why: str) -> None:
        """The size that was asked for cannot be had: this one stays, and nothing above it is tried any more."""
        self._controller.refused(size)
        self.noted.append(Noted(self.noted[-1].at_s if self.noted else 0.0, size, f"no more could be started ({why})"))
        log.warning("%s", self.noted[-1])

    @property
    def latest(self) -> str:
        """What was decided last, as a sentence."""
        return str(self.noted[-1]) if self.noted else ""

    def _read(self, counted: Counts, pids: Iterable[int]) -> Reading:
        self._pids = list(pids)
        self._processor.look(self._pids)
        used_s = self._processor.total_s + self._here_s
        return Reading(
            counted.pass_ns / 1e9, self._loaded, counted.samples, counted.wait_ns / 1e9, self._busy_s, used_s
        )

    def _note(self, decision: Decision, pass_s: float) -> Noted:
        noted = Noted(pass_s, decision.size, decision.reason)
        self._asked_s = self._clock()
        self.noted.append(noted)
        self.changes += 1
        log.info("%s", noted)
        return noted

    def free_cores(self) -> float:
        """The cores that are left to this loader: by others of the process that load now, and by memory."""
        now_s = self._clock()
        others = sum(one.size.processes for one in list(_ALL) if one is not self and now_s - one._at_work_s < _LATELY_S)
        return max(1.0, min(core_share() - others, self.size.processes + room_for(self._pids)))


_ALL: weakref.WeakSet[Steering] = weakref.WeakSet()
