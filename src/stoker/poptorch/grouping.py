"""A batch sampler's batches, several to a step.

Mostly their indices are joined, as everybody's are (`stoker.sampling.grouped.Grouped`). A `collate_fn` of the user's
own must see each batch by itself: then the batches are joined after collating. That is here and not left to a plan,
because a class of the user's own is joined by the parser that was registered for it, which only PopTorch's names know.
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
