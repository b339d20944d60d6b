"""Waiting for the first batch: it tells early what is wrong, and makes no more than that batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from stoker import prefetch


class Counting:
    """Knows how many of its items were made."""

    def __init__(self, count: int) -> None:
        self.count, self.made = count, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.count):
            self.made += 1
            yield torch.full((2,), float(number))


class Failing:
    """Has a first item that cannot be made."""

    def __iter__(self) -> Iterator[Any]:
        raise KeyError("no such file")
        yield


def test_warming_up_makes_one_batch_and_passes_begin_with_it() -> None:
    source = Counting(10)
    with prefetch(source, ahead=4) as accessor:
        assert accessor.warm_up()
        assert accessor.warm_up()
        assert (source.made, accessor.stats().ready) == (1, 1)
        assert [int(batch[0]) for batch in accessor] == list(range(10))


def test_a_pass_after_warming_up_uses_the_whole_buffer() -> None:
    source = Counting(10)
    with prefetch(source, ahead=4, across_epochs=False) as accessor:
        accessor.warm_up()
        steps = iter(accessor)
        assert [int(batch[0]) for batch in steps] == list(range(10))
        assert accessor._ring is not None
        assert accessor._ring._wanted == 4


def test_warming_up_says_whether_there_is_anything() -> None:
    with prefetch([]) as accessor:
        assert not accessor.warm_up()


def test_warming_up_raises_what_the_source_raises() -> None:
    with prefetch(Failing()) as accessor, pytest.raises(KeyError, match="no such file"):
        accessor.warm_up()
