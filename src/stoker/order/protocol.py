"""What every order can do, whichever way it orders: the shape the loader works with.

An order is a value. It holds its settings and nothing else: no cursor, no cache that matters, no list of indices.
Asking for the same positions of the same epoch gives the same indices on any machine, in any process, in any sequence
of asking, and that is the whole reason why resuming needs no more than a step number.

`describe()` is what a checkpoint keeps to find out later whether the data still come in the same order: two orders give
the same description exactly when they give the same indices for every epoch.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt

from stoker.order.permutation import MOST, Numbers
from stoker.whole_numbers import check_whole


@runtime_checkable
class Order(Protocol):
    """Which sample is next: position in an epoch → index in the dataset."""

    @property
    def n(self) -> int:
        """Samples in one epoch: positions go from 0 to n - 1."""

    def __len__(self) -> int:
        """The same as `n`."""

    def indices(self, positions: npt.ArrayLike, epoch: int) -> Numbers:
        """The index at each position of an epoch; a pure function of its arguments and the order's settings."""

    def describe(self) -> dict[str, Any]:
        """The settings as plain JSON values; equal for two orders exactly when they order alike."""


def check_count(name: str, value: int, least: int, most: int = MOST) -> int:
    """The value as int, or an error that names it."""
    count = check_whole(name, value, least)
    if count > most:
        raise ValueError(f"{name} should be at most {most}, but got {count}")
    return count
