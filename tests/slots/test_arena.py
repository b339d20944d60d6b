"""The arena: the same memory everywhere, notes and keys of any size that fits, clear words for what does not."""

from __future__ import annotations

import ctypes
import os
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.programs import Nursery

from stoker import SlotMemoryError
from stoker.slots import Arena, PrivateArena, region_of
from stoker.slots.arena import GIB, survey


@settings(max_examples=40, deadline=None)
@given(
    notes=st.lists(st.binary(max_size=2000), min_size=1, max_size=12),
    slots=st.integers(1, 12),
    limit=st.none() | st.integers(2**20, 2**36),
)
def test_outboxes_keys_and_rows_never_touch_each_other(notes: list[bytes], slots: int, limit: int | None) -> None:
    arena = Arena(ground=survey(5000, len(notes), limit))
    arena.reserve(slots)
    for slot in range(slots):
        arena.rows(slot, 5000)[:] = slot + 1
        arena.write_keys(slot, 0, bytes([slot]) * 3000)
    for outbox, note in enumerate(notes):
        arena.write_outbox(outbox, 0, note)
    arena.control[0] = arena.control[-1] = 7
    assert [arena.read_outbox(outbox, 0, len(note)) for outbox, note in enumerate(notes)] == notes
    for slot in range(slots):
        assert (arena.rows(slot, 5000) == slot + 1).all()
        assert arena.read_keys(slot, 0, 3000) == bytes([slot]) * 3000
    assert (arena.control[0], arena.control[-1]) == (7, 7)
    arena.close()


@pytest.mark.parametrize("limit", [None, 2**30])
def test_a_forked_process_sees_slots_that_were_made_after_it(limit: int | None) -> None:
    arena = Arena(ground=survey(5000, 1, limit))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(reader, 1)
        arena.rows(2, 5000)[:] = 42
        os._exit(0)
    arena.reserve(3)
    os.write(writer, b".")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(reader)
    os.close(writer)
    assert (arena.rows(2, 5000) == 42).all()
    arena.close()


def test_a_limit_that_leaves_no_room_is_refused_with_what_is_needed() -> None:
    with pytest.raises(SlotMemoryError, match=r"ulimit -f.*at least 1,048,576 bytes"):
        survey(5000, 1, limit=2**19)


def test_a_forked_process_writes_into_the_same_rows() -> None:
    arena = Arena()
    arena.reserve(3)
    pid = os.fork()
    if pid == 0:
        arena.rows(2, 5000)[:] = 42
        os._exit(0)
    os.waitpid(pid, 0)
    assert (arena.rows(2, 5000) == 42).all()
    arena.close()


def test_a_batch_too_large_for_a_slot_is_refused_with_its_size() -> None:
    arena = Arena()
    arena.reserve(1)
    with pytest.raises(SlotMemoryError, match=r"13,958,643,712 bytes.*smaller batch_size") as caught:
        arena.rows(0, 13 * 2**30)
    assert isinstance(caught.value, MemoryError)
    assert arena.largest_batch < 13 * 2**30
    arena.close()


def test_too_many_keys_are_refused_with_their_size() -> None:
    arena = Arena()
    arena.reserve(1)
    with pytest.raises(SlotMemoryError, match="indices"):
        arena.write_keys(0, 4 * GIB, b"12345678")
    arena.close()


def test_slots_cost_one_descriptor_however_many_are_mapped() -> None:
    before = len(os.listdir("/proc/self/fd"))
    arena = Arena()
    arena.reserve(200)
    kept = [arena.rows(slot, 4096) for slot in range(200)]
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del kept
    arena.close()


def test_lanes_that_ask_for_a_private_slot_at_the_same_time_get_the_same_memory() -> None:
    arena = PrivateArena()
    for slot in range(100):
        together = threading.Barrier(4)

        def address(slot: int = slot, together: threading.Barrier = together) -> int:
            together.wait()
            return arena.rows(slot, 5000).ctypes.data

        with ThreadPoolExecutor(4) as lanes:
            assert len({lane.result() for lane in [lanes.submit(address) for _ in range(4)]}) == 1
    arena.close()


@pytest.mark.parametrize("kind", [Arena, PrivateArena])
def test_a_slots_whole_mapping_is_found_from_any_view(kind: type[Any]) -> None:
    arena = kind()
    arena.reserve(2)
    rows = arena.rows(1, 50_000)
    first, last = region_of(rows.ctypes.data), region_of(rows[49_000:].ctypes.data)
    assert first is last is not None
    assert first.size_bytes >= 50_000
    assert region_of(np.zeros(10).ctypes.data) is None
    del rows
    arena.close()


def test_what_was_done_to_a_mapping_is_undone_before_it_is_unmapped_and_in_no_forked_child() -> None:
    arena = PrivateArena()
    rows = arena.rows(0, 5000)
    region = region_of(rows.ctypes.data)
    assert region is not None
    reader, writer = os.pipe()
    region.before_unmapping.append(lambda: os.write(writer, ctypes.string_at(region.address, 1)) and None)
    rows[:] = ord("a")
    if (pid := os.fork()) == 0:
        arena.close()
        del rows
        os._exit(region_of(region.address) is not None)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    arena.close()
    del rows
    assert region_of(region.address) is None
    assert os.read(reader, 10) == b"a"  # once
    os.close(reader)
    os.close(writer)


def test_slots_are_not_files_in_dev_shm() -> None:
    before = set(os.listdir("/dev/shm"))
    arena = Arena()
    arena.reserve(4)
    arena.rows(3, 1_000_000)[:] = 1
    assert set(os.listdir("/dev/shm")) == before
    arena.close()


NO_MEMORY = """
import resource, sys
import numpy, torch, stoker
from stoker import Workers
from tests.datasets import Made
sample = torch.ones(3, 64, 64)
mode = sys.argv[1]
workers = {"inline": Workers(), "threads": Workers(0, 2), "process": Workers(1, 1, "fork")}[mode]
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + 60 * 2**20, resource.RLIM_INFINITY))
try:
    next(iter(stoker.DataLoader(Made(4000, lambda index: sample), 2000, workers=workers)))
except MemoryError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.faults
@pytest.mark.parametrize("mode", ["inline", "process"])
def test_no_memory_for_a_slot_is_a_memory_error_that_says_what_to_try(
    mode: str, nursery: Nursery, tmp_path: Path
) -> None:
    program = tmp_path / "no_memory.py"
    program.write_text(NO_MEMORY)
    done = nursery.run(program, mode)
    assert "MemoryError" in done.stdout, done.stderr
    assert "batch_size" in done.stdout


def test_this_machine_lets_a_test_limit_memory() -> None:
    assert resource.getrlimit(resource.RLIMIT_AS)[1] == resource.RLIM_INFINITY
