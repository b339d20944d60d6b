"""The tensors in a batch, wherever they are nested.

Batches are what users make of them: dictionaries, tuples, named tuples, lists, objects with a `to` of their own (packed
sequences, a tokenizer's encoding, a graph). Containers come out as what they went in; one in which nothing changed is
the very same object, so that a batch that is where it should be costs nothing and keeps its identity.

An object with a `to` may offer `device_leaves()`, which gives what it is made of; it is then as good as a container.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from stoker.nested import Container, like_sequence, open_container

_NOT_NESTED = (str, bytes, bytearray, memoryview, range)


def change_leaves(batch: Any, change: Callable[[Any], Any]) -> Any:
    """The batch with `change` applied to whatever has a method `to`: tensors, and objects of the user's own."""
    if _can_move(batch):
        return change(batch)
    container = _open(batch)
    if container is None:
        return batch
    parts = [change_leaves(part, change) for part in container.parts]
    is_same = all(old is new for old, new in zip(container.parts, parts, strict=True))
    return batch if is_same else container.like(parts)


def leaves_in(batch: Any) -> Iterator[Any]:
    """Tensors that can be reached through containers, and objects that can move but do not show their tensors."""
    if hasattr(batch, "device_leaves"):
        yield from leaves_in(batch.device_leaves())
    elif (container := _open(batch)) is not None:
        yield from (leaf for part in container.parts for leaf in leaves_in(part))
    elif _can_move(batch):
        yield batch


def is_opaque(leaf: Any) -> bool:
    """Whether nobody can say which tensors a leaf is made of, nor can it be told which stream uses them."""
    is_known = isinstance(leaf, Mapping | Sequence) or hasattr(leaf, "device_leaves")
    return not is_known and not hasattr(leaf, "record_stream")


def _can_move(value: Any) -> bool:
    return callable(getattr(value, "to", None))


def _open(batch: Any) -> Container | None:
    """A container taken apart; any sequence is one here, because whatever is overlooked would stay behind."""
    if isinstance(batch, Sequence) and not isinstance(batch, _NOT_NESTED):
        parts = list(batch)
        return Container(list(range(len(parts))), parts, lambda changed: like_sequence(batch, changed))
    return open_container(batch)
