"""A batch sampler's batches, several to a step.

Where torch's default collating makes the batches, joining their indices gives the same rows as joining the batches, so
the workers load a step's rows straight into one slot (`stoker.arguments.planned.Grouped`). A `collate_fn` of the user's
own must see each batch by itself: then the batches are joined after collating, which is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from stoker.poptorch.structures import concatenated


def joined(batches: Iterator[Any], per_step: int, drop_last: bool) -> Iterator[Any]:
    """`per_step` consecutive batches at a time as one; the last may be made of fewer, if it is not dropped."""
    while group := list(islice(batches, per_step)):
        if len(group) == per_step or not drop_last:
            yield concatenated(group)


def group_count(items: int, per_step: int, drop_last: bool) -> int:
    """How many steps so many items make."""
    return items // per_step if drop_last else -(-items // per_step)


def length_or_none(sampler: Any) -> int | None:
    """The sampler's length, where it knows one."""
    try:
        length = len(sampler)
    except (TypeError, NotImplementedError):
        return None
    return length if isinstance(length, int) else None
