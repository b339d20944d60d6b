"""The memory behind all slots of a loader: one anonymous, sparse file, mapped by every process that works for it.

A slot is an extent of that file, with far more room than it will use: pages that nobody touches cost nothing, so a slot
grows by being mapped longer, nobody resizes anything, and no descriptor travels after the workers have started.

    control (1 MiB)   a few integers that all processes see: which epoch is current, what each lane holds
    slot s            CONTROL + s·STRIDE
                      │ keys (1 GiB) │ notes (3 GiB) │ rows (12 GiB)                      │
                        indices of     pickled parts   the batch itself: the only part
                        the batch      of a batch      that is mapped

Why one memfd: it is not a file in /dev/shm, so a container with 64 MB there works; it costs one descriptor however many
slots there are; and the kernel frees it with the last process, also after kill -9. Keys and notes are small and go
through pread and pwrite, which need no mapping and fault no pages in.

Promises: `rows(slot, n)` of the same slot is the same memory in every process; memory never moves under a view, because
an extent that grows is mapped anew and the old mapping lives as long as its views.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable
from multiprocessing import reduction
from typing import Any

import numpy as np

from stoker.contracts import Bytes
from stoker.errors import SlotMemoryError
from stoker.slots.mapping import is_mapped_by, map_private, map_shared

GIB = 2**30
CONTROL = 2**20
STRIDE = 16 * GIB
NOTES_AT = 1 * GIB
ROWS_AT = 4 * GIB
LARGEST_BATCH = STRIDE - ROWS_AT
NOTES_ROOM = ROWS_AT - NOTES_AT
# Mapping a little more than asked saves a new mapping when the next batch is slightly larger; untouched pages are free.
_SLACK = 1.25
_PAGE = mmap.PAGESIZE


class Arena:
    """The slots' memory as one process sees it."""

    is_shared = True

    def __init__(self, fd: int | None = None) -> None:
        self._fd = open_anonymous() if fd is None else fd
        self._maps: dict[int, Any] = {}
        self._slots = 0
        if fd is None:
            os.ftruncate(self._fd, CONTROL)
        self.control = memoryview(map_shared(self._fd, 0, CONTROL)).cast("B").cast("q")
        self._close = weakref.finalize(self, _close_in, os.getpid(), self._fd)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (reduction.DupFd(self._fd),)

    def is_mapped_by_others(self, own_pids: Iterable[int]) -> bool:
        """Whether a process beside this one and its workers still sees this memory."""
        return is_mapped_by(os.fstat(self._fd).st_ino, {os.getpid(), *own_pids})

    def reserve(self, slots: int) -> None:
        """Make room for `slots` slots; called by the training process only."""
        if slots > self._slots:
            os.ftruncate(self._fd, CONTROL + slots * STRIDE)
            self._slots = slots

    def rows(self, slot: int, size_bytes: int) -> Bytes:
        """The first `size_bytes` of a slot's rows, as an array of its own: views of it hold it, not another array.

        (A slice would not do: NumPy lets views of a slice hold the array behind it, and the slice dies unnoticed.)
        """
        mapped = self._maps.get(slot)
        if mapped is None or len(mapped) < size_bytes:
            mapped = self._maps[slot] = self._map(slot, size_bytes)
        return np.frombuffer(mapped, np.uint8, size_bytes)

    def write_keys(self, slot: int, at: int, data: bytes) -> None:
        """Store indices of a slot's batch, `at` bytes into their place."""
        if at + len(data) > NOTES_AT:
            raise _too_large(at + len(data), NOTES_AT, "the list of a batch's indices")
        os.pwrite(self._fd, data, _begin(slot) + at)

    def read_keys(self, slot: int, at: int, size_bytes: int) -> bytes:
        return os.pread(self._fd, size_bytes, _begin(slot) + at)

    def write_note(self, slot: int, row: int, rows: int, data: bytes, run: int = 1) -> None:
        """Store the pickled part of the `run` rows that begin at `row`; each row has a place of its own."""
        room = NOTES_ROOM // max(1, rows)
        if len(data) > room * max(1, run):
            raise _too_large(len(data), room * max(1, run), "the pickled part of a run of rows")
        place, view = _begin(slot) + NOTES_AT + row * room, memoryview(data)
        while view:  # pwrite stops at 2 GiB, and may stop sooner
            written = os.pwrite(self._fd, view, place)
            place, view = place + written, view[written:]

    def read_note(self, slot: int, row: int, rows: int, size_bytes: int) -> bytes:
        place = _begin(slot) + NOTES_AT + row * (NOTES_ROOM // max(1, rows))
        parts = []
        while size_bytes:
            part = os.pread(self._fd, size_bytes, place)
            parts.append(part)
            place, size_bytes = place + len(part), size_bytes - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def drop(self, slot: int) -> None:
        """Forget this process's mapping of a slot; views that exist keep it alive."""
        self._maps.pop(slot, None)

    def close(self) -> None:
        if self._close.alive:
            self._maps.clear()
            self.control.release()
            self._close()

    def _map(self, slot: int, size_bytes: int) -> Any:
        if size_bytes > LARGEST_BATCH:
            raise _too_large(size_bytes, LARGEST_BATCH, "one batch")
        length = min(LARGEST_BATCH, -(-int(size_bytes * _SLACK) // _PAGE) * _PAGE) or _PAGE
        try:
            return map_shared(self._fd, _begin(slot) + ROWS_AT, length)
        except OSError as error:
            raise _no_memory(size_bytes, error) from error


class PrivateArena:
    """Slots of the training process alone: ordinary memory, so that after a fork each side has its own."""

    is_shared = False

    def __init__(self) -> None:
        self._maps: dict[int, Any] = {}
        self._mapping = threading.Lock()  # lanes that fill one batch must find one memory, not make one each

    def is_mapped_by_others(self, own_pids: Iterable[int]) -> bool:
        return False

    def reserve(self, slots: int) -> None:
        """Nothing to make room in."""

    def rows(self, slot: int, size_bytes: int) -> Bytes:
        """The first `size_bytes` of a slot, as an array of its own: see `Arena.rows`."""
        with self._mapping:
            mapped = self._maps.get(slot)
            if mapped is None or len(mapped) < size_bytes:
                mapped = self._maps[slot] = _map_private(size_bytes)
        return np.frombuffer(mapped, np.uint8, size_bytes)

    def close(self) -> None:
        self._maps.clear()


def _map_private(size_bytes: int) -> Any:
    length = max(_PAGE, int(size_bytes * _SLACK))
    try:
        return map_private(length)
    except OSError as error:
        raise _no_memory(size_bytes, error) from error


def _no_memory(size_bytes: int, error: OSError) -> SlotMemoryError:
    return SlotMemoryError(
        f"no memory for a slot: a batch of {size_bytes:,} bytes could not be mapped ({error}). "
        "Try a smaller batch_size, a smaller prefetch_factor, or Workers(max_bytes=...).",
        size_bytes=size_bytes,
    )


def _begin(slot: int) -> int:
    return CONTROL + slot * STRIDE


def _too_large(size_bytes: int, room: int, what: str) -> SlotMemoryError:
    return SlotMemoryError(
        f"{what} takes {size_bytes:,} bytes, and a slot has room for {room:,}. Try a smaller batch_size.",
        size_bytes=size_bytes,
    )


def open_anonymous() -> int:
    """A descriptor of memory without a name, gone with its last holder."""
    if sys.platform == "linux":
        return os.memfd_create("stoker-slots", os.MFD_CLOEXEC)
    # Elsewhere a sparse file without a name is the nearest thing: one descriptor, gone with its last process.
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _close_in(pid: int, fd: int) -> None:
    # A forked child that drops its copy of the loader closes only its own descriptor table's entry, which is right;
    # the pid check keeps a *thread-less* grandchild that has already closed everything from closing a reused number.
    if os.getpid() == pid:
        os.close(fd)


def _reopen(handle: Any) -> Arena:
    return Arena(handle.detach())
