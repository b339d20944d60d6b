"""How the samples of a batch lie in a slot: learned from one sample, equal in every process that sees an equal sample.

A layout is a tree that mirrors the sample: nodes for tuples, lists, dicts and named tuples, leaves for what is written
as rows. Each leaf gets a column, rows × bytes per row, one after the other, aligned:

    slot:  │ column 0: row 0, row 1, … │ column 1: row 0, … │ …          offsets follow from (layout, rows) alone,

so two workers that fill different rows of one batch need not talk to each other. Text and bytes have no fixed size:
those leaves are *loose*, and travel pickled beside the slot. Whatever a layout cannot hold exactly as torch's
`default_collate` would give it is a misfit, and the caller collates the whole batch by torch's own function instead: a
fast path that is not equal to the slow one would be worse than none.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

_ALIGN = 64  # a cache line; torch's own allocator aligns to 64 as well
Column = Sequence[Any]


class Misfit(Exception):
    """These samples cannot be written as rows; never shown to a user."""


@dataclass(frozen=True)
class Leaf:
    """One column. `kind` says what a sample holds there; `dtype` is NumPy's name, or torch's for tensors."""

    kind: str  # tensor, array, int, float, bool, scalar, loose
    dtype: str = ""
    shape: tuple[int, ...] = ()
    row_bytes: int = 0


@dataclass(frozen=True)
class Branch:
    """A container: `names` are a dict's keys; `kind` is its exact type's role."""

    kind: str  # tuple, list, dict, named
    children: tuple[Leaf | Branch, ...]
    names: tuple[Any, ...] = ()
    type: type | None = None


@dataclass(frozen=True)
class Layout:
    """The tree, and its leaves in writing order."""

    tree: Leaf | Branch
    leaves: tuple[Leaf, ...]
    fingerprint: int

    def offsets(self, rows: int) -> list[int]:
        """Where each leaf's column begins, and at the end where the last one ends."""
        places = [0]
        for leaf in self.leaves:
            places.append(places[-1] + -(-leaf.row_bytes * rows // _ALIGN) * _ALIGN)
        return places

    @functools.cached_property
    def row_bytes(self) -> int:
        """The bytes of a sample, without what alignment adds."""
        return sum(leaf.row_bytes for leaf in self.leaves)

    @property
    def has_loose(self) -> bool:
        return any(leaf.kind == "loose" for leaf in self.leaves)


def learn(sample: Any, leaf_of: Callable[[Any], Leaf | None]) -> Layout:
    """The layout of samples like this one.

    `leaf_of` knows the kinds of values; it gives None for containers, and raises Misfit for what rows cannot hold.
    """
    return layout_of(_grow(sample, leaf_of))


def layout_of(tree: Leaf | Branch) -> Layout:
    leaves = tuple(_leaves(tree))
    digest = hashlib.blake2b(repr(tree).encode(), digest_size=8).digest()
    return Layout(tree, leaves, int.from_bytes(digest, "little", signed=True) or 1)


def columns_of(tree: Leaf | Branch, samples: Column) -> list[Column]:
    """Turn samples into one sequence of values a leaf, in writing order; Misfit where a sample is built differently."""
    if isinstance(tree, Leaf):
        return [samples]
    columns: list[Column] = []
    for child, column in zip(tree.children, _split(tree, samples), strict=True):
        columns += columns_of(child, column)
    return columns


def rebuild(tree: Leaf | Branch, columns: Sequence[Any]) -> Any:
    """The batch: the tree with a column in place of each leaf, containers as torch's `default_collate` gives them."""
    return _rebuild(tree, iter(columns), list)


def _rebuild(tree: Leaf | Branch, columns: Any, sequence: type) -> Any:
    if isinstance(tree, Leaf):
        column = next(columns)
        return sequence(column) if tree.kind == "loose" else column
    # default_collate hands a dict's columns on as lists, and those of other containers as the tuples that zip makes;
    # text columns are returned as they came, so the difference is seen by users.
    inner = list if tree.kind == "dict" else tuple
    parts = [_rebuild(child, columns, inner) for child in tree.children]
    if tree.kind == "dict":
        return dict(zip(tree.names, parts, strict=True))
    return tree.type(*parts) if tree.type is not None else parts


def _grow(sample: Any, leaf_of: Callable[[Any], Leaf | None]) -> Leaf | Branch:
    leaf = leaf_of(sample)
    if leaf is not None:
        return leaf
    kind = type(sample)
    if kind is dict:
        return Branch("dict", tuple(_grow(value, leaf_of) for value in sample.values()), tuple(sample))
    if kind is tuple or kind is list:
        return Branch(kind.__name__, tuple(_grow(value, leaf_of) for value in sample))
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return Branch("named", tuple(_grow(value, leaf_of) for value in sample), type=kind)
    raise Misfit


def _leaves(tree: Leaf | Branch) -> list[Leaf]:
    if isinstance(tree, Leaf):
        return [tree]
    return [leaf for child in tree.children for leaf in _leaves(child)]


def _split(branch: Branch, samples: Column) -> list[Column]:
    if branch.kind == "dict":
        return _split_dicts(branch.names, samples)
    kinds = {type(sample) for sample in samples}
    wanted = {branch.type} if branch.type is not None else {tuple if branch.kind == "tuple" else list}
    if kinds != wanted or {len(sample) for sample in samples} != {len(branch.children)}:
        raise Misfit
    return cast(list[Column], list(zip(*samples, strict=True))) if branch.children else []


def _split_dicts(names: tuple[Any, ...], samples: Column) -> list[Column]:
    if {type(sample) for sample in samples} != {dict} or {len(sample) for sample in samples} != {len(names)}:
        raise Misfit
    if tuple(samples[0]) != names:
        raise Misfit  # the batch's dict has its keys in the order of its first sample
    try:
        return [[sample[name] for sample in samples] for name in names]
    except KeyError:
        raise Misfit from None


def numpy_leaf(value: Any) -> Leaf | None:
    """The leaf for values that need no torch to be known: numbers, text, NumPy arrays and scalars."""
    kind = type(value)
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain
    if kind is np.ndarray or kind is np.memmap:
        _check_dtype(value.dtype)
        return Leaf("array", value.dtype.str, value.shape, value.dtype.itemsize * value.size)
    if isinstance(value, np.number | np.bool_):
        if value.dtype.str == "<u8":
            raise Misfit  # torch refuses lists of these
        _check_dtype(value.dtype)
        return Leaf("scalar", value.dtype.str, (), value.dtype.itemsize)
    return None


_PLAIN = {
    int: Leaf("int", "<i8", (), 8),
    float: Leaf("float", "<f8", (), 8),
    bool: Leaf("bool", "|b1", (), 1),
    str: Leaf("loose"),
    bytes: Leaf("loose"),
}
# What torch.as_tensor takes: native byte order, no float128, no text, no objects, no dates.
_DTYPES = {
    np.dtype(name).str
    for name in ("bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")
}


def _check_dtype(dtype: np.dtype[Any]) -> None:
    if dtype.str not in _DTYPES:
        raise Misfit
