"""Twelve datasets that want different hands, and three models, for the benchmark of "auto".

tiny        rows of one tensor, gathered in one operation          no workers
small       a list of small arrays                                 no workers
rows        602 KB each, from a memory-mapped file                 whoever copies quickest
pillow      JPEG decoded by Pillow, converted and cropped          processes
zlib        1.5 ms that release the GIL, as a native decoder does  processes, or threads
python      5 ms of Python                                         processes
wait5       5 ms of waiting                                        lanes
wait50      50 ms of waiting                                       as many lanes as there may be
tail        0.5 ms, but one sample in fifty waits 100 ms           lanes, and batches ahead
mixed       4 ms of waiting, then 1 ms of Python                   lanes in several processes
collate     small samples, and a collate_fn that takes 10 ms       processes, a batch each
tokens      2,048 tokens out of one long array                     no workers, or few
"""

from __future__ import annotations

import io
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from stoker.bench.datasets.preprocessed import make_preprocessed
from stoker.bench.datasets.simulated import Simulated, compute

MANY = 10_000_000  # an epoch that does not end within a trial


class Many:
    """Any number of samples, a few of which are different."""

    def __len__(self) -> int:
        return MANY


class Repeated(Many):
    """Another dataset, over and over."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, index: int) -> Any:
        return self._dataset[index % len(self._dataset)]


class SmallArrays(Many):
    def __init__(self) -> None:
        self._arrays = [np.full(64, number, np.float32) for number in range(10_000)]

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        return self._arrays[index % 10_000]


class Pictures(Many):
    """Real JPEG bytes, decoded and cropped with Pillow."""

    def __init__(self) -> None:
        from PIL import Image

        smooth = np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)
        self._files = io.BytesIO()
        Image.fromarray(smooth).resize((400, 300)).save(self._files, "JPEG", quality=90)

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        from PIL import Image

        with Image.open(io.BytesIO(self._files.getvalue())) as picture:
            pixels = np.asarray(picture.convert("RGB").crop((40, 40, 264, 264)))
        return pixels.transpose(2, 0, 1).astype(np.float32) / 255


class Unpacked(Many):
    def __init__(self) -> None:
        noise = np.random.default_rng(0).integers(0, 8, 600_000, np.uint8)
        self._packed = zlib.compress(noise.tobytes(), 1)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        return np.frombuffer(zlib.decompress(self._packed), np.uint8)[:4096].copy()


class HeavyTail(Many):
    def __getitem__(self, index: int) -> NDArray[np.float32]:
        time.sleep(0.1 if index % 50 == 7 else 0.0005)
        return np.full(16, index % 1000, np.float32)


class Tokens(Many):
    def __init__(self) -> None:
        self._tokens = np.random.default_rng(0).integers(0, 50_000, 20_000_000, np.int64)

    def __getitem__(self, index: int) -> dict[str, NDArray[np.int64]]:
        begin = (index * 7919) % (len(self._tokens) - 2049)
        return {"input": self._tokens[begin : begin + 2048], "label": self._tokens[begin + 1 : begin + 2049]}


def slow_collate(samples: list[Any]) -> torch.Tensor:
    compute(0.01)
    return torch.from_numpy(np.stack(samples))


@dataclass(frozen=True)
class Case:
    """A dataset and how it is loaded."""

    title: str
    batch_size: int
    make: Callable[[Path], Any]
    options: dict[str, Any] = field(default_factory=dict)


DATASETS = {
    "tiny": Case("tiny tensors", 256, lambda _: TensorDataset(torch.zeros(400_000, 8))),
    "small": Case("small arrays", 256, lambda _: SmallArrays()),
    "rows": Case(
        "602 KB rows of a memory-mapped file", 64, lambda folder: Repeated(make_preprocessed(folder, 2048, 256))
    ),
    "pillow": Case("JPEG by Pillow", 32, lambda _: Pictures()),
    "zlib": Case("1.5 ms without the GIL", 32, lambda _: Unpacked()),
    "python": Case("5 ms of Python", 16, lambda _: Simulated(MANY, compute_ms=5)),
    "wait5": Case("5 ms of waiting", 32, lambda _: Simulated(MANY, sleep_ms=5)),
    "wait50": Case("50 ms of waiting", 32, lambda _: Simulated(MANY, sleep_ms=50)),
    "tail": Case("0.5 ms, one in fifty 100 ms", 32, lambda _: HeavyTail()),
    "mixed": Case("4 ms of waiting, 1 ms of Python", 32, lambda _: Simulated(MANY, compute_ms=1, sleep_ms=4)),
    "collate": Case("a collate_fn of 10 ms", 32, lambda _: SmallArrays(), {"collate_fn": slow_collate}),
    "tokens": Case("2,048 tokens", 32, lambda _: Tokens()),
}


def no_model(batch: Any) -> None:
    """Nothing but loading."""


def sleeping_model(batch: Any) -> None:
    """10 ms on a device of its own."""
    time.sleep(0.01)


def computing_model(batch: Any) -> None:
    """10 ms of one core of this machine; longer, when it has to share it."""
    until_s = time.thread_time() + 0.01
    while time.thread_time() < until_s:
        zlib.crc32(_BYTES)  # without the GIL, as a model computes


_BYTES = bytes(200_000)
MODELS: dict[str, Callable[[Any], None]] = {
    "none": no_model,
    "sleeps": sleeping_model,
    "computes": computing_model,
}
