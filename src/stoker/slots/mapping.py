"""One mapping of a piece of a file, which costs no descriptor.

The standard library's `mmap` duplicates the descriptor for every mapping (until Python 3.13 lets one say no), so a
loader with thirty slots would hold thirty descriptors in each process, too many for `ulimit -n 64`. This calls
mmap(2) itself. The memory is unmapped when the last array over it is gone, never before, and not at interpreter exit,
where views may still be read by other threads and the kernel is about to clean up anyway.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Any

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


def map_shared(fd: int, offset: int, length: int) -> Any:
    """`length` bytes of the file from `offset`, shared and writable, as an object with the buffer interface."""
    address = _LIBC.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, offset)
    if address is None or address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    memory = (ctypes.c_uint8 * length).from_address(address)
    weakref.finalize(memory, _LIBC.munmap, address, length).atexit = False
    return memory
