"""Datasets whose samples say who they are. At module level, so that spawned workers find them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import stoker.poptorch as poptorch


class Numbers(Dataset[torch.Tensor]):
    """Sample i is i, in some shape."""

    def __init__(self, length: int, shape: tuple[int, ...] = ()) -> None:
        self.length, self.shape = length, shape

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.length:
            raise IndexError(index)
        return torch.full(self.shape, int(index), dtype=torch.int64)


class Pairs(Numbers):
    """A dictionary with a nested tuple: more than one level."""

    def __getitem__(self, index: int) -> Any:
        return {"image": torch.full((2, 3), float(index)), "target": (torch.tensor(index), torch.tensor([index]))}


class Broken(Numbers):
    """Sample `bad` cannot be loaded."""

    def __init__(self, length: int, bad: int) -> None:
        super().__init__(length)
        self.bad = bad

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.bad:
            raise KeyError(f"no file for sample {index}")
        return super().__getitem__(index)


class Growing(Numbers):
    """Samples of different shapes: as single items they are fine, as a batch they are not."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.length:
            raise IndexError(index)
        return torch.zeros(1 + index)


class Stream(IterableDataset[torch.Tensor]):
    """The same numbers as a stream, shared out to workers in turn."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[torch.Tensor]:
        seat = get_worker_info()
        first, step = (seat.id, seat.num_workers) if seat is not None else (0, 1)
        for number in range(first, self.length, step):
            yield torch.tensor(number)


def numbers_of(loader: Any) -> list[int]:
    """All that a pass over a loader of `Numbers` gives, in order."""
    return [int(number) for batch in loader for number in batch.flatten()]


def loaders(hosts: int, length: int = 60, **arguments: Any) -> list[poptorch.DataLoader]:
    made = []
    for host in range(hosts):
        options = poptorch.Options().deviceIterations(2).randomSeed(42)
        options.Distributed.configureProcessId(host, hosts)
        made.append(poptorch.DataLoader(options, Numbers(length), batch_size=2, **arguments))
    return made
