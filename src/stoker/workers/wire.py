"""Tickets and reports between processes: records of 80 bytes, everything larger in the arena.

A pipe keeps records whole: writes of up to PIPE_BUF bytes are atomic. Indices lie in the keys of the batch's slot: as
int64 where its rows are, and anything else pickled behind those. What a report carries lies in its worker's outbox. The
write into the arena happens before the write into the pipe, and the other side reads in the opposite order; both
are system calls, which order memory on every platform.

An outbox is filled from its beginning on, and begun anew when the training process has read all that was in it. So what
a report carries may be as large as it likes, and pages that were touched once are used again.
"""

from __future__ import annotations

import os
import pickle
import struct
import threading

import numpy as np

from stoker.contracts import Answer, Ask, Report, Ticket
from stoker.errors import RemoteError
from stoker.slots import Arena
from stoker.workers.control import Control

RECORD = 80
# number, position, epoch, where the keys are, their bytes, slot, start, stop, rows, ask, singly
_TICKET = struct.Struct("<qqqqqiiiib?22x")
# number, bytes, layout, busy, began, where the payload is, its bytes, start, stop, retries, worker, lane, answer
_REPORT = struct.Struct("<qqqqqqqiiiiib3x")
_NO_KEYS = -1
NO_REPORT = _REPORT.pack(*[-(2**63)] + [0] * 12)  # answers nothing: wakes whoever waits


class TicketCode:
    """Encodes tickets in the training process, decodes them in a worker."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._pickled: dict[int, tuple[int, int]] = {}  # slot -> (batch, where its next pickled keys may lie)

    def encode(self, ticket: Ticket) -> bytes:
        """A record; the keys go into the arena."""
        return _TICKET.pack(
            ticket.number,
            ticket.position,
            ticket.epoch,
            *self._store_keys(ticket),
            ticket.slot,
            ticket.start,
            ticket.stop,
            ticket.rows,
            ticket.ask,
            ticket.singly,
        )

    def decode(self, record: bytes) -> Ticket:
        """The ticket, with `keys` still to be loaded: that may run the user's code, and take long."""
        number, position, epoch, at, size, slot, start, stop, rows, ask, singly = _TICKET.unpack(record)
        return Ticket(number, Ask(ask), slot, start, stop, rows, epoch, position, StoredKeys(at, size), singly=singly)

    def load_keys(self, ticket: Ticket) -> None:
        """Put the keys themselves in the place of where they are."""
        at, size = ticket.keys.at, ticket.keys.size_bytes
        if size == _NO_KEYS:
            ticket.keys = None
        elif at == ticket.start * 8:
            # A copy, because torch warns of arrays over bytes, which cannot be written.
            ticket.keys = np.frombuffer(self._arena.read_keys(ticket.slot, at, size), np.int64).copy()
        else:
            ticket.keys = pickle.loads(self._arena.read_keys(ticket.slot, at, size))

    def _store_keys(self, ticket: Ticket) -> tuple[int, int]:
        keys = ticket.keys
        if keys is None:
            return 0, _NO_KEYS
        if isinstance(keys, np.ndarray) or all(type(key) is int and -(2**63) <= key < 2**63 for key in keys):
            data, at = np.asarray(keys, np.int64).tobytes(), ticket.start * 8
        else:
            data = pickle.dumps(keys, 5)
            at = self._room_for(ticket, len(data))
        self._arena.write_keys(ticket.slot, at, data)
        return at, len(data)

    def _room_for(self, ticket: Ticket, size_bytes: int) -> int:
        """A place behind the whole numbers: a new one each time, because an older one may still be read."""
        number, at = self._pickled.get(ticket.slot, (None, 0))
        if number != ticket.number:
            at = ticket.rows * 8
        self._pickled[ticket.slot] = ticket.number, at + size_bytes
        return at


class StoredKeys:
    """Where in the arena the keys of a ticket are."""

    __slots__ = ("at", "size_bytes")

    def __init__(self, at: int, size_bytes: int) -> None:
        self.at, self.size_bytes = at, size_bytes


class ReportWriter:
    """Encodes the reports of one worker."""

    def __init__(self, arena: Arena, control: Control, seat: int) -> None:
        self._arena, self._seat = arena, seat
        self._heard_at = control.heard_at(seat)
        self._lock = threading.Lock()
        self._begun = 0  # payloads so far
        self._end = 0  # of what lies in the outbox

    def encode(self, report: Report) -> bytes:
        """A record for the pipe; the payload goes into the outbox."""
        payload = b"" if report.payload is None else pickle.dumps(report.payload, 5)
        at = self._store(payload) if payload else 0
        return _REPORT.pack(
            report.number,
            report.size_bytes,
            report.layout,
            report.busy_ns,
            report.began_ns,
            at,
            len(payload),
            report.start,
            report.stop,
            report.retries,
            self._seat,
            report.lane,
            report.answer,
        )

    def _store(self, payload: bytes) -> int:
        with self._lock:
            if self._arena.control[self._heard_at] == self._begun:
                self._end = 0  # all has been read
            at, self._end = self._end, self._end + len(payload)
            self._begun += 1
        try:
            self._arena.write_outbox(self._seat, at, payload)
        except BaseException:  # too large: nobody will read it
            with self._lock:
                self._begun -= 1
            raise
        return at


class ReportReader:
    """Decodes the reports of all workers, in the training process."""

    def __init__(self, arena: Arena, control: Control) -> None:
        self._arena, self._control = arena, control

    def decode(self, records: bytes) -> list[Report]:
        """All reports in `records`."""
        reports = []
        for fields in _REPORT.iter_unpack(records):
            number, size, layout, busy, began, at, payload, start, stop, retries, worker, lane, answer = fields
            report = Report(number, Answer(answer), start, stop, worker, size, layout, busy, None, began, lane, retries)
            if payload:
                self._load(report, at, payload)
            reports.append(report)
        return reports

    def _load(self, report: Report, at: int, size_bytes: int) -> None:
        data = self._arena.read_outbox(report.worker, at, size_bytes)
        self._arena.control[self._control.heard_at(report.worker)] += 1
        try:
            report.payload = pickle.loads(data)
        except Exception as error:  # the user's own class, which could be pickled there and cannot be unpickled here
            where = f"in the training process, reading what DataLoader worker process {report.worker} sent"
            report.answer, report.payload = Answer.ERROR, RemoteError.capture(error, where)


def write_records(fd: int, records: list[bytes]) -> int:
    """Write as many records as fit into a pipe that does not block; says how many."""
    written = 0
    while written < len(records):
        chunk = b"".join(records[written : written + _AT_ONCE])
        try:
            os.write(fd, chunk)
        except BlockingIOError:
            break
        written += len(chunk) // RECORD
    return written


_AT_ONCE = 4096 // RECORD  # PIPE_BUF on Linux: what a pipe takes whole or not at all
if _TICKET.size != RECORD or _REPORT.size != RECORD:
    raise AssertionError(f"records have {_TICKET.size} and {_REPORT.size} bytes instead of {RECORD}")
