"""Chance that belongs to the sample: generators keyed by (seed, epoch, position).

An augmentation that draws from a worker's generator depends on who loaded the sample and what that worker loaded
before, so another number of workers, or a restart, changes the data. Here a sample's generator is made from where the
sample stands in the run: whoever loads it, and whenever, draws the same numbers.

A generator is made anew for every sample rather than moved to a new place, so a sample may keep its own without
another sample's draws changing under it. NumPy's usual way of seeding hashes for 12 µs; giving PCG64 its four
words ready made takes 1.5 µs, and they need no more hashing, being hashes already.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from stoker.order.mixer import WORD, Purpose, check_epoch, check_seed, fold, mix


def sample_key(seed: int, epoch: int, position: int) -> int:
    """A 128-bit number of the sample's own. Inside an epoch no two samples have the same."""
    if position < 0:
        raise ValueError(f"position should be at least 0, but got {position}")
    high, low = _epoch_words(seed, epoch)
    return mix(high ^ (position & WORD)) << 64 | mix(low ^ (position & WORD))


def reserve_number(seed: int, epoch: int, position: int, attempt: int) -> int:
    """A 64-bit number that picks another sample for a position whose own cannot be loaded.

    Nothing else goes into it, no row of a batch, rank or worker: the choice is the same however a step is shared.
    """
    return fold(check_seed(seed), check_epoch(epoch), Purpose.RESERVE, position, attempt)


def generator_for(seed: int, epoch: int, position: int) -> np.random.Generator:
    """A fresh NumPy generator for the sample: the same draws wherever and whenever it is made."""
    return generator_from(sample_key(seed, epoch, position))


def generator_from(key: int) -> np.random.Generator:
    """A fresh NumPy generator from a 128-bit key."""
    return np.random.Generator(np.random.PCG64(_Ready(key)))  # type: ignore[arg-type]


class _Ready(ISeedSequence):
    """Hands PCG64 the words it would otherwise ask a SeedSequence to hash."""

    def __init__(self, key: int) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        high, low = self._key >> 64, self._key & WORD
        words = (high, low, mix(high), mix(low))  # state, then increment
        if n_words != len(words) or np.dtype(dtype) != np.uint64:
            raise NotImplementedError(f"made for PCG64, which takes 4 words of 64 bits, not {n_words} of {dtype}")
        return np.array(words, dtype=np.uint64)


@functools.lru_cache(maxsize=64)
def _epoch_words(seed: int, epoch: int) -> tuple[int, int]:
    check_seed(seed)
    check_epoch(epoch)
    return fold(seed, epoch, Purpose.SAMPLE, 0), fold(seed, epoch, Purpose.SAMPLE, 1)
