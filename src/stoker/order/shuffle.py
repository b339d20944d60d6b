"""The full shuffle: every sample can come at every position, and no table is made for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from stoker.order.mixer import Key, Purpose, check_epoch, check_seed
from stoker.order.permutation import Numbers, permute, unpermute
from stoker.order.protocol import check_count


@dataclass(frozen=True)
class Shuffle:
    """A new permutation of all samples each epoch, as good as a shuffled list, at the memory of three integers.

    It costs the storage one random read a sample. Where that is dear: `BlockShuffle`, `PreShuffled`.
    """

    n: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("n", self.n, least=0)
        check_seed(self.seed)

    def __len__(self) -> int:
        return self.n

    def indices(self, positions: npt.ArrayLike, epoch: int) -> Numbers:
        """The index at each position."""
        return permute(positions, self.n, self._key(epoch))

    def positions(self, indices: npt.ArrayLike, epoch: int) -> Numbers:
        """Where in the epoch each index comes."""
        return unpermute(indices, self.n, self._key(epoch))

    def describe(self) -> dict[str, Any]:
        """The settings, as JSON values."""
        return {"order": "shuffle", "n": self.n, "seed": self.seed}

    def _key(self, epoch: int) -> Key:
        return Key(self.seed, check_epoch(epoch), Purpose.SHUFFLE)
