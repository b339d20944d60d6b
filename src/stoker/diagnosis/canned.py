"""Samples that lie in memory already: a loader over them shows what everything but loading costs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from torch.utils.data import Dataset, IterableDataset


class Canned(Dataset[Any]):
    """As many samples as the dataset it stands for, a few of them over and over, whatever key is asked for."""

    def __init__(self, samples: list[Any], length: int) -> None:
        self._samples, self._length = samples, length
        self._next = 0

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: Any) -> Any:
        self._next = (self._next + 1) % len(self._samples)  # threads may meet here: then one sample comes twice
        return self._samples[self._next]


class CannedItems(IterableDataset[Any]):
    """The same for a dataset that is iterated."""

    def __init__(self, samples: list[Any], length: int) -> None:
        self._samples, self._length = samples, length

    def __iter__(self) -> Iterator[Any]:
        return islice(cycle(self._samples), self._length)
