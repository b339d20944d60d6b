"""Large rows, copied by address past the caches (`stoker.slots.streaming`), where they lie in memory as they are.

Everything else (views with strides, other devices, lazily negated or conjugated tensors) is left to torch and NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from stoker.contracts import Bytes
from stoker.slots import stream_rows


def streamed(column: Iterable[Any], memory: Bytes) -> bool:
    """Copy these equally large tensors or arrays one behind the other, if all of them can be; whether that was done."""
    addresses = [address_of(value) for value in column]
    if None in addresses:
        return False
    stream_rows(np.array(addresses, np.uintp), memory)
    return True


def streamed_at(array: Any, indices: Any, row_bytes: int, memory: Bytes) -> bool:
    """The same for the rows of one tensor or array at these indices, which are in range."""
    address = address_of(array)
    if address is None:
        return False
    stream_rows((address + indices * row_bytes).astype(np.uintp), memory)
    return True


def address_of(value: Any) -> int | None:
    """Where the numbers of a tensor or an array lie one after the other; None where they don't."""
    if isinstance(value, np.ndarray):
        return int(value.__array_interface__["data"][0]) if value.flags.c_contiguous else None
    return int(value.data_ptr()) if _lies_plainly(value) else None


def _lies_plainly(tensor: Any) -> bool:
    import torch

    here = tensor.layout is torch.strided and tensor.device.type == "cpu"
    return here and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
