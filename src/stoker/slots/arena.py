"""The memory behind all slots of a loader: one anonymous, sparse file, mapped by every process that works for it.

A slot is an extent of that file, with far more room than it will use: pages that nobody touches cost nothing, so a slot
grows by being mapped longer, nobody resizes anything, and no descriptor travels after the workers have started.

    control           a few integers that all processes see: which epoch is current, what each lane holds
    outbox o          an extent for each worker: what its reports carry beside the slot
    slot s            an extent each
                      │ keys (4 GiB)         │ rows (12 GiB)                                          │
                        indices of the batch   the batch itself: the only part that is mapped

Why one memfd: it is not a file in /dev/shm, so a container with 64 MB there works; it costs one descriptor however many
slots there are; and the kernel frees it with the last process, also after kill -9. Keys and outboxes are small and go
through pread and pwrite, which need no mapping and fault no pages in.

Where files may not be that large (`ulimit -f`), each extent is a file of its own, as long as the limit allows. The
training process makes them, and notes their descriptors behind the control room; workers open them through /proc.

Promises: `rows(slot, n)` of the same slot is the same memory in every process; memory never moves under a view, because
an extent that grows is mapped anew and the old mapping lives as long as its views.
"""

from __future__ import annotations

import mmap
import os
import resource
import sys
import tempfile
import threading
import weakref
from dataclasses import dataclass, field
from multiprocessing import reduction
from typing import Any

import numpy as np

from stoker.contracts import Bytes
from stoker.errors import SlotMemoryError
from stoker.slots.mapping import map_private, map_shared, pids_that_map

GIB = 2**30
STRIDE = 16 * GIB
LEAST_STRIDE = 2**20  # a limit below this leaves no room for a batch
_MOST_FILES = 4096  # extents that can be files of their own
# Mapping a little more than asked saves a new mapping when the next batch is slightly larger; untouched pages are free.
_SLACK = 1.25
_PAGE = mmap.PAGESIZE


@dataclass(frozen=True)
class Ground:
    """How an arena is laid out; the same in all its processes."""

    control_bytes: int
    outboxes: int
    stride: int = STRIDE
    apart: bool = False  # each extent is a file of its own
    owner_pid: int = field(default_factory=os.getpid)

    @property
    def rows_at(self) -> int:
        """Where in its extent a slot's rows begin."""
        return self.stride // 4 // _PAGE * _PAGE

    @property
    def head_bytes(self) -> int:
        """The control room, and the table of files behind it."""
        return self.control_bytes + (8 * _MOST_FILES if self.apart else 0)

    @property
    def largest_batch(self) -> int:
        return self.stride - self.rows_at


def survey(control_bytes: int, outboxes: int, limit: int | None = None) -> Ground:
    """The ground for an arena: as large as files may be in this process (`limit`, by default what the kernel says)."""
    size = -(-control_bytes // _PAGE) * _PAGE
    allowed = _file_limit() if limit is None else limit
    if allowed is None:
        return Ground(size, outboxes)
    ground = Ground(size, outboxes, min(STRIDE, allowed // _PAGE * _PAGE), apart=True)
    if ground.stride < LEAST_STRIDE or ground.head_bytes > allowed:
        raise SlotMemoryError(
            f"files may have {allowed:,} bytes at most here (ulimit -f), and shared memory for batches counts as one. "
            f"Allow at least {max(LEAST_STRIDE, ground.head_bytes):,} bytes and a whole batch, or load with threads: "
            "workers=stoker.Workers(processes=0, threads=4).",
            size_bytes=max(LEAST_STRIDE, ground.head_bytes),
        )
    return ground


def _file_limit() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if soft == resource.RLIM_INFINITY or soft > 2**50 else soft


class Arena:
    """The slots' memory as one process sees it."""

    is_shared = True

    def __init__(self, control_bytes: int = 2**16, outboxes: int = 1, *, ground: Ground | None = None) -> None:
        self._begin(ground or survey(control_bytes, outboxes), None)

    def _begin(self, ground: Ground, fd: int | None) -> None:
        self._ground = ground
        self._fd = open_anonymous() if fd is None else fd
        self._maps: dict[int, Any] = {}
        self._files: dict[int, int] = {}  # extent -> its file, where each has its own
        self._slots = 0
        if fd is None:
            try:
                os.ftruncate(self._fd, ground.head_bytes)
            except OSError:
                os.close(self._fd)
                raise
        head = memoryview(map_shared(self._fd, 0, ground.head_bytes)).cast("B").cast("q")
        self.control, self._table = head[: ground.control_bytes // 8], head[ground.control_bytes // 8 :]
        self._close = weakref.finalize(self, _close_in, os.getpid(), self._fd, self._files)
        if fd is None:
            self._make(ground.outboxes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._ground, reduction.DupFd(self._fd))

    @property
    def fd(self) -> int:
        """The descriptor of the file, for whoever locks bytes of it."""
        return self._fd

    @property
    def largest_batch(self) -> int:
        """How many bytes of rows a slot may hold."""
        return self._ground.largest_batch

    def pids_that_map(self) -> set[int] | None:
        """The processes beside this one that see this memory; None where nobody can tell."""
        inodes = {os.fstat(fd).st_ino for fd in (self._fd, *self._files.values())}
        pids = pids_that_map(inodes)
        return None if pids is None else pids - {os.getpid()}

    def reserve(self, slots: int) -> None:
        """Make room for `slots` slots; called by the training process only."""
        if slots > self._slots:
            self._make(self._ground.outboxes + slots)
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
        if at + len(data) > self._ground.rows_at:
            raise _too_large(at + len(data), self._ground.rows_at, "the list of a batch's indices")
        self._write(self._ground.outboxes + slot, at, data)

    def read_keys(self, slot: int, at: int, size_bytes: int) -> bytes:
        return self._read(self._ground.outboxes + slot, at, size_bytes)

    def write_outbox(self, outbox: int, at: int, data: bytes) -> None:
        """Store what a worker's report carries, `at` bytes into its outbox."""
        if at + len(data) > self._ground.stride:
            raise _too_large(at + len(data), self._ground.stride, "what one worker reports beside its rows")
        self._write(outbox, at, data)

    def read_outbox(self, outbox: int, at: int, size_bytes: int) -> bytes:
        return self._read(outbox, at, size_bytes)

    def close(self) -> None:
        if self._close.alive:
            self._maps.clear()
            self.control.release()
            self._table.release()
            self._close()

    def _make(self, extents: int) -> None:
        """Make room for so many extents, outboxes first."""
        if not self._ground.apart:
            os.ftruncate(self._fd, self._ground.head_bytes + extents * STRIDE)
            return
        if extents > len(self._table):
            raise _too_large(extents, len(self._table), "batches that are kept, each in a file of its own,")
        for extent in range(len(self._files), extents):
            self._files[extent] = fd = open_anonymous()
            os.ftruncate(fd, self._ground.stride)
            self._table[extent] = fd

    def _place(self, extent: int) -> tuple[int, int]:
        """Which file an extent lies in, and where it begins there."""
        if not self._ground.apart:
            return self._fd, self._ground.head_bytes + extent * STRIDE
        fd = self._files.get(extent)
        if fd is None:  # the training process has made it since
            path = f"/proc/{self._ground.owner_pid}/fd/{self._table[extent]}"
            fd = self._files[extent] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return fd, 0

    def _write(self, extent: int, at: int, data: bytes) -> None:
        (fd, begin), view = self._place(extent), memoryview(data)
        begin += at
        while view:  # pwrite stops at 2 GiB, and may stop sooner
            written = os.pwrite(fd, view, begin)
            begin, view = begin + written, view[written:]

    def _read(self, extent: int, at: int, size_bytes: int) -> bytes:
        fd, begin = self._place(extent)
        parts, begin = [], begin + at
        while size_bytes:
            part = os.pread(fd, size_bytes, begin)
            parts.append(part)
            begin, size_bytes = begin + len(part), size_bytes - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _map(self, slot: int, size_bytes: int) -> Any:
        room = self._ground.largest_batch
        if size_bytes > room:
            raise _too_large(size_bytes, room, "one batch")
        length = min(room, -(-int(size_bytes * _SLACK) // _PAGE) * _PAGE) or _PAGE
        fd, begin = self._place(self._ground.outboxes + slot)
        try:
            return map_shared(fd, begin + self._ground.rows_at, length)
        except OSError as error:
            raise _no_memory(size_bytes, error) from error


class PrivateArena:
    """Slots of the training process alone: ordinary memory, so that after a fork each side has its own."""

    is_shared = False

    def __init__(self) -> None:
        self._maps: dict[int, Any] = {}
        self._mapping = threading.Lock()  # lanes that fill one batch must find one memory, not make one each

    def pids_that_map(self) -> set[int] | None:
        return set()

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
        "Try a smaller batch_size, a smaller prefetch_factor, or Workers(prefetch_bytes=...).",
        size_bytes=size_bytes,
    )


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


def _close_in(pid: int, fd: int, more: dict[int, int]) -> None:
    # A forked child that drops its copy of the loader closes only its own descriptor table's entry, which is right;
    # the pid check keeps a *thread-less* grandchild that has already closed everything from closing a reused number.
    if os.getpid() == pid:
        for one in (fd, *more.values()):
            os.close(one)


def _reopen(ground: Ground, handle: Any) -> Arena:
    arena = Arena.__new__(Arena)
    arena._begin(ground, handle.detach())
    return arena
