"""The tensors in a batch, wherever they are nested.

Batches are what users make of them: dictionaries, tuples, named tuples, lists, objects with a `to` of their own (packed
sequences, a tokenizer's encoding, a graph). Containers come out as what they went in; one in which nothing changed is
the very same object, so that a batch that is where it should be costs nothing and keeps its identity.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_NOT_NESTED = (str, bytes, bytearray, memoryview, range)


def change_leaves(batch: Any, change: Callable[[Any], Any]) -> Any:
    """The batch with `change` applied to whatever has a method `to`: tensors, and objects of the user's own."""
    if _can_move(batch):
        return change(batch)
    if isinstance(batch, Mapping):
        changed = {key: change_leaves(value, change) for key, value in batch.items()}
        return batch if _is_same(batch.values(), changed.values()) else _like_mapping(batch, changed)
    if isinstance(batch, Sequence) and not isinstance(batch, _NOT_NESTED):
        values = [change_leaves(value, change) for value in batch]
        return batch if _is_same(batch, values) else _like_sequence(batch, values)
    return batch


def leaves_in(batch: Any) -> Iterator[Any]:
    """Tensors that can be reached through containers, and objects that can move but do not show their tensors."""
    if isinstance(batch, Mapping):
        yield from (leaf for value in batch.values() for leaf in leaves_in(value))
    elif isinstance(batch, Sequence) and not isinstance(batch, _NOT_NESTED):
        yield from (leaf for value in batch for leaf in leaves_in(value))
    elif _can_move(batch):
        yield batch


def is_opaque(leaf: Any) -> bool:
    """Whether nobody can say which tensors a leaf is made of, nor can it be told which stream uses them."""
    return not isinstance(leaf, Mapping | Sequence) and not hasattr(leaf, "record_stream")


def _can_move(value: Any) -> bool:
    return callable(getattr(value, "to", None))


def _is_same(before: Any, after: Any) -> bool:
    return all(old is new for old, new in zip(before, after, strict=True))


def _like_mapping(batch: Any, changed: dict[Any, Any]) -> Any:
    if isinstance(batch, dict):
        like = copy.copy(batch)  # keeps what it has beside its items, such as a default factory
        like.update(changed)
        return like
    try:
        return type(batch)(changed)
    except TypeError:  # a mapping that is not made from one
        return changed


def _like_sequence(batch: Any, values: list[Any]) -> Any:
    try:
        return type(batch)(*values) if hasattr(batch, "_fields") else type(batch)(values)
    except TypeError:  # a sequence that is not made from one
        return values
