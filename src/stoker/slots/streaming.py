"""Rows of large batches are copied past the caches, where a compiler was there when Stoker was installed.

A batch that is larger than the caches does not profit from them: it is written once and read later, by a device or by
another core. Stores that go around them move two thirds of the bytes: 18.6 GB/s with two threads instead of 12.5 of
memcpy on the machine this was measured on (docs/decisions/0008-streaming-stores.md). No library that Stoker needs
anyway has such a copy, so there is one of thirty lines of C (`streaming.c`), built by `hatch_build.py`; without it
everything works, at memcpy's speed.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.contracts import Bytes

LIBRARY = Path(__file__).with_name("_streaming.so")
LEAST_BATCH_BYTES = 8 << 20  # a few slots of this size fill a last-level cache; smaller ones may be read from it
LEAST_ROW_BYTES = 32 << 10  # below, asking a row for its address costs as much as copying it


def pays_to_stream(row_bytes: int, rows: int) -> bool:
    """Whether a batch of so many such rows is better written with `stream_rows`."""
    return row_bytes >= LEAST_ROW_BYTES and row_bytes * rows >= LEAST_BATCH_BYTES and _library() is not None


def stream_rows(addresses: npt.NDArray[np.uintp], memory: Bytes) -> None:
    """Copy equally long, contiguous rows, given by their addresses, one behind the other into `memory`."""
    library = _library()
    assert library is not None, "ask pays_to_stream() first"
    library.stream_rows(memory.ctypes.data, addresses.ctypes.data, len(addresses), len(memory) // len(addresses))


@cache
def _library() -> Any:
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:  # not built here, or for another machine
        return None
    library.stream_rows.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    library.stream_rows.restype = None
    return library
