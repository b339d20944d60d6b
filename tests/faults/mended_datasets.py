"""Datasets for tests of deaths and stalls: at the top of a module, so that spawned workers can have them too.

Without torch, which such a worker would have to import, for seconds.
"""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ("fork", "forkserver", "spawn")


class SlowKey:
    """A key whose unpickling stops its process: once, and only the key numbered `at`."""

    def __init__(self, number: int, at: int, folder: str) -> None:
        self.number, self.at, self.folder = number, at, folder

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle_slowly, (self.number, self.at, self.folder)


def _unpickle_slowly(number: int, at: int, folder: str) -> SlowKey:
    if number == at and first_time(Path(folder) / "stopped"):
        os.kill(os.getpid(), signal.SIGSTOP)
    return SlowKey(number, at, folder)


def first_time(path: Path) -> bool:
    """Whether nobody has been here before; leaves this process's number."""
    try:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    os.write(fd, str(os.getpid()).encode())
    os.close(fd)
    return True


class SlowKeys:
    """A sampler of such keys."""

    def __init__(self, count: int, at: int, folder: str) -> None:
        self.keys = [SlowKey(number, at, folder) for number in range(count)]

    def __iter__(self) -> Any:
        return iter(self.keys)

    def __len__(self) -> int:
        return len(self.keys)


class Rows:
    """Every row says which sample it is, a thousand times over."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: Any) -> Any:
        return np.full(1000, int(key.number if isinstance(key, SlowKey) else key), np.int64)


class StopsOnce(Rows):
    """Stops its own process before one of its samples, the first time that somebody comes there."""

    def __init__(self, count: int, at: int, folder: str) -> None:
        super().__init__(count)
        self.at, self.folder = at, folder

    def __getitem__(self, key: Any) -> Any:
        if int(key) == self.at and first_time(Path(self.folder) / "stopped"):
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().__getitem__(key)


class StopsNowAndThen(Rows):
    """Stops its own process before some of its samples, the first time that somebody comes there."""

    def __init__(self, count: int, folder: str) -> None:
        super().__init__(count)
        self.folder = folder

    def __getitem__(self, key: Any) -> Any:
        if int(key) % 37 == 5 and first_time(Path(self.folder) / str(int(key))):
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().__getitem__(key)


class TensorKeys:
    """A sampler whose keys are tensors, which are pickled on their way."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Any:
        import torch  # not above: workers that have no tensors among their keys start without it

        return iter(torch.arange(self.count))

    def __len__(self) -> int:
        return self.count


class Texts:
    """Numbers with a text, which is very long in one sample."""

    def __init__(self, count: int, at: int, size: int) -> None:
        self.count, self.at, self.size = count, at, size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return index, ("x" * self.size if index == self.at else str(index))


class LongError(ValueError):
    """An error with a lot to say."""


class Refuses(Texts):
    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            raise LongError("why " * (self.size // 4))
        return index


def fails(worker: int) -> None:
    raise LongError(f"worker {worker} cannot start " + "because " * 1000)


class UnreadableKey:
    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, ()


def _refuse() -> None:
    raise pickle.UnpicklingError("this key cannot be read")
