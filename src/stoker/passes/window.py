"""How many batches may be under way at a time.

`most` is what the user's prefetch asks for; `least` is what keeps every lane busy, and where a loader begins. Memory
that was never touched is dear (3 to 15 µs a page where this was measured), so a loader of large batches goes beyond
`least` only when it has nothing better to do: when the training loop comes for a batch and finds all of them
finished. Then the workers have been idle, and one more batch ahead costs nobody anything. Loaders of small batches
start with `most`.
"""

from __future__ import annotations

from stoker.options import Workers

_LARGE_BYTES = 64 * 2**20  # a guess: all batches under way together, above which first touches are felt


def window_for(workers: Workers, prefetch_factor: int, rows: int | None) -> Window:
    """The window that these workers need; `rows` of each batch, where several of them share it, else None."""
    wanted = max(1, prefetch_factor) * max(1, workers.processes)
    if rows is None:
        wanted *= workers.lanes
        return Window(min(wanted, max(2, workers.total_lanes)), wanted, workers.prefetch_bytes, begin=wanted)
    busy = -(-2 * workers.total_lanes // rows)  # two rows for every lane
    if workers.lanes <= 1:
        return Window(min(wanted, max(2, busy)), wanted, workers.prefetch_bytes)
    return Window(max(2, busy), max(wanted, busy), workers.prefetch_bytes)


class Window:
    """Grows from `least` (or `begin`) to `most` batches, as far as `max_bytes` allows; that many always are."""

    def __init__(self, least: int, most: int, max_bytes: int, begin: int | None = None) -> None:
        self._least, self._most = min(least, most), most
        self._max_bytes = max_bytes
        self._size = self._least if begin is None else begin
        self._batch_bytes = 0

    def resized(self, other: Window) -> Window:
        """Another window, for other hands, that knows the batches of this one."""
        if self._batch_bytes:
            other.measured(self._batch_bytes)
        return other

    @property
    def size(self) -> int:
        return self._size

    @property
    def most(self) -> int:
        return self._most

    def measured(self, batch_bytes: int) -> None:
        """A batch of this size was made."""
        if batch_bytes <= self._batch_bytes and self._size > self._least:
            return
        self._batch_bytes = max(batch_bytes, self._batch_bytes, 1)
        if self._batch_bytes * self._most <= _LARGE_BYTES:
            self._size = self._most
        self._size = min(self._size, self._affordable())

    def all_were_ready(self) -> None:
        """The training loop came for a batch and found everything finished."""
        if self._batch_bytes:
            self._size = min(self._size + 1, self._affordable())

    def _affordable(self) -> int:
        return max(self._least, min(self._most, self._max_bytes // self._batch_bytes))
