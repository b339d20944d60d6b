"""How a batch is dealt to workers: as parts, as runs for whoever is free, or whole.

    parts     every worker makes the same part of each batch: all hands work on the first batch, and what a worker's
              copy of the dataset sees depends on nothing but the seed and the number of workers, as with torch
    rows      short runs, taken by whoever is free: a slow sample idles nobody, but who loads what is left to chance
    batches   one worker makes a whole batch, in torch's round robin

Parts of small batches are dealt on from batch to batch, so that with batches of one this is torch's round robin too.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker.contracts import Ask, Ticket
from stoker.options import Workers
from stoker.passes.making import Making

Deal = Iterator[tuple[Ticket, int | None]]
# A lane should get through a run in about this time: short enough for balance, long enough that a ticket and its report
# do not show. Two workers that decode JPEG were measured at 0.78 of the speed of fixed parts with runs of 2 ms, and at
# 1.03 with 12 ms: on a machine with as many workers as cores, each report takes a core from them.
_RUN_TARGET_NS = 12_000_000


class Sharing:
    """Deals batches to workers."""

    def __init__(self, workers: Workers, share: str) -> None:
        self._workers, self._share = workers, share
        self._dealt = 0  # parts dealt so far: the next part goes to worker `_dealt % processes`
        self._row_ns = 0.0  # a running mean of the time a row takes; 0: not known yet

    def deal(self, making: Making) -> Deal:
        """The tickets of a batch, each with the worker it is meant for (None: any)."""
        if making.ask is Ask.BATCH:
            yield _ticket(making, 0, making.rows), making.worker
        elif self._share == "rows":
            for start, stop in _runs(0, making.rows, self._run_rows(making.rows, self._workers.total_lanes)):
                yield _ticket(making, start, stop), None
        else:
            yield from self._parts(making)

    def deal_row(self, making: Making, row: int) -> Deal:
        """A ticket for one row of a batch, meant for the worker whose turn it is."""
        worker = None
        if self._share != "rows":
            worker = self._dealt % max(1, self._workers.processes)
            self._dealt += 1
        yield _ticket(making, row, row + 1), worker

    def resize(self, workers: Workers) -> None:
        """Others load from now on."""
        self._workers = workers

    def learn(self, rows: int, busy_ns: int) -> None:
        """Take a report's time into account for the length of later runs."""
        if rows > 0:
            self._row_ns += 0.2 * (busy_ns / rows - self._row_ns) if self._row_ns else busy_ns / rows

    def _parts(self, making: Making) -> Deal:
        processes = max(1, self._workers.processes)
        parts = min(processes, making.rows)
        for start, stop in _even(making.rows, parts, first=making.number):
            worker = self._dealt % processes
            self._dealt += 1
            for begin, end in _runs(start, stop, self._run_rows(stop - start, self._workers.lanes)):
                yield _ticket(making, begin, end), worker

    def _run_rows(self, rows: int, lanes: int) -> int:
        if self._workers.rows_per_run is not None:
            return self._workers.rows_per_run
        if self._share != "rows" and lanes == 1:
            return max(1, rows)
        fair = -(-rows // (4 * lanes)) if not self._row_ns else int(_RUN_TARGET_NS / self._row_ns)
        return max(1, min(fair, -(-rows // max(1, lanes))))


def _ticket(making: Making, start: int, stop: int) -> Ticket:
    keys = None if making.keys is None else making.keys[start:stop]
    where = making.slot, start, stop, making.rows
    return Ticket(making.number, making.ask, *where, making.epoch, making.draw.position, keys)


def _even(rows: int, parts: int, first: int) -> Iterator[tuple[int, int]]:
    """Cut rows into parts that differ by one at most; who gets the longer ones moves on with each batch."""
    least, longer = divmod(rows, parts)
    start = 0
    for part in range(parts):
        stop = start + least + ((part - first) % parts < longer)
        yield start, stop
        start = stop


def _runs(start: int, stop: int, rows: int) -> Iterator[tuple[int, int]]:
    for begin in range(start, stop, rows):
        yield begin, min(begin + rows, stop)
