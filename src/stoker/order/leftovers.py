"""The samples that a dropped last step leaves out get their turn in the next epoch.

Where an epoch is cut into whole steps, the up to N - 1 samples behind the last one do not come. With a sequential
order these would be the same samples for ever; with a shuffle they are left to chance. `LeftoversFirst` goes through
epochs in pairs. The even one is the order itself; the odd one begins with what the even one left out and goes on with
the even one's beginning:

    epoch 2k        [0 ────────────── used) leftovers       positions of the order's epoch 2k
    epoch 2k + 1    leftovers [0 ──── used - left) …        the same positions, begun at `used`

A shuffle mixes the used part of the odd epoch anew, so that only the choice of samples is shared by the two epochs and
not their order. A pair of epochs has every sample once or twice, on all ranks together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.order.mixer import Key, Purpose, check_epoch
from stoker.order.permutation import Numbers, as_positions, permute
from stoker.order.protocol import check_count
from stoker.order.sequential import Sequential
from stoker.order.shuffle import Shuffle


@dataclass(frozen=True)
class LeftoversFirst:
    """An order of which only the first `used` positions come, and which starts every odd epoch with the others."""

    order: Sequential | Shuffle
    used: int

    def __post_init__(self) -> None:
        check_count("used", self.used, least=(self.order.n + 1) // 2, most=self.order.n)

    @property
    def n(self) -> int:
        """Samples, used or not."""
        return self.order.n

    def __len__(self) -> int:
        return self.order.n

    def indices(self, positions: npt.ArrayLike, epoch: int) -> Numbers:
        """The index at each position."""
        if check_epoch(epoch) % 2 == 0 or self.used == self.n:
            return self.order.indices(positions, epoch)
        places = as_positions(positions, self.n)
        if isinstance(self.order, Shuffle):
            places = np.where(places < self.used, self._mixed(places, epoch), places)
        # Unsigned, because the sum of two numbers below 2^63 may pass 2^63.
        moved = (places.view(np.uint64) + np.uint64(self.used)) % np.uint64(self.n)
        return self.order.indices(moved.view(np.int64), epoch - 1)

    def describe(self) -> dict[str, Any]:
        """The settings, as JSON values."""
        if self.used == self.n:
            return self.order.describe()
        return {**self.order.describe(), "leftovers_first": self.n - self.used}

    def _mixed(self, places: Numbers, epoch: int) -> Numbers:
        seed = self.order.seed if isinstance(self.order, Shuffle) else 0
        return permute(places % self.used, self.used, Key(seed, epoch, Purpose.LEFTOVERS))
