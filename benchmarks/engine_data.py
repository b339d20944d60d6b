"""The datasets of the engine benchmark: each is one kind of load, as plain as a user would write it.

    Preprocessed  bytes: rows of a memory-mapped file, nothing to compute     (memory bandwidth)
    CheapList     a Python list of small arrays                               (overhead per sample)
    Waiting       a sleep per sample, as a slow disk or a far server          (latency)
    Computing     a busy processor per sample, as a heavy transform           (sharing of work)
    Nothing       neither: what remains is the loader's own cost              (overhead per batch)

All are module-level classes without open files in their state, so every start method can ship them, and none offers
Stoker anything that torch's loader could not use too (no `__getitems__`, no `read_into`).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

SHAPE = (3, 224, 224)


class Preprocessed:
    """float32 samples 3×224×224 and a label, from a memory-mapped file that each process opens for itself."""

    def __init__(self, path: Path, samples: int) -> None:
        self.path, self.samples = path, samples
        self._rows: NDArray[np.float32] | None = None

    @property
    def rows(self) -> NDArray[np.float32]:
        """All samples as one array over the file."""
        if self._rows is None:
            # "c" maps privately: the rows count as writable, which torch wants of its tensors, and the file stays.
            self._rows = np.memmap(self.path, np.float32, mode="c", shape=(self.samples, *SHAPE))
        return self._rows

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self.rows[index]), index % 1000


def make_preprocessed(path: Path, samples: int) -> Preprocessed:
    """Write the file (once), and read it once, so that it lies in the system's page cache."""
    size_bytes = samples * 4 * int(np.prod(SHAPE))
    if not path.exists() or path.stat().st_size != size_bytes:
        rng = np.random.default_rng(0)
        with path.open("wb") as file:
            for _ in range(samples):
                file.write(rng.standard_normal(SHAPE, dtype=np.float32).data)
    with path.open("rb") as file:
        while file.read(2**24):
            pass
    return Preprocessed(path, samples)


class CheapList:
    """A list lookup that gives a small array."""

    def __init__(self, samples: int) -> None:
        rows = np.random.default_rng(0).standard_normal((samples, 8), dtype=np.float32)
        self.arrays: list[NDArray[np.float32]] = [row.copy() for row in rows]

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        return self.arrays[index]


class Waiting:
    """Samples that wait and compute nothing."""

    def __init__(self, samples: int, wait_s: float) -> None:
        self.samples, self.wait_s = samples, wait_s

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        time.sleep(self.wait_s)
        return index


class Computing:
    """Samples that keep a processor busy, counted in the thread's own processor time, so that contention costs."""

    def __init__(self, samples: int, busy_s: float) -> None:
        self.samples, self.busy_s = samples, busy_s

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        until_s = time.thread_time() + self.busy_s
        while time.thread_time() < until_s:
            pass
        return index


class Nothing:
    """Samples that cost nothing at all."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        return 0
