"""What is watched: every kind of worker, clocks in hand, a worker that dies once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset, get_worker_info

from stoker import Workers

MS = 1_000_000
WHO: dict[str, Workers] = {
    "inline": Workers(),
    "threads": Workers(0, 2),
    "processes": Workers(2, start_method="fork"),
    "lanes": Workers(1, 2, start_method="fork"),
}
who = pytest.mark.parametrize("workers", WHO.values(), ids=WHO)


class Hand:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * MS

    def __call__(self) -> int:
        return self.now_ns

    def turn(self, milliseconds: int) -> None:
        self.now_ns += milliseconds * MS


class Timed(Dataset[Any]):
    """Each sample takes `milliseconds` of a clock in hand; some raise."""

    def __init__(self, clock: Hand, milliseconds: int = 10, bad: tuple[int, ...] = ()) -> None:
        self.clock, self.milliseconds, self.bad = clock, milliseconds, bad

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        self.clock.turn(self.milliseconds * (index + 1))
        if index in self.bad:
            raise ValueError(index)
        return index


class DiesOnce(Dataset[Any]):
    """The worker that loads sample 5 for the first time in an epoch dies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        died = self.folder / "died"
        if index == 5 and get_worker_info() is not None and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index
