"""Writing columns of values into a slot's rows, and reading whole columns back as tensors.

Every writer first makes sure that all values of the run are what the layout says (type, dtype, shape), because a
silent conversion would give another batch than torch's loader; what differs is a misfit. Writing itself is one call a
column where possible: `torch.stack(out=…)` and `np.concatenate(out=…)` copy at memory speed and, for small samples,
cost 100 to 150 ns each instead of the 2 µs of converting and stacking them one by one (measured:
benchmarks/engine.py). Large rows of large batches are copied past the caches instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from stoker.batches.large import stream_arrays, stream_tensors
from stoker.batches.layout import Column, Layout, Leaf, Misfit, columns_of
from stoker.contracts import Bytes
from stoker.slots import pays_to_stream

if TYPE_CHECKING:
    import torch


def write_rows(layout: Layout, samples: Column, memory: Bytes, start: int, rows: int) -> list[Column]:
    """Write `samples` as rows [start, start + len) of a batch of `rows`; gives the loose columns back."""
    loose: list[Column] = []
    places = layout.offsets(rows)
    for leaf, column, place in zip(layout.leaves, columns_of(layout.tree, samples), places, strict=False):
        if leaf.kind == "loose":
            loose.append(_checked_loose(column))
        elif leaf.row_bytes:
            begin = place + start * leaf.row_bytes
            large = pays_to_stream(leaf.row_bytes, rows)
            _WRITERS[leaf.kind](leaf, column, memory[begin : begin + leaf.row_bytes * len(column)], large)
        else:  # empty shapes take no room, but must still be what the layout says
            _WRITERS[leaf.kind](leaf, column, np.empty(0, np.uint8), False)
    return loose


def read_columns(layout: Layout, memory: Bytes, rows: int, loose: Sequence[Column]) -> list[Any]:
    """The columns of a whole batch: tensors over the slot's memory, and the loose columns in their places."""
    loose_left = iter(loose)
    places = layout.offsets(rows)
    return [
        next(loose_left) if leaf.kind == "loose" else _tensor(leaf, memory[place : place + leaf.row_bytes * rows], rows)
        for leaf, place in zip(layout.leaves, places, strict=False)
    ]


def row_views(layout: Layout, memory: Bytes, rows: int, row: int) -> list[Any]:
    """One NumPy view a leaf, over that row of the slot: what a dataset's `read_into` fills."""
    return [
        _row_view(leaf, memory[place + row * leaf.row_bytes :][: leaf.row_bytes])
        for leaf, place in zip(layout.leaves, layout.offsets(rows), strict=False)
    ]


def _row_view(leaf: Leaf, memory: Bytes) -> Any:
    numbers = _numpy_dtype(leaf.kind, leaf.dtype)
    if numbers is None:
        raise Misfit
    return memory.view(numbers).reshape(leaf.shape)


def _tensor(leaf: Leaf, memory: Bytes, rows: int) -> torch.Tensor:
    """A column as a tensor, shaped by NumPy: after a step of the model, each call of torch's costs 30 µs."""
    import torch

    numbers = _numpy_dtype(leaf.kind, leaf.dtype)
    if numbers is not None:
        return torch.from_numpy(memory.view(numbers).reshape(rows, *leaf.shape))
    dtype = getattr(torch, leaf.dtype)
    if not memory.size:
        return torch.empty((rows, *leaf.shape), dtype=dtype)
    return torch.from_numpy(memory).view(dtype).view(rows, *leaf.shape)


@cache
def _numpy_dtype(kind: str, name: str) -> np.dtype[Any] | None:
    """None where NumPy has no such numbers: bfloat16, float8."""
    if kind != "tensor":
        return np.dtype(name)
    import torch

    try:
        return torch.empty(0, dtype=getattr(torch, name)).numpy().dtype
    except TypeError:
        return None


def _write_tensors(leaf: Leaf, column: Column, memory: Bytes, large: bool) -> None:
    import torch

    dtype, shape = getattr(torch, leaf.dtype), torch.Size(leaf.shape)
    for value in column:
        if type(value) is not torch.Tensor or value.dtype is not dtype or value.shape != shape or value.requires_grad:
            raise Misfit
    if not leaf.row_bytes:
        return
    if large and stream_tensors(column, memory):
        return
    out = torch.from_numpy(memory).view(dtype).view(len(column), *leaf.shape)
    try:
        torch.stack(list(column), 0, out=out)
    except (RuntimeError, NotImplementedError):  # layouts and devices that only look like plain tensors
        raise Misfit from None


def _write_arrays(leaf: Leaf, column: Column, memory: Bytes, large: bool) -> None:
    dtype, shape = np.dtype(leaf.dtype), leaf.shape
    whole = _are_contiguous(column, dtype, shape)
    rows = memory.view(dtype).reshape(len(column), *shape)
    if large and stream_arrays(column, memory):
        return
    if whole and shape and leaf.row_bytes:
        np.concatenate(list(column), out=rows.reshape(len(column) * shape[0], *shape[1:]))
    else:
        for row, value in enumerate(column):
            rows[row] = value


def _are_contiguous(column: Column, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Whether all these arrays lie in memory as their rows will; Misfit unless each has this type and shape."""
    whole = True
    for value in column:
        if not isinstance(value, np.ndarray) or value.dtype != dtype or value.shape != shape:
            raise Misfit
        if min(value.strides, default=0) < 0:  # torch refuses these, with a message of its own
            raise Misfit
        whole = whole and value.flags.c_contiguous
    return whole


def _write_numbers(kind: type) -> Any:
    def write(leaf: Leaf, column: Column, memory: Bytes, _large: bool) -> None:
        if {type(value) for value in column} != {kind}:
            raise Misfit
        try:
            memory.view(leaf.dtype)[:] = column
        except OverflowError:
            raise Misfit from None

    return write


def _write_scalars(leaf: Leaf, column: Column, memory: Bytes, _large: bool) -> None:
    dtype = np.dtype(leaf.dtype)
    if any(not isinstance(value, np.generic) or value.dtype != dtype for value in column):
        raise Misfit
    memory.view(dtype)[:] = column


def _checked_loose(column: Column) -> Column:
    if not all(type(value) is str or type(value) is bytes for value in column):
        raise Misfit
    return column


_WRITERS: dict[str, Any] = {
    "tensor": _write_tensors,
    "array": _write_arrays,
    "int": _write_numbers(int),
    "float": _write_numbers(float),
    "bool": _write_numbers(bool),
    "scalar": _write_scalars,
}
