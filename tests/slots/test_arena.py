"""The arena: the same memory everywhere, notes and keys of any size that fits, clear words for what does not."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker import SlotMemoryError
from stoker.slots import Arena
from stoker.slots.arena import LARGEST_BATCH, NOTES_AT


@settings(max_examples=40, deadline=None)
@given(
    notes=st.lists(st.binary(max_size=2000), min_size=1, max_size=12),
    slot=st.integers(0, 40),
)
def test_notes_of_one_batch_never_touch_each_other(notes: list[bytes], slot: int) -> None:
    arena = Arena()
    arena.reserve(slot + 1)
    for row, note in enumerate(notes):
        arena.write_note(slot, row, len(notes), note)
    read = [arena.read_note(slot, row, len(notes), len(note)) for row, note in enumerate(notes)]
    arena.close()
    assert read == notes


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
    assert LARGEST_BATCH < 13 * 2**30
    arena.close()


def test_too_many_keys_are_refused_with_their_size() -> None:
    arena = Arena()
    arena.reserve(1)
    with pytest.raises(SlotMemoryError, match="indices"):
        arena.write_keys(0, NOTES_AT, b"12345678")
    arena.close()


def test_slots_cost_one_descriptor_however_many_are_mapped() -> None:
    before = len(os.listdir("/proc/self/fd"))
    arena = Arena()
    arena.reserve(200)
    kept = [arena.rows(slot, 4096) for slot in range(200)]
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del kept
    arena.close()


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
from tests.loader.datasets import Made
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
def test_no_memory_for_a_slot_is_a_memory_error_that_says_what_to_try(mode: str) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    done = subprocess.run(
        [sys.executable, "-c", NO_MEMORY, mode], capture_output=True, text=True, timeout=100, env=environment
    )
    assert "MemoryError" in done.stdout, done.stderr
    assert "batch_size" in done.stdout


def test_this_machine_lets_a_test_limit_memory() -> None:
    assert resource.getrlimit(resource.RLIMIT_AS)[1] == resource.RLIM_INFINITY
