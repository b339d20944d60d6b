"""Tickets and reports between processes: records of 80 bytes in pipes, everything larger in the arena.

A pipe keeps records whole: writes of up to PIPE_BUF bytes are atomic, and readers that ask for one record at a time
take turns, so a ticket pipe is a queue that any number of workers may read, with no lock that a killed worker could
keep. Indices lie in the slot's key room as int64 (anything else is pickled into the notes); what a report carries
lies in the notes of its run. The write into the arena happens before the write into the pipe, and the other side
reads in the opposite order; both are system calls, which order memory on every platform.
"""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

import numpy as np

from stoker.contracts import Answer, Ask, Report, Ticket
from stoker.slots import Arena

RECORD = 80
_TICKET = struct.Struct("<qqqqiiiib?30x")  # order, position, epoch, keys, slot, start, stop, rows, ask, singly
# order, bytes, layout, busy, began, note, start, stop, slot, rows, retries, worker, lane, answer
_REPORT = struct.Struct("<qqqqqqiiiiihhb7x")
_NO_KEYS = -1


class TicketCode:
    """Encodes tickets in the training process, decodes them in a worker."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def encode(self, ticket: Ticket) -> bytes:
        """A record for the pipe; the keys go into the arena."""
        return _TICKET.pack(
            ticket.order,
            ticket.position,
            ticket.epoch,
            self._store_keys(ticket),
            ticket.slot,
            ticket.start,
            ticket.stop,
            ticket.rows,
            ticket.ask,
            ticket.singly,
        )

    def decode(self, record: bytes) -> Ticket:
        order, position, epoch, keys, slot, start, stop, rows, ask, singly = _TICKET.unpack(record)
        ticket = Ticket(order, Ask(ask), slot, start, stop, rows, epoch, position, singly=singly)
        ticket.keys = self._load_keys(ticket, keys)
        return ticket

    def _store_keys(self, ticket: Ticket) -> int:
        keys = ticket.keys
        if keys is None:
            return _NO_KEYS
        if isinstance(keys, np.ndarray) or all(type(key) is int and -(2**63) <= key < 2**63 for key in keys):
            data = np.asarray(keys, np.int64).tobytes()
            self._arena.write_keys(ticket.slot, ticket.start * 8, data)
            return len(data)
        data = pickle.dumps(keys, 5)
        self._arena.write_note(ticket.slot, ticket.start, ticket.rows, data, ticket.stop - ticket.start)
        return _NO_KEYS - 1 - len(data)

    def _load_keys(self, ticket: Ticket, size: int) -> Any:
        if size == _NO_KEYS:
            return None
        if size >= 0:
            # A copy, because torch warns of arrays over bytes, which cannot be written.
            return np.frombuffer(self._arena.read_keys(ticket.slot, ticket.start * 8, size), np.int64).copy()
        return pickle.loads(self._arena.read_note(ticket.slot, ticket.start, ticket.rows, _NO_KEYS - 1 - size))


class ReportCode:
    """Encodes reports in a worker, decodes them in the training process."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    def encode(self, report: Report, slot: int, rows: int) -> bytes:
        """A record for the pipe; the payload goes into the notes of the run."""
        note = b"" if report.payload is None else pickle.dumps(report.payload, 5)
        if note:
            self._arena.write_note(slot, report.start, rows, note, report.stop - report.start)
        return _REPORT.pack(
            report.order,
            report.size_bytes,
            report.layout,
            report.busy_ns,
            report.began_ns,
            len(note),
            report.start,
            report.stop,
            slot,
            rows,
            report.retries,
            report.worker,
            report.lane,
            report.answer,
        )

    def decode(self, records: bytes) -> list[Report]:
        """All reports in `records`."""
        reports = []
        for fields in _REPORT.iter_unpack(records):
            order, size, layout, busy, began, note, start, stop, slot, rows, retries, worker, lane, answer = fields
            report = Report(order, Answer(answer), start, stop, worker, size, layout, busy, None, began, lane, retries)
            if note:
                report.payload = pickle.loads(self._arena.read_note(slot, start, rows, note))
            reports.append(report)
        return reports


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
