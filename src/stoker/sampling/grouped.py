"""Several batches of a user's batch sampler as one, for a step of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Grouped:
    """Several batches of a batch sampler as one; the rest is the batch sampler's own."""

    def __init__(self, batches: Any, count: int, drop_last: bool) -> None:
        self._batches, self._count, self._drop_last = batches, count, drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        taken, keys = 0, list[Any]()
        for batch in self._batches:
            taken, keys = taken + 1, [*keys, *batch]
            if taken == self._count:
                yield keys
                taken, keys = 0, []
        if keys and not self._drop_last:
            yield keys

    def __len__(self) -> int:
        full, left = divmod(len(self._batches), self._count)
        return full + (left > 0 and not self._drop_last)

    def __str__(self) -> str:
        return f"{self._count} × {type(self._batches).__name__}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # not made yet, as in a copy
            raise AttributeError(name)
        return getattr(self._batches, name)


def sampler_name(sampler: Any) -> str:
    """What a state calls a sampler: two of another name cannot go on from each other's place."""
    return str(sampler) if isinstance(sampler, Grouped) else type(sampler).__name__
