"""Orders that read front to back: `Sequential` as it lies, `PreShuffled` from another start every epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.order.mixer import Purpose, check_epoch, check_seed, fold
from stoker.order.permutation import Numbers, as_positions
from stoker.order.protocol import check_count


@dataclass(frozen=True)
class Sequential:
    """The dataset as it lies: position and index are the same number."""

    n: int

    def __post_init__(self) -> None:
        check_count("n", self.n, least=0)

    def __len__(self) -> int:
        return self.n

    def indices(self, positions: npt.ArrayLike, epoch: int) -> Numbers:
        """The positions themselves."""
        check_epoch(epoch)
        return as_positions(positions, self.n).copy()

    def describe(self) -> dict[str, Any]:
        """The settings, as JSON values."""
        return {"order": "sequential", "n": self.n}


@dataclass(frozen=True)
class PreShuffled:
    """A dataset that was shuffled when it was packed: read front to back, from another start every epoch.

    Reading in storage order is the cheapest there is, and shuffling once, at packing, makes every batch as good as a
    full shuffle would. What it cannot do is make epochs different. The rotation of the start mends two things at no
    cost but one jump back an epoch: batches are cut elsewhere, so the same samples do not meet in the same batch for
    ever, and the samples that a dropped last step leaves out are others each time. Neighbours stay neighbours: where
    that matters, take `BlockShuffle`.

    The start is a multiple of `block`, so a reader of whole blocks never has to begin inside one.
    """

    n: int
    seed: int = 0
    block: int = 1

    def __post_init__(self) -> None:
        check_count("n", self.n, least=0)
        check_seed(self.seed)
        check_count("block", self.block, least=1)

    def __len__(self) -> int:
        return self.n

    def start(self, epoch: int) -> int:
        """The index at position 0 of an epoch."""
        blocks = -(-self.n // self.block)
        return fold(self.seed, check_epoch(epoch), Purpose.ROTATION) % max(1, blocks) * self.block

    def indices(self, positions: npt.ArrayLike, epoch: int) -> Numbers:
        """Positions, moved by the epoch's start and wrapped around at the end."""
        start = np.uint64(self.start(epoch))
        # Unsigned, because the sum of two numbers below 2^63 may pass 2^63.
        moved = as_positions(positions, self.n).view(np.uint64) + start
        return (moved % np.uint64(max(1, self.n))).view(np.int64)

    def describe(self) -> dict[str, Any]:
        """The settings, as JSON values."""
        return {"order": "pre-shuffled", "n": self.n, "seed": self.seed, "block": self.block}
