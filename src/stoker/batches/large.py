"""Large rows, copied by address past the caches (`stoker.slots.streaming`), where they lie in memory as they are.

Everything else (views with strides, other devices, lazily negated or conjugated tensors) is left to torch and NumPy:
the functions say whether they have copied. Addresses are asked for in one comprehension a column, since a call for each
row took a fifth as long as copying its 64 KiB.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stoker.batches.layout import Column
from stoker.contracts import Bytes
from stoker.slots import stream_rows


def stream_tensors(column: Column, memory: Bytes) -> bool:
    """Copy these equally large tensors one behind the other, if all of them lie plainly."""
    import torch

    strided = torch.strided
    addresses = [
        tensor.data_ptr()
        for tensor in column
        if tensor.is_cpu
        and tensor.layout is strided
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.is_conj()
    ]
    return _streamed(addresses, len(column), memory)


def stream_arrays(column: Column, memory: Bytes) -> bool:
    """Copy these equally large arrays one behind the other, if all of them lie plainly."""
    addresses = [array.__array_interface__["data"][0] for array in column if array.flags.c_contiguous]
    return _streamed(addresses, len(column), memory)


def stream_at(source: Any, indices: Any, row_bytes: int, memory: Bytes) -> bool:
    """Copy the rows of one tensor or array at these indices, which are in range, if it lies plainly."""
    if isinstance(source, np.ndarray):
        plain, address = source.flags.c_contiguous, source.ctypes.data
    else:
        plain = source.is_cpu and source.is_contiguous() and not source.is_neg() and not source.is_conj()
        address = source.data_ptr()
    if plain:
        stream_rows((address + indices * row_bytes).astype(np.uintp), memory)
    return bool(plain)


def _streamed(addresses: list[int], count: int, memory: Bytes) -> bool:
    if len(addresses) != count:
        return False
    stream_rows(np.array(addresses, np.uintp), memory)
    return True
