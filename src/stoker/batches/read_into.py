"""Datasets that fill a row themselves: `read_into(index, row)` saves even the one copy from a sample into the slot.

`row` is built like a sample of the dataset, with a NumPy view of the slot in the place of every array, tensor or number
(a number is a view without dimensions: `row["label"][...] = 3`). The layout is learned from one ordinary sample, so the
dataset still has `__getitem__`, and both must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from stoker.batches.layout import Branch, Layout, Leaf, Misfit
from stoker.batches.rows import row_views
from stoker.contracts import NO_ROW, Bytes, Gap


@dataclass
class RowReader:
    """Calls a dataset's `read_into` for the rows of a run; its layout has nothing loose, which has no row to fill."""

    dataset: Any

    def read(
        self,
        layout: Layout,
        keys: Iterator[Any],
        memory: Bytes,
        start: int,
        rows: int,
        mark: Callable[[int], None] | None = None,
    ) -> None:
        for row, key in enumerate(keys, start):
            if key is Gap.GAP:
                raise Misfit  # a row that is left out
            views = row_views(layout, memory, rows, row)
            if mark is not None:
                mark(row)
            self.dataset.read_into(key, _arrange(layout.tree, iter(views)))
        if mark is not None:
            mark(NO_ROW)


def _arrange(tree: Leaf | Branch, views: Any) -> Any:
    if isinstance(tree, Leaf):
        return next(views)
    parts = [_arrange(child, views) for child in tree.children]
    if tree.kind == "dict":
        return dict(zip(tree.names, parts, strict=True))
    if tree.type is not None:
        return tree.type(*parts)
    return tuple(parts) if tree.kind == "tuple" else parts
