"""What a pass does now and then, between two steps: look at memory, keep its page for `stoker top`, tell listeners.

Chores are done when the training loop asks for its next batch and before anything is done for that, so an error of a
listener loses no batch. The loop waits meanwhile, and their time is counted as its wait. A step costs two comparisons,
with the time and with the number of the step at which the next chore is due.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from stoker.watch.page import Page
from stoker.watch.stats import Stats
from stoker.watch.tally import Counts, PassTally, Tally

_PAGE_EVERY_NS = 1_000_000_000
NEVER = 2**63
_LONGEST_LOG = 4096  # steps, after which they are summed up
Told = Callable[[Stats, int], object]


@dataclass
class Listener:
    """Somebody who wants statistics every so many steps."""

    function: Told
    every: int
    next_step: int
    earlier: Stats

    def tell(self, stats: Stats, step: int) -> None:
        """Tell what happened since the last time."""
        lately = stats.since(self.earlier)
        self.earlier, self.next_step = stats, step + self.every
        self.function(lately, step)


class Loads(Protocol):
    """What chores ask of an iterator."""

    _tally: Tally
    _count: PassTally

    def pids(self) -> list[int]:
        """The processes that load for this one."""

    def stats(self, latest_steps: int) -> Stats:
        """The numbers now."""

    def facts(self) -> dict[str, Any] | None:
        """What a page says beside numbers; None for no page."""


class Chores:
    """The chores of one iterator, over all its passes."""

    def __init__(self, listeners: list[Listener]) -> None:
        self._listeners = listeners
        self._page: Page | None = None
        self._page_ns = NEVER
        self._shown = Counts()  # as things were when the page was last written
        self._steps_before = 0  # of the loader, when the pass began

    def begin(self, iterator: Loads) -> tuple[int, int]:
        """A pass begins; says when to come back, as `due` does."""
        self.end()  # of one that was left
        self._shown = iterator._tally.total()
        self._steps_before = self._shown.steps
        self._page_ns = iterator._count.begun_ns + _PAGE_EVERY_NS
        return self.due(iterator, 0)

    def due(self, iterator: Loads, steps: int) -> tuple[int, int]:
        """The time, and the step of this pass, at which there is something to do again."""
        due_ns = min(iterator._tally.memory.due_ns, self._page_ns)
        next_step = min((listener.next_step for listener in self._listeners), default=NEVER)
        return due_ns, min(next_step - self._steps_before, steps + _LONGEST_LOG)

    def do(self, iterator: Loads, steps: int, now_ns: int) -> None:
        """Do what is due."""
        iterator._count.sum_up()
        memory = iterator._tally.memory
        if now_ns >= memory.due_ns:
            memory.look(iterator.pids())
        if now_ns >= self._page_ns:
            self._page_ns = now_ns + _PAGE_EVERY_NS
            self._show(iterator)
        step = self._steps_before + steps
        for listener in list(self._listeners):
            if step >= listener.next_step:
                listener.tell(iterator.stats(listener.every), step)

    def end(self) -> None:
        """The pass is over."""
        if self._page is not None:
            self._page.remove()

    def _show(self, iterator: Loads) -> None:
        if self._page is None:
            facts = iterator.facts()
            if facts is None:
                self._page_ns = NEVER
                return
            self._page = Page(facts)
            weakref.finalize(iterator, self._page.remove)  # when a pass is left, or the program ends
        now, before = iterator._tally.total(), self._shown
        self._shown = now
        lately_s = max(1, now.pass_ns - before.pass_ns) / 1e9
        self._page.write(
            {
                "steps": now.steps,
                "samples": now.samples,
                "samples_per_s": (now.samples - before.samples) / lately_s,
                "bytes_per_s": (now.size_bytes - before.size_bytes) / lately_s,
                "wait_share": min(1.0, (now.wait_ns - before.wait_ns) / 1e9 / lately_s),
                "ready": iterator._count.ready,
                "restarts": now.restarts,
                "worker_pids": iterator.pids(),
            }
        )
