"""One mapping of memory, which costs no descriptor and can be found again from an address in it.

The standard library's `mmap` duplicates the descriptor for every mapping (until Python 3.13 lets one say no), so a
loader with thirty slots would hold thirty descriptors in each process, too many for `ulimit -n 64`. This calls
mmap(2) itself. The memory is unmapped when the last array over it is gone, never before, and not at interpreter exit,
where views may still be read by other threads and the kernel is about to clean up anyway.

Whoever is given a view of a batch, wherever it has been, can find the slot's whole mapping with `region_of`: memory is
page-locked as a whole, once, and has to be let go before it is unmapped.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable
from typing import Any

from stoker.proc import all_pids, started_at

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class Region:
    """A mapping of this process, from its address on."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.address, self.size_bytes = address, size_bytes
        self.is_claimed = False  # somebody has page-locked it, or tried to: once is enough
        self.before_unmapping: list[Callable[[], None]] = []
        self._owner_pid = os.getpid()

    def unmap(self) -> None:
        """Undo what was done to the memory, then let it go."""
        _REGIONS.pop(self.address, None)
        if os.getpid() == self._owner_pid:  # a forked child has the memory, not what a driver knows of it
            for undo in self.before_unmapping:
                undo()
        _LIBC.munmap(self.address, self.size_bytes)


_REGIONS: dict[int, Region] = {}  # by address; few, and changed from finalizers, so read by copying and without a lock


def region_of(address: int) -> Region | None:
    """The mapping that an address lies in, if it is one of ours."""
    for region in list(_REGIONS.values()):
        if region.address <= address < region.address + region.size_bytes:
            return region
    return None


def map_shared(fd: int, offset: int, length: int) -> Any:
    """`length` bytes of the file from `offset`, shared and writable, as an object with the buffer interface."""
    return _map(length, mmap.MAP_SHARED, fd, offset)


def map_private(length: int) -> Any:
    """`length` bytes of new memory: after a fork each side has its own."""
    return _map(length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)


def _map(length: int, flags: int, fd: int, offset: int) -> Any:
    address = _LIBC.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, offset)
    if address is None or address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    memory = (ctypes.c_uint8 * length).from_address(address)
    region = _REGIONS[address] = Region(address, length)
    weakref.finalize(memory, region.unmap).atexit = False
    return memory


def pids_that_map(inodes: set[int]) -> set[int] | None:
    """The processes that map an anonymous file with one of these inodes.

    Takes about a millisecond a process. What cannot be looked into counts as mapping it; None on systems without /proc.
    """
    try:
        pids = all_pids()
    except OSError:
        return None
    wanted = {str(inode).encode() for inode in inodes}
    return {pid for pid in pids if _maps(pid, wanted)}


def _maps(pid: int, inodes: set[bytes]) -> bool:
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:  # address, access, offset, device, inode, name
            return any(b"memfd:" in line and line.split(None, 5)[4] in inodes for line in file)
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended
    except PermissionError:
        return started_at(pid) >= started_at(os.getpid())  # a process older than this one is no child of it
