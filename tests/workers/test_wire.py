"""Tickets and reports survive the way through pipe and arena; errors survive pickling."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker import SlotMemoryError, WorkerDied, WorkerTimeout
from stoker.contracts import Answer, Ask, Report, Ticket
from stoker.slots import Arena
from stoker.workers.control import Control
from stoker.workers.wire import RECORD, ReportReader, ReportWriter, TicketCode, write_records

KEYS = st.none() | st.lists(st.integers(-(2**70), 2**70) | st.text() | st.booleans(), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(keys=KEYS, order=st.integers(0, 2**60), slot=st.integers(0, 30), epoch=st.integers(0, 2**40))
def test_tickets_arrive_as_they_were_sent(keys: list[Any] | None, order: int, slot: int, epoch: int) -> None:
    arena = Arena()
    arena.reserve(slot + 1)
    rows = len(keys or [0])
    sent = Ticket(order, Ask.ROWS, slot, 0, rows, rows, epoch, position=7, keys=keys)
    code = TicketCode(arena)
    record = code.encode(sent)
    got = code.decode(record)
    code.load_keys(got)
    arena.close()
    got.keys = got.keys.tolist() if isinstance(got.keys, np.ndarray) else got.keys
    assert len(record) == RECORD
    assert got == sent
    assert list(map(type, got.keys or [])) == list(map(type, keys or []))


@settings(max_examples=60, deadline=None)
@given(
    payloads=st.lists(st.none() | st.text() | st.binary(max_size=3000), min_size=1, max_size=9),
    layout=st.integers(-(2**63), 2**63 - 1),
)
def test_reports_of_the_runs_of_a_batch_arrive_as_they_were_sent(payloads: list[Any], layout: int) -> None:
    room = Control(seats=4, lanes=1)
    arena = Arena(room.size_bytes, outboxes=4)
    writers = [ReportWriter(arena, room, seat) for seat in range(4)]
    reader = ReportReader(arena, room)
    sent = [
        Report(at, Answer.DONE, at, at + 1, at % 4, size_bytes=2**40, layout=layout, busy_ns=5, payload=payload)
        for at, payload in enumerate(payloads)
    ]
    for _ in range(3):  # what was read is overwritten
        records = b"".join([writers[report.worker].encode(report) for report in sent])
        assert reader.decode(records) == sent
    arena.close()


def test_an_outbox_is_begun_anew_when_all_of_it_was_read_and_not_before() -> None:
    room = Control(seats=1, lanes=1)
    arena = Arena(room.size_bytes, outboxes=1)
    writer, reader = ReportWriter(arena, room, 0), ReportReader(arena, room)
    reports = [Report(at, Answer.DONE, 0, 1, 0, payload=bytes([at]) * 1000) for at in range(4)]
    records = [writer.encode(report) for report in reports[:2]]
    assert reader.decode(records[0]) == reports[:1]
    records.append(writer.encode(reports[2]))  # the second was not read yet
    assert reader.decode(records[1] + records[2]) == reports[1:3]
    first = arena.read_outbox(0, 0, 50)
    assert reader.decode(writer.encode(reports[3])) == reports[3:]
    assert arena.read_outbox(0, 0, 50) != first
    arena.close()


class Unreadable:
    def __reduce__(self) -> Any:
        return int, ("nothing that is a number",)


def test_what_cannot_be_unpickled_is_an_error_of_that_report_alone() -> None:
    room = Control(seats=1, lanes=1)
    arena = Arena(room.size_bytes, outboxes=1)
    writer, reader = ReportWriter(arena, room, 0), ReportReader(arena, room)
    payloads = ["before", Unreadable(), "after"]
    records = [writer.encode(Report(at, Answer.DONE, 0, 1, 0, payload=one)) for at, one in enumerate(payloads)]
    before, odd, after = reader.decode(b"".join(records))
    arena.close()
    assert (before.payload, after.payload) == ("before", "after")
    assert odd.answer is Answer.ERROR
    assert odd.payload.name == "ValueError"


def test_a_full_pipe_takes_whole_records_only_and_the_rest_later() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    records = [bytes([number % 256]) * RECORD for number in range(3000)]
    written, read = 0, b""
    while written < len(records):
        count = write_records(writer, records[written:])
        assert count > 0
        written += count
        read += os.read(reader, RECORD * 700)
    os.close(writer)
    while chunk := os.read(reader, 65536):
        read += chunk
    os.close(reader)
    assert read == b"".join(records)


def test_errors_keep_their_data_through_pickling() -> None:
    for kind, builtin in ((WorkerDied, RuntimeError), (WorkerTimeout, RuntimeError), (SlotMemoryError, MemoryError)):
        error = pickle.loads(pickle.dumps(kind("what happened", worker=3, samples=[1, 2])))
        assert isinstance(error, kind)
        assert isinstance(error, builtin)
        assert (str(error), error.worker, error.samples) == ("what happened", 3, [1, 2])
