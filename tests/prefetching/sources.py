"""Sources for the accessor's tests, at the top of a module so that spawned fillers find them."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

ROWS, WIDTH = 16, 1024  # 64 KiB a batch: large enough for a slot of its own, small enough to be quick


def batch(number: int) -> torch.Tensor:
    return torch.full((ROWS, WIDTH), float(number))


def batches(count: int) -> list[torch.Tensor]:
    return [batch(number) for number in range(count)]


def numbers(taken: Any) -> list[int]:
    """Which batches these are; all values of a batch are its number."""
    values = [tensor.unique() for tensor in taken]
    assert all(len(value) == 1 for value in values), "a batch was overwritten"
    return [int(value) for value in values]


class OldSequence:
    """What iteration was before `__iter__`: asked for 0, 1, 2, … until it says stop."""

    def __init__(self, count: int, stop: type[Exception] = IndexError) -> None:
        self.count, self.stop = count, stop

    def __getitem__(self, index: int) -> torch.Tensor:
        if index >= self.count:
            raise self.stop
        return batch(index)


class Unbounded:
    """A map-style dataset that trusts whoever asks to know its length."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> torch.Tensor:
        return batch(index)


class Drawing:
    """Each batch is drawn from the three global generators."""

    def __iter__(self) -> Iterator[tuple[float, float, float]]:
        for _ in range(4):
            yield random.random(), float(np.random.random()), float(torch.rand(()))


class Trouble(Exception):
    """An error that keeps its data, as errors of libraries do."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(code, what)
        self.code, self.what = code, what


class Failing:
    """Three batches, then something goes wrong, in this way."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from batches(3)
        if self.how == "raise":
            raise Trouble(7, "the disk is full")
        if self.how == "local":
            raise _local_error()
        if self.how.startswith("exit"):
            sys.exit(int(self.how[4:]))
        if self.how.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, self.how))
        yield batch(3)


def _local_error() -> Exception:
    class Local(Exception):
        """Cannot be pickled: nobody else can find its class."""

    return Local("a class of a function")


class Counting:
    """Says where it stands; counts passes, so that a state is more than a number of batches."""

    def __init__(self, count: int = 9) -> None:
        self.count, self.passes, self.at = count, 0, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.at < self.count:
            self.at += 1
            yield torch.tensor([self.passes * 100 + self.at - 1])
        self.passes, self.at = self.passes + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"passes": self.passes, "at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.passes, self.at = state["passes"], state["at"]


class Telling(IterableDataset[int]):
    """Tells who torch says it is."""

    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        yield -1 if info is None else info.id


class Waiting:
    """Gives one batch, then waits for a descriptor that nobody writes to."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield batch(0)
        os.read(self.descriptor, 1)
