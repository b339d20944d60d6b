"""Which part of a dataset each host process takes: contiguous blocks, as PopTorch's, but disjoint by arithmetic.

    positions of an epoch   │ host 0 … │ host 1 … │ host 2 … │ left over │

With `drop_last` every host takes the same whole number of steps; without, the samples are dealt as evenly as possible,
one more to the first hosts. Unshuffled, positions are indices, every epoch the same. Shuffled, the epoch's order is a
function of the seed and the epoch's number, and what one epoch left out comes in the next (`stoker.order.leftovers`).
So the hosts' parts are disjoint as long as they are in the same epoch, whatever each of them did before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.order import LeftoversFirst, Sequential, Shuffle
from stoker.order.permutation import Numbers


@dataclass(frozen=True)
class HostBlock:
    """An order over one host's part of `length` samples."""

    length: int
    host: int
    hosts: int
    per_step: int  # samples of one host's step
    drop_last: bool = True
    seed: int | None = None  # None: not shuffled

    @property
    def n(self) -> int:
        """Samples of this host in an epoch."""
        if self.drop_last:
            return self.length // (self.per_step * self.hosts) * self.per_step
        return self.length // self.hosts + (self.host < self.length % self.hosts)

    def __len__(self) -> int:
        return self.n

    @property
    def first(self) -> int:
        """Where in the epoch this host's block begins."""
        if self.drop_last:
            return self.host * self.n
        return self.host * (self.length // self.hosts) + min(self.host, self.length % self.hosts)

    @property
    def used(self) -> int:
        """Samples that all hosts together take in an epoch."""
        return self.n * self.hosts if self.drop_last else self.length

    def indices(self, positions: npt.ArrayLike, epoch: int) -> Numbers:
        """The index at each position of this host's epoch."""
        places = np.asarray(positions, dtype=np.int64) + self.first
        if self.seed is None:
            return Sequential(self.length).indices(places, epoch)
        order = Shuffle(self.length, self.seed)
        return LeftoversFirst(order, self.used).indices(places, epoch)

    def describe(self) -> dict[str, Any]:
        """The settings, as JSON values."""
        return {
            "order": "host block",
            "n": self.length,
            "host": self.host,
            "hosts": self.hosts,
            "per_step": self.per_step,
            "drop_last": self.drop_last,
            "seed": self.seed,
        }
