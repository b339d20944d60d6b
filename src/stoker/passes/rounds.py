"""torch's round robin: which worker makes the next whole batch.

Workers of iterable datasets end at different times; the ones that are left go on in turn. With `in_order=False` a
worker that is behind is passed over. This mirrors what torch's loader does, because the order in which batches of
several iterators interleave is seen by users.
"""

from __future__ import annotations

from typing import Any


class Rounds:
    """Deals whole batches to the workers that are still active."""

    def __init__(self, workers: int, in_order: bool, prefetch_factor: int) -> None:
        self._active = [True] * workers
        self._open = [0] * workers  # batches asked for and not yet answered
        self._in_order = in_order
        self._most = prefetch_factor * workers
        self._next = 0

    def resume(self, workers: dict[str, Any] | None) -> None:
        """Go on in turn after a resume. Workers whose iterables had ended say so again when they are asked."""
        if workers is not None and len(workers["states"]) == len(self._active):
            self._next = workers["turn"]

    def can_take(self) -> bool:
        """Whether any worker can take a batch now."""
        return any(map(self._is_free, range(len(self._active))))

    def take(self) -> int | None:
        """The worker for the next batch; None when nobody can take one now."""
        for _ in self._active:
            worker = self._next
            self._next = (self._next + 1) % len(self._active)
            if self._is_free(worker):
                self._open[worker] += 1
                return worker
        return None

    def take_again(self, worker: int | None) -> int | None:
        """The same worker once more, for a batch that has to be made again."""
        if worker is not None:
            self._open[worker] += 1
        return worker

    def answered(self, worker: int) -> None:
        self._open[worker] -= 1

    def end(self, worker: int) -> None:
        """This worker's iterable is used up."""
        self._active[worker] = False

    def _is_free(self, worker: int) -> bool:
        if not self._active[worker]:
            return False
        return self._in_order or self._open[worker] < self._most // sum(self._active)
