"""Inner batches to combined ones: the rows of all batches are one stream, cut anew every `rows` rows.

    inner   [0 1 2 3] [4 5 6 7] [8 9 10 11] [12 13]          inner size 4, the last batch short
    combined [0 1 2 3 4 5] [6 7 8 9 10 11] [12 13]           rows=6: one tail for the whole pass

A batch is a pytree (dicts, lists, tuples, named tuples, whatever is registered with torch's pytrees) whose leaves share
their first dimension. Rows of plain CPU tensors and of arrays are copied once, straight into the slot that the consumer
will see, as soon as they come, so an inner batch is free again at once. Lists of strings or numbers (what collating
makes of strings) are columns too, joined at the end; so are other tensors, by `torch.cat`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from stoker.contracts import Bytes, MapSlot
from stoker.errors import UnevenBatch
from stoker.nested import is_plain_tensor

_ALIGN = 64
_PLAIN = (str, bytes, int, float, complex, bool, type(None), np.generic)


@dataclass
class Rows:
    """One inner batch: its leaves, and how many of its rows were taken already."""

    leaves: list[Any]
    tree: Any
    count: int
    taken: int = 0

    @classmethod
    def of(cls, batch: Any) -> Rows:
        """Take a batch apart; UnevenBatch if it has no rows to speak of."""
        leaves, tree = pytree.tree_flatten(batch, is_leaf=_is_column)
        rows = cls(leaves, tree, 0)
        counts = [_rows_in(leaf, place, rows) for place, leaf in enumerate(leaves)]
        if not counts:
            raise UnevenBatch("rebatching needs batches with rows, but a batch is empty: it has no tensor at all")
        for place, count in enumerate(counts):
            if count != counts[0]:
                raise UnevenBatch(
                    "all parts of a batch should have the same number of rows, but "
                    f"{rows.name(0)} has {counts[0]} and {rows.name(place)} has {count}. "
                    "Rebatching cuts along the first dimension of every part."
                )
        rows.count = counts[0]
        return rows

    @property
    def left(self) -> int:
        return self.count - self.taken

    def name(self, place: int) -> str:
        """What a person would call a leaf, for errors: ['image'], [0]."""
        return self.names()[place] or "the batch itself"

    def names(self) -> list[str]:
        batch = pytree.tree_unflatten(self.leaves, self.tree)
        try:
            return [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(batch, is_leaf=_is_column)[0]]
        except ValueError:  # a type that was registered without names for its parts
            return [f"part {place}" for place in range(len(self.leaves))]


@dataclass
class Column:
    """One leaf of the combined batch, in the slot (`out`) or as pieces to be joined."""

    like: Any
    out: Any = None
    pieces: list[Any] | None = None

    def fits(self, leaf: Any) -> bool:
        if self.pieces is not None or type(leaf) is not type(self.like):
            return type(leaf) is type(self.like)
        return bool(leaf.dtype == self.like.dtype and leaf.shape[1:] == self.like.shape[1:])

    def put(self, at: int, leaf: Any, start: int, stop: int) -> None:
        if self.pieces is not None:
            self.pieces.append(_cut(leaf, start, stop))
        elif isinstance(leaf, np.ndarray):
            self.out[at : at + stop - start] = leaf[start:stop]
        else:
            self.out[at : at + stop - start].copy_(leaf[start:stop])

    def first(self, rows: int) -> Any:
        """The first `rows` rows: all that was put."""
        return self.out[:rows] if self.pieces is None else _join(self.pieces)


class Combined:
    """A combined batch while it is being filled, in the memory of a slot."""

    def __init__(self, like: Rows, rows: int, slot: MapSlot) -> None:
        self.rows, self.filled = rows, 0
        self._tree = like.tree
        sizes = [_size_in_slot(leaf) * rows for leaf in like.leaves]
        starts = [sum(-(-size // _ALIGN) * _ALIGN for size in sizes[:place]) for place in range(len(sizes) + 1)]
        self.size_bytes = starts[-1]
        self.memory: Bytes = slot(self.size_bytes) if self.size_bytes else np.empty(0, np.uint8)
        self._columns = [
            _column(leaf, rows, self.memory[start : start + size])
            for leaf, start, size in zip(like.leaves, starts, sizes, strict=False)
        ]

    def take_from(self, batch: Rows) -> None:
        """Copy as many rows as there are and as fit."""
        self._check(batch)
        count = min(batch.left, self.rows - self.filled)
        for column, leaf in zip(self._columns, batch.leaves, strict=True):
            column.put(self.filled, leaf, batch.taken, batch.taken + count)
        batch.taken += count
        self.filled += count

    def batch(self) -> Any:
        """The combined batch, shorter than `rows` if the source has ended."""
        return pytree.tree_unflatten([column.first(self.filled) for column in self._columns], self._tree)

    def _check(self, batch: Rows) -> None:
        if batch.tree != self._tree:
            raise UnevenBatch(
                f"a batch differs in structure from the one before it: {batch.tree} instead of {self._tree}. "
                "Rows can only be combined with rows of the same kind."
            )
        for place, (column, leaf) in enumerate(zip(self._columns, batch.leaves, strict=True)):
            if not column.fits(leaf):
                raise UnevenBatch(
                    f"{batch.name(place)} differs from the batch before it: rows of {_kind(leaf)} cannot be combined "
                    f"with rows of {_kind(column.like)}. Let collate_fn pad or convert them, or leave batch_size out."
                )


def combine(
    rest: Rows | None, pull: Callable[[], Rows | None], rows: int, slot: MapSlot
) -> tuple[Combined | None, Rows | None]:
    """A combined batch of up to `rows` rows (None: no row is left), and what is left of the last inner batch."""
    combined: Combined | None = None
    while combined is None or combined.filled < rows:
        if rest is None or not rest.left:
            rest = pull()
            if rest is None:
                break
        if rest.left:
            combined = combined or Combined(rest, rows, slot)
            combined.take_from(rest)
    return combined, rest if rest is not None and rest.left else None


def _is_column(value: Any) -> bool:
    """A list of plain values is one column, not a tree of scalars."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, _PLAIN) for one in value)


def _rows_in(leaf: Any, place: int, batch: Rows) -> int:
    if isinstance(leaf, (torch.Tensor, np.ndarray)):
        if leaf.ndim == 0:
            name = batch.name(place)
            raise UnevenBatch(f"rebatching needs rows, but {name} is a single value without a first dimension")
        return int(leaf.shape[0])
    if isinstance(leaf, list):
        return len(leaf)
    raise UnevenBatch(
        f"rebatching needs tensors or arrays that share their first dimension, but {batch.name(place)} is of type "
        f"{type(leaf).__name__!r}. Let collate_fn make a tensor of it, or leave batch_size out."
    )


def _in_slot(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray):
        return type(leaf) is np.ndarray and not leaf.dtype.hasobject
    return is_plain_tensor(leaf)


def _size_in_slot(leaf: Any) -> int:
    """Bytes that one row takes in the slot."""
    if not _in_slot(leaf):
        return 0
    size = leaf.dtype.itemsize
    for extent in leaf.shape[1:]:
        size *= extent
    return int(size)


def _column(leaf: Any, rows: int, memory: Bytes) -> Column:
    if not _in_slot(leaf):
        return Column(leaf, pieces=[])
    shape = (rows, *leaf.shape[1:])
    if isinstance(leaf, np.ndarray):
        return Column(np.empty((0, *shape[1:]), leaf.dtype), np.ndarray(shape, leaf.dtype, memory))
    empty = torch.empty((0, *shape[1:]), dtype=leaf.dtype)  # not a view, which would keep the inner batch alive
    if not len(memory):
        return Column(empty, torch.empty(shape, dtype=leaf.dtype))
    return Column(empty, torch.from_numpy(memory).view(leaf.dtype).view(shape))


def _kind(leaf: Any) -> str:
    if not isinstance(leaf, (torch.Tensor, np.ndarray)):
        return f"type {type(leaf).__name__!r}"
    return f"shape {tuple(leaf.shape[1:])} and {leaf.dtype}"


def _cut(leaf: Any, start: int, stop: int) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided:
        return torch.narrow_copy(leaf, 0, start, stop - start)  # sparse tensors have no slices
    return leaf[start:stop]


def _join(pieces: list[Any]) -> Any:
    if isinstance(pieces[0], list):
        return [value for piece in pieces for value in piece]
    return np.concatenate(pieces) if isinstance(pieces[0], np.ndarray) else torch.cat(pieces)
