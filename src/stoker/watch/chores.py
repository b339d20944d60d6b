"""What a pass does now and then, between two steps: look at memory, keep its page for `stoker top`, tell listeners.

Chores are done when the training loop asks for its next batch and before anything is done for that, so an error of a
listener loses no batch. The loop waits meanwhile, and their time is counted as its wait. A step costs two comparisons,
with the time and with the number of the step at which the next chore is due.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker.watch.page import Page
from stoker.watch.stats import Stats
from stoker.watch.tally import Counts

if TYPE_CHECKING:
    from stoker.watch.watch import PassWatch

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


class Chores:
    """The chores of one pass."""

    def __init__(self, listeners: list[Listener]) -> None:
        self._listeners = listeners
        self._page: Page | None = None
        self._page_ns = NEVER
        self._remove_page: Callable[[], object] | None = None
        self._shown = Counts()  # as things were when the page was last written
        self._steps_before = 0  # of the loader, when the pass began

    def begin(self, watch: PassWatch) -> tuple[int, int]:
        """A pass begins; says when to come back, as `due` does."""
        self._shown = watch.tally.total()
        self._steps_before = self._shown.steps
        self._page_ns = watch.count.begun_ns + _PAGE_EVERY_NS
        return self.due(watch, 0)

    def due(self, watch: PassWatch, steps: int) -> tuple[int, int]:
        """The time, and the step of this pass, at which there is something to do again."""
        due_ns = min(watch.tally.memory.due_ns, self._page_ns)
        next_step = min((listener.next_step for listener in self._listeners), default=NEVER)
        return due_ns, min(next_step - self._steps_before, steps + _LONGEST_LOG)

    def do(self, watch: PassWatch, steps: int, now_ns: int) -> None:
        """Do what is due."""
        watch.count.sum_up()
        memory = watch.tally.memory
        if now_ns >= memory.due_ns:
            memory.look(watch.pids())
        if now_ns >= self._page_ns:
            self._page_ns = now_ns + _PAGE_EVERY_NS
            self._show(watch)
        step = self._steps_before + steps
        for listener in list(self._listeners):
            if step >= listener.next_step:
                listener.tell(watch.stats(listener.every), step)

    def end(self) -> None:
        """The pass is over."""
        self._page_ns = NEVER
        if self._remove_page is not None:
            self._remove_page()

    def _show(self, watch: PassWatch) -> None:
        if self._page is None:
            owner = watch.owner()
            if owner is None or watch.facts() is None:
                self._page_ns = NEVER
                return
            self._page = Page()
            self._remove_page = weakref.finalize(owner, self._page.remove)  # also when a pass is left, or at exit
        now, before = watch.tally.total(), self._shown
        self._shown = now
        lately_s = max(1, now.pass_ns - before.pass_ns) / 1e9
        self._page.write(
            {
                **(watch.facts() or {}),
                "steps": now.steps,
                "samples": now.samples,
                "samples_per_s": (now.samples - before.samples) / lately_s,
                "bytes_per_s": (now.size_bytes - before.size_bytes) / lately_s,
                "wait_share": min(1.0, (now.wait_ns - before.wait_ns) / 1e9 / lately_s),
                "ready": watch.count.ready,
                "restarts": now.restarts,
                "worker_pids": watch.pids(),
            }
        )
