"""Counting in steps rather than epochs: an order as an endless stream, cut where the user wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.order.mixer import check_epoch
from stoker.order.permutation import Numbers, as_positions
from stoker.order.protocol import Order, check_count


@dataclass(frozen=True)
class Repeat:
    """The epochs of `order` one after the other, cut anew every `samples` samples.

    An epoch of a `Repeat` is just a stretch of that stream: epoch 1 goes on where epoch 0 stopped, be that in the
    middle of the data. So over a run every sample comes equally often to within one, whatever the length of a stretch.
    """

    order: Order
    samples: int

    def __post_init__(self) -> None:
        check_count("samples", self.samples, least=0)
        if self.order.n == 0 and self.samples:
            raise ValueError(f"nothing to repeat: the order has no samples, but {self.samples} were asked for")

    @classmethod
    def for_steps(cls, order: Order, steps: int, per_step: int) -> Repeat:
        """The stretch that `steps` steps of `per_step` samples (over all ranks) take."""
        return cls(order, check_count("steps", steps, least=0) * check_count("per_step", per_step, least=1))

    @property
    def n(self) -> int:
        """Samples in one stretch."""
        return self.samples

    def __len__(self) -> int:
        return self.samples

    def locate(self, positions: npt.ArrayLike, epoch: int) -> tuple[Numbers, Numbers]:
        """(epoch of the repeated order, position in it) of each position of a stretch."""
        inside = as_positions(positions, self.samples)
        # Whole numbers of Python's until the start is known: epoch · samples may be far beyond 64 bits.
        first, start = divmod(check_epoch(epoch) * self.samples, max(1, self.order.n))
        moved = inside.view(np.uint64) + np.uint64(start)
        passed, place = np.divmod(moved, np.uint64(max(1, self.order.n)))
        return passed.view(np.int64) + first, place.view(np.int64)

    def indices(self, positions: npt.ArrayLike, epoch: int) -> Numbers:
        """The index at each position of a stretch."""
        epochs, places = self.locate(positions, epoch)
        out = np.empty_like(places)
        for each in np.unique(epochs):
            chosen = epochs == each
            out[chosen] = self.order.indices(places[chosen], int(each))
        return out

    def describe(self) -> dict[str, Any]:
        """The settings, as JSON values."""
        return {"order": "repeat", "samples": self.samples, "of": self.order.describe()}
