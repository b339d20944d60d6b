"""How many bytes of tensors and arrays a batch holds, for statistics.

Batches that were written as rows know it without looking. This is for the others, made by somebody's own `collate_fn`:
it looks into lists, tuples and mappings, and counts nothing for whatever else a batch may be made of. Statistics must
never stop a run, so an object that answers strangely counts nothing too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PLAIN = (str, bytes, int, float, bool, type(None))


def size_of(batch: Any) -> int:
    """The bytes of a batch's tensors and arrays."""
    try:
        return _size_of(batch)
    except Exception:  # the user's own classes, and containers that hold themselves
        return 0


def _size_of(part: Any) -> int:
    if isinstance(part, list | tuple):
        # A column of text or numbers is not walked to its end.
        return 0 if part and isinstance(part[0], _PLAIN) and isinstance(part[-1], _PLAIN) else sum(map(_size_of, part))
    if isinstance(part, Mapping):
        return sum(map(_size_of, part.values()))
    return int(part.nbytes) if hasattr(part, "shape") and hasattr(part, "nbytes") else 0
