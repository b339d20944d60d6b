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
from stoker.workers.wire import RECORD, ReportCode, TicketCode, write_records

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
    arena = Arena()
    arena.reserve(1)
    code = ReportCode(arena)
    sent = [
        Report(at, Answer.DONE, at, at + 1, worker=3, size_bytes=2**40, layout=layout, busy_ns=5, payload=payload)
        for at, payload in enumerate(payloads)
    ]
    records = b"".join([code.encode(report, 0, len(sent)) for report in sent])
    got = code.decode(records)
    arena.close()
    assert got == sent


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
