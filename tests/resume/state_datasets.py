"""Datasets and samplers with a place of their own, or without one, for tests of resuming. Workers can import them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import stoker


class Drawn(Dataset[Any]):
    """Samples with a bit of everything, and draws of the sample's own."""

    def __init__(self, length: int, begin: int = 0) -> None:
        self.length, self.begin = length, begin

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        draws = torch.rand(2, generator=stoker.torch_rng())
        return {"index": self.begin + index, "array": stoker.rng().random(2), "draws": draws, "name": f"no. {index}"}


class Remembers(Drawn):
    """A map-style dataset with a place of its own: how many samples it has given."""

    given = 0

    def __getitem__(self, index: int) -> Any:
        self.given += 1
        return index, self.given

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["given"]


def my_share(length: int) -> range:
    """This worker's part of range(length); later workers have more, so that they end at different times."""
    info = get_worker_info()
    if info is None:
        return range(length)
    ends = [length * worker**2 // info.num_workers**2 for worker in range(info.num_workers + 1)]
    return range(ends[info.id], ends[info.id + 1])


class Forgetful(IterableDataset[Any]):
    """An iterable without a state; in workers its order comes from the worker's seed."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        share, info = np.array(my_share(self.length), np.int64), get_worker_info()
        if info is not None:
            share = np.random.default_rng(info.seed).permutation(share)
        return iter(share.tolist())


class Bookmark:
    """An iterator with a state."""

    def __init__(self, share: range, epoch: int) -> None:
        self.share, self.epoch, self.at = share, epoch, 0

    def __iter__(self) -> Bookmark:
        return self

    def __next__(self) -> Any:
        if self.at == len(self.share):
            raise StopIteration
        self.at += 1
        return self.share[self.at - 1], self.epoch

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.epoch = state["at"], state["epoch"]


class WithBookmark(Forgetful):
    """An iterable whose iterator has the state."""

    def __iter__(self) -> Iterator[Any]:
        return Bookmark(my_share(self.length), 0)


class WithPlace(Forgetful):
    """An iterable that has the state itself, and counts its epochs."""

    at, epoch = 0, 0

    def __iter__(self) -> Iterator[Any]:
        share = my_share(self.length)
        while self.at < len(share):
            self.at += 1
            yield share[self.at - 1], self.epoch
        self.at, self.epoch = 0, self.epoch + 1

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.epoch = state["at"], state["epoch"]


class Rotating:
    """A sampler with a state: every epoch begins one further on."""

    def __init__(self, length: int) -> None:
        self.length, self.at, self.epoch = length, 0, 0

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        while self.at < self.length:
            self.at += 1
            yield (self.at - 1 + self.epoch) % self.length
        self.at, self.epoch = 0, self.epoch + 1

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.epoch = state["at"], state["epoch"]


class Backwards:
    """A sampler without a state."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length - 1, -1, -1))
