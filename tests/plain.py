"""Datasets without torch, for workers that are not forked: such a worker starts in a fifth of the time of one that has
to import torch first. Whatever is to be tested with every start method and does not depend on torch takes these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Made:
    """Samples made by a function of the index."""

    def __init__(self, length: int, make: Callable[[int], Any]) -> None:
        self.length, self.make = length, make

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.make(index)


def number(index: int) -> int:
    return index


def painting(index: int) -> Any:
    """48 KiB, as `tests.datasets.picture`."""
    return np.full((3, 64, 64), index, np.float32)


def number_but_not_nine(index: int) -> int:
    if index == 9:
        raise ValueError(index)
    return index
