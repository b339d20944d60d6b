"""Six datasets that want six different settings, for the benchmark of `stoker tune`.

tiny       rows of one tensor, gathered in one operation          inline; any worker is a loss
python     1 ms of Python, holding the GIL                        processes
unpacking  1 ms of zlib, the GIL released                         processes or threads
waiting    10 ms of waiting, as for a far disk                    lanes, many
mixed      4 ms of waiting, then 1 ms of Python                   lanes in several processes
rows       float32 3×224×224 from a file, nothing to compute      whoever copies quickest
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from stoker.bench.datasets.preprocessed import make_preprocessed
from stoker.bench.datasets.simulated import Simulated


class Unpacking:
    """Compressed samples, unpacked at every access: zlib works without the GIL."""

    def __init__(self, samples: int, size_bytes: int = 400_000) -> None:
        noise = np.random.default_rng(0).integers(0, 8, size_bytes, np.uint8)
        self.samples, self.packed = samples, zlib.compress(noise.tobytes(), 1)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        return np.frombuffer(zlib.decompress(self.packed), np.uint8)[:1024].copy()


@dataclass(frozen=True)
class Case:
    """A dataset and the batch size that it is loaded with."""

    title: str
    batch_size: int
    make: Callable[[Path], Any]


CASES = {
    "tiny": Case(
        "tiny tensors (8 floats)", 256, lambda folder: TensorDataset(torch.zeros(200_000, 8), torch.zeros(200_000))
    ),
    "python": Case("1 ms of Python a sample", 32, lambda folder: Simulated(samples=6000, compute_ms=1)),
    "unpacking": Case("1 ms of zlib a sample", 32, lambda folder: Unpacking(6000)),
    "waiting": Case("10 ms of waiting a sample", 32, lambda folder: Simulated(samples=20_000, sleep_ms=10)),
    "mixed": Case("4 ms of waiting and 1 ms of Python", 32, lambda folder: Simulated(6000, compute_ms=1, sleep_ms=4)),
    "rows": Case("rows of 600 KB from a file", 64, lambda folder: make_preprocessed(folder, 6000, 256)),
}
