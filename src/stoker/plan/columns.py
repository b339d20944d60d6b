"""What of a batch has rows: tensors, arrays and lists, wherever they lie in dictionaries, tuples and lists.

A batch is cut by rows, and what a `collate_fn` makes of samples may be anything. So a batch is first taken apart into
its **columns**, each with one entry a row, and a way to put the like together again. The rules, for a batch of n rows:

- a tensor or array is a column if its first dimension is n; without dimensions it is a constant;
- a dictionary, a named tuple, and any type registered with torch's pytrees is a structure of columns and constants;
- a list or tuple is a structure if all its parts with rows have n of them; else, if it has n entries, it is itself a
  column (of texts, of objects, of tensors of different shapes);
- everything else (a text, a number, None, an object) is a constant: it belongs to all rows, and every view has it.

Whatever has another number of rows is an error that says where it lies.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.nested import Container, is_array, open_container

Rebuild = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class Columns:
    """A batch taken apart."""

    rows: int
    parts: list[Any]  # tensors, arrays, or lists with one entry a row
    rebuild: Rebuild  # puts as many parts together again in the shape of the batch

    def each(self, change: Callable[[Any], Any]) -> Any:
        """The batch with every column changed."""
        return self.rebuild([change(part) for part in self.parts])


def columns_of(batch: Any, *expected: int) -> Columns:
    """Take a batch apart; `expected` are the numbers of rows that it is likely to have, the likeliest first."""
    found = _rows_found(batch)
    for loosely, rows in (*itertools.product((False, True), expected), *itertools.product((False, True), found)):
        taken = _Taken(rows, loosely)
        rebuild = taken.take(batch, "the batch")
        if taken.parts and not taken.misfits:
            return Columns(rows, taken.parts, rebuild)
    raise _no_rows(batch, [*expected, *found])


def take_rows(columns: Columns, rows: Sequence[int]) -> Any:
    """The batch made of these rows, which may come more than once; a copy."""
    return columns.each(lambda part: _index(part, rows))


def join_rows(taken: Sequence[Columns]) -> Any:
    """Batches one behind the other, as one; a copy, unless there is only one. Constants are the first batch's."""
    if len(taken) == 1:
        return taken[0].rebuild(taken[0].parts)
    if len({len(columns.parts) for columns in taken}) > 1:
        raise ValueError(
            f"batches of different structure cannot be put together: they have "
            f"{[len(columns.parts) for columns in taken]} parts with rows. Let collate_fn give the same each time."
        )
    return taken[0].rebuild([_join(parts) for parts in zip(*(columns.parts for columns in taken), strict=True)])


def map_tensors(batch: Any, change: Callable[[Any], Any]) -> Any:
    """The batch with every torch tensor in it changed, whether it has rows or not."""
    if is_array(batch):
        return change(batch) if hasattr(batch, "pin_memory") else batch
    container = open_container(batch)
    return batch if container is None else container.like([map_tensors(part, change) for part in container.parts])


class _Taken:
    """Takes a batch apart under the assumption that it has so many rows.

    A list of as many tensors may be a structure with another number of rows as well as a column. So it is taken for a
    column only `loosely`, when nothing else fits.
    """

    def __init__(self, rows: int, loosely: bool = True) -> None:
        self._rows, self._loosely = rows, loosely
        self.parts: list[Any] = []
        self.misfits: list[str] = []  # what has another number of rows, and where

    def take(self, value: Any, where: str) -> Rebuild:
        """Note the columns in a value; gives what rebuilds it from a list of all columns."""
        if is_array(value):
            return self._take_array(value, where)
        container = open_container(value)
        if container is None:
            return lambda _: value
        if not isinstance(value, list | tuple) or hasattr(value, "_fields"):
            return self._take_structure(container, where)
        before, wrong = len(self.parts), len(self.misfits)
        rebuild = self._take_structure(container, where)
        if len(self.parts) > before and len(self.misfits) == wrong:
            return rebuild
        if len(value) == self._rows and (self._loosely or len(self.parts) == before):
            del self.parts[before:], self.misfits[wrong:]
            return self._column(value)
        return rebuild

    def _take_array(self, value: Any, where: str) -> Rebuild:
        if not len(value.shape):
            return lambda _: value
        if value.shape[0] != self._rows:
            self.misfits.append(f"{where} has the shape {tuple(value.shape)}")
        return self._column(value)

    def _take_structure(self, container: Container, where: str) -> Rebuild:
        named = zip(container.names, container.parts, strict=True)
        inner = [self.take(part, f"{where}[{name!r}]") for name, part in named]
        return lambda parts: container.like([rebuild(parts) for rebuild in inner])

    def _column(self, value: Any) -> Rebuild:
        place = len(self.parts)
        self.parts.append(value)
        return lambda parts: parts[place]


def _rows_found(batch: Any) -> list[int]:
    """How many rows a batch seems to have: those of the first tensor in it, or else of the first list."""
    found = _first(batch, lambda value: is_array(value) and len(value.shape) and value.shape[0])
    if found is None:
        found = _first(batch, lambda value: isinstance(value, list | tuple) and not _holds_lists(value) and len(value))
    return [] if found is None else [found]


def _holds_lists(value: Sequence[Any]) -> bool:
    return any(isinstance(part, list | tuple) for part in value)


def _first(value: Any, rows: Callable[[Any], Any]) -> int | None:
    found = rows(value)
    if found:
        return int(found)
    container = None if is_array(value) else open_container(value)
    inner = (_first(part, rows) for part in (container.parts if container is not None else ()))
    return next((found for found in inner if found is not None), None)


def _no_rows(batch: Any, candidates: Sequence[int]) -> Exception:
    taken = _Taken(candidates[0] if candidates else 0)
    taken.take(batch, "the batch")
    if not taken.misfits:
        return TypeError(
            f"nothing in this batch has rows: it is a {type(batch).__name__} without tensors, arrays or lists in it. "
            "Let collate_fn give those, or register the type with torch.utils._pytree.register_pytree_node."
        )
    return ValueError(
        f"this batch cannot be cut into rows: it should have {candidates[0]}, but {'; '.join(taken.misfits[:3])}. "
        "Everything in a batch that has a first dimension, or is a list, needs one entry for every row."
    )


def _index(part: Any, rows: Sequence[int]) -> Any:
    if not is_array(part):
        return type(part)(part[row] for row in rows)
    return part[list(rows)]


def _join(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if not is_array(first):
        return type(first)(value for part in parts for value in part)
    if type(first).__module__.partition(".")[0] == "numpy":
        import numpy as np

        return np.concatenate(parts)
    import torch

    return torch.cat(list(parts))
