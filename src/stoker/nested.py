"""What batches and samples are made of: containers in containers, with something in them that matters.

One rule says what a container is, for everybody who looks into batches: mappings, lists, tuples, named tuples, and any
type that was registered with torch's pytrees. `open_container` takes one apart and puts the like together again; the
other functions are the walks that several rooms need.

Three do not follow it, on purpose: rows are written only where torch's `default_collate` would give the same, which
goes by exact types (`batches.layout`); a device moves what has a `to`, and looks into any sequence, because whatever is
overlooked would stay behind (`device.tree`); and `testing` compares two things at once.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

_PLAIN = (str, bytes, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Container:
    """A container taken apart."""

    names: list[Any]  # keys, fields or numbers: one for each part
    parts: list[Any]
    like: Callable[[list[Any]], Any]  # such a container around as many other parts


def open_container(value: Any) -> Container | None:
    """The parts of a container, or None for anything else."""
    if isinstance(value, Mapping):
        keys = list(value)
        return Container(keys, [value[key] for key in keys], lambda parts: like_mapping(value, keys, parts))
    if isinstance(value, list | tuple):
        fields = getattr(value, "_fields", None)
        names = list(range(len(value))) if fields is None else list(fields)
        return Container(names, list(value), lambda parts: like_sequence(value, parts))
    return _registered(value)


def leaves_of(value: Any) -> Iterator[Any]:
    """Whatever is in a batch and is no container, in order."""
    container = open_container(value)
    if container is None:
        yield value
    else:
        for part in container.parts:
            yield from leaves_of(part)


def is_array(value: Any) -> bool:
    """Whether this is a tensor or an array, of whatever library."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_plain_tensor(value: Any) -> bool:
    """Whether this is a tensor of torch's own type whose numbers lie in ordinary memory, by strides."""
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor:
        return False
    lies_here = value.layout is torch.strided and value.device.type == "cpu"
    return lies_here and not value.is_nested and not value.is_quantized


def size_of(value: Any, other_bytes: int = 0) -> int:
    """The bytes of a batch's tensors and arrays; anything else counts `other_bytes`.

    For statistics and budgets, which must never stop a run: an object that answers strangely counts nothing.
    """
    try:
        return _size_of(value, other_bytes)
    except Exception:  # the user's own classes, and containers that hold themselves
        return 0


def _size_of(value: Any, other_bytes: int) -> int:
    if is_array(value):
        return _array_bytes(value)
    if isinstance(value, list | tuple) and value and isinstance(value[0], _PLAIN) and isinstance(value[-1], _PLAIN):
        return len(value) * other_bytes  # a column of text or numbers is not walked to its end
    container = open_container(value)
    if container is None:
        return other_bytes
    return sum(_size_of(part, other_bytes) for part in container.parts)


def _array_bytes(array: Any) -> int:
    if hasattr(array, "element_size"):  # a tensor: an upper bound for sparse ones, which have no `nbytes`
        return int(array.numel() * array.element_size())
    return int(array.nbytes)


def like_mapping(value: Any, keys: list[Any], parts: list[Any]) -> Any:
    """A mapping of the same kind around other values."""
    content = dict(zip(keys, parts, strict=True))
    if type(value) is dict:
        return content
    if isinstance(value, MutableMapping):
        like: Any = copy.copy(value)  # an OrderedDict, a defaultdict, a user's own: with whatever else it holds
        like.update(content)
        return like
    try:
        return type(value)(content)
    except TypeError:  # a mapping that is not made from one
        return content


def like_sequence(value: Any, parts: list[Any]) -> Any:
    """A sequence of the same kind around other parts."""
    try:
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    except TypeError:  # a sequence that is not made from one
        return parts


def _registered(value: Any) -> Container | None:
    pytree = sys.modules.get("torch.utils._pytree")
    entry = pytree.SUPPORTED_NODES.get(type(value)) if pytree is not None else None
    if entry is None:
        return None
    parts, context = entry.flatten_fn(value)
    return Container(list(range(len(parts))), list(parts), lambda changed: entry.unflatten_fn(changed, context))
