"""Python's, NumPy's and torch's global generators: what a process's samples, samplers and model draw from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Generators:
    """The three at one moment."""

    python: Any
    numpy: Any
    torch: torch.Tensor

    @classmethod
    def now(cls) -> Generators:
        return cls(random.getstate(), np.random.get_state(), torch.get_rng_state())

    def have_moved(self) -> bool:
        """Whether somebody has drawn from one of them since."""
        now, (_, before, position, *_) = Generators.now(), self.numpy
        is_same = now.numpy[2] == position and np.array_equal(now.numpy[1], before)
        return not is_same or now.python != self.python or not torch.equal(now.torch, self.torch)

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Whatever is drawn inside, the generators are afterwards as they were found."""
    found = Generators.now()
    try:
        yield
    finally:
        found.restore()
