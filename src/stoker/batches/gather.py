"""Batches of datasets that are arrays already: one indexing operation a column, straight into the slot.

Equal to asking for each sample and collating, as long as every index is a plain one in range; anything else is a misfit
and takes the ordinary way, which raises the dataset's own error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stoker.batches.large import stream_at
from stoker.batches.layout import Branch, Layout, Leaf, Misfit, layout_of
from stoker.contracts import Bytes
from stoker.slots import pays_to_stream


def gather_layout(arrays: Sequence[Any], bare: bool) -> Layout:
    """How rows of these arrays lie in a slot: what a sample's layout would be."""
    leaves = tuple(_leaf(array) for array in arrays)
    return layout_of(leaves[0] if bare else Branch("tuple", leaves))


def plain_indices(keys: Any) -> Any:
    """The keys as an index array; Misfit where they are not all whole numbers."""
    if isinstance(keys, np.ndarray):
        return keys
    if not all(type(key) is int for key in keys):
        raise Misfit
    return np.fromiter(keys, np.int64, len(keys))


def gather_small(arrays: Sequence[Any], indices: Any) -> list[Any]:
    """The rows of `arrays` at `indices` as new tensors."""
    import torch

    index = torch.from_numpy(indices)
    return [
        torch.from_numpy(np.take(array, indices, axis=0))
        if isinstance(array, np.ndarray)
        else array.index_select(0, index)
        for array in arrays
    ]


def gather_rows(layout: Layout, arrays: Sequence[Any], indices: Any, memory: Bytes, start: int, rows: int) -> None:
    """Write the rows of `arrays` at `indices` as rows [start, …) of the batch; Misfit where one is not in range."""
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= len(arrays[0])):
        raise Misfit
    for leaf, array, place in zip(layout.leaves, arrays, layout.offsets(rows), strict=False):
        begin = place + start * leaf.row_bytes
        part = memory[begin : begin + leaf.row_bytes * len(indices)]
        if pays_to_stream(leaf.row_bytes, rows) and stream_at(array, indices, leaf.row_bytes, part):
            continue
        if leaf.kind == "tensor":
            _gather_tensor(leaf, array, indices, part)
        else:
            np.take(array, indices, axis=0, out=part.view(leaf.dtype).reshape(len(indices), *leaf.shape), mode="clip")


def _gather_tensor(leaf: Leaf, array: Any, indices: Any, part: Bytes) -> None:
    import torch

    out = torch.from_numpy(part).view(array.dtype).view(len(indices), *leaf.shape)
    torch.index_select(array, 0, torch.from_numpy(indices), out=out)


def _leaf(array: Any) -> Leaf:
    shape = tuple(array.shape[1:])
    if isinstance(array, np.ndarray):
        return Leaf("array", array.dtype.str, shape, array.dtype.itemsize * int(np.prod(shape)))
    name = str(array.dtype).removeprefix("torch.")
    return Leaf("tensor", name, shape, array.element_size() * int(np.prod(shape)))
