"""A dataset in which some samples are poison: which and how follows from a seed.

They raise, kill their worker (SIGKILL, a segmentation fault, an abort), hang, ask for 4 GiB, or are truncated JPEGs.
None of them endangers the machine: memory is asked for beyond a limit that is set before, and no core is written.
Whoever is about to die says so in a file, so that deaths are counted by those who die.

Spawned workers import this module, so it imports nothing heavy.
"""

from __future__ import annotations

import faulthandler
import io
import os
import random
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from PIL import Image

GIB = 2**30
# Ten faults in turn: two in five kill outright, so that 1 000 bad samples make more than 1 000 deaths.
TURNS = ("raise", "kill", "segv", "hang", "allocate", "kill", "segv", "truncated", "raise", "allocate")
SIGNS = {
    "raise": ("ValueError",),
    "kill": ("SIGKILL",),
    "segv": ("SIGSEGV",),
    "hang": ("TimeoutError",),
    "allocate": ("MemoryError", "SIGABRT"),
    "truncated": ("OSError",),
}
"""What the error of a failure must say, by the fault that caused it."""


def choose_faults(samples: int, one_in: int, seed: int) -> dict[int, str]:
    """Which samples are bad, and how."""
    bad = random.Random(seed).sample(range(samples), samples // one_in)
    return {index: TURNS[turn % len(TURNS)] for turn, index in enumerate(bad)}


@dataclass
class Tortured:
    """Samples of two numbers: the index, and a draw that belongs to the position; some samples are poison."""

    samples: int
    faults: dict[int, str] = field(default_factory=dict)
    deaths: str | None = None  # a file that gets a line from each worker about to die

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        import stoker

        kind = self.faults.get(index)
        if kind is not None:
            FAULTS[kind](self, index)
        return np.array([index, stoker.rng().integers(2**40)])

    def note_death(self, kind: str) -> None:
        """Say that the process that loads this sample will not survive it."""
        if self.deaths is not None:
            with open(self.deaths, "a", encoding="utf-8") as file:
                file.write(f"{kind}\n")


def _raise(_: Tortured, index: int) -> NoReturn:
    raise ValueError(f"sample {index} is spoilt")


def _die_of(number: signal.Signals, kind: str) -> Callable[[Tortured, int], None]:
    def die(dataset: Tortured, _: int) -> None:
        dataset.note_death(kind)
        faulthandler.disable()  # a test runner's handler would print a page for every death
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        os.kill(os.getpid(), number)
        signal.pause()  # another thread may be the one that gets the signal

    return die


def _hang(dataset: Tortured, _: int) -> None:
    dataset.note_death("hang")
    while True:
        signal.pause()


def _allocate(dataset: Tortured, index: int) -> None:
    """Ask for 4 GiB where there are not: odd samples abort, as native code does that is refused memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space_bytes() + GIB, hard))
    try:
        bytearray(4 * GIB)
    except MemoryError:
        if index % 2:
            _die_of(signal.SIGABRT, "allocate")(dataset, index)
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _truncated(_: Tortured, index: int) -> None:
    stream = io.BytesIO()
    Image.new("RGB", (64, 64), (index % 256, 0, 0)).save(stream, "JPEG")
    Image.open(io.BytesIO(stream.getvalue()[:-100])).load()


FAULTS: dict[str, Callable[[Tortured, int], None]] = {
    "raise": _raise,
    "kill": _die_of(signal.SIGKILL, "kill"),
    "segv": _die_of(signal.SIGSEGV, "segv"),
    "hang": _hang,
    "allocate": _allocate,
    "truncated": _truncated,
}
