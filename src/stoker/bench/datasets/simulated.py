"""Samples that cost exactly what they are told to: a model of a slow disk, a far server, a heavy transform.

compute_ms   keeps a processor busy in Python, holding the GIL; counted in the thread's own processor time, so that
             two that share a core take twice as long
sleep_ms     waits, as a read from a disk does, and lets others run
async_ms     waits in `async def __agetitem__`, as a request of an async client does; plain loaders sleep instead
bytes        the size of the sample
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Simulated:
    """Samples of `bytes` bytes, filled with their index, after computing and sleeping."""

    samples: int = 2000
    compute_ms: float = 0.0
    sleep_ms: float = 0.0
    async_ms: float = 0.0
    bytes: int = 1024

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        _sleep((self.sleep_ms + self.async_ms) / 1e3)
        return self._make(index)

    def _make(self, index: int) -> NDArray[np.uint8]:
        if not 0 <= index < self.samples:
            raise IndexError(f"sample {index} of {self.samples}")
        compute(self.compute_ms / 1e3)
        return np.full(self.bytes, index % 256, np.uint8)


class SimulatedAsync(Simulated):
    """The same with a way to wait for many samples at once."""

    async def __agetitem__(self, index: int) -> NDArray[np.uint8]:
        _sleep(self.sleep_ms / 1e3)
        await asyncio.sleep(self.async_ms / 1e3)
        return self._make(index)


def make_simulated(**parameters: float) -> Simulated:
    """The kind that the parameters need; ValueError if a sample would be empty."""
    made = (SimulatedAsync if parameters.get("async_ms") else Simulated)(**parameters)  # type: ignore[arg-type]
    if made.bytes < 1:
        raise ValueError("bytes=0: a sample has at least one byte")
    return made


def compute(seconds: float) -> None:
    """Keep this thread's processor busy for so long."""
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def _sleep(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)
