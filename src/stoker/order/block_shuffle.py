"""The block shuffle: nearly as mixed as a full shuffle, and every block of the storage is read once, as a whole.

The dataset is cut into blocks of `block` neighbouring samples (the last one may be shorter). Each epoch puts the blocks
into a new random order and takes them `window` at a time; inside a window the samples of its blocks are mixed:

    blocks on disk      0   1   2   3   4   5   6        block = 4 samples, window = 2 blocks
    an epoch's slots    5   2 │ 0   6 │ 3   1 │ 4
    positions           0 … 7 │ 8 … 15│ …                the 8 samples of blocks 5 and 2 come, mixed, then 0 and 6, …

`inside` says how they are mixed, and so what a reader has to hold:

"shuffled"    a random permutation of the window's samples. A reader fetches each of the window's blocks with one
              sequential read, in the sequence `blocks(window, epoch)` gives, and holds `window` blocks.
"sequential"  the samples of a block keep their sequence: one sample of every block in turn, the blocks in a new
              random sequence each turn. Read sample by sample, every block is still read strictly front to back, by
              `window` cursors that move on together, and nothing has to be held. Less mixed: the i-th samples of a
              window's blocks always come together.

The one irregular thing is the short last block, which may land in any slot. Everything behind it in the epoch comes
earlier by the `gap` it leaves, so positions are first widened by that gap (`_widen`), and from then on
all slots have the same length. That keeps it O(1): no table of blocks, windows or samples is made.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stoker.order.mixer import Key, Purpose, check_epoch, check_seed
from stoker.order.permutation import Numbers, as_positions, permute, permute_by_size, unpermute
from stoker.order.protocol import check_count

_MOST = 1 << 60  # sums of positions, blocks and windows must stay below 2^63


@dataclass(frozen=True)
class BlockShuffle:
    """Blocks in random order, samples mixed inside a window of blocks. See the module for what `inside` means."""

    n: int
    seed: int = 0
    block: int = 1024
    window: int = 16
    inside: Literal["shuffled", "sequential"] = "shuffled"

    def __post_init__(self) -> None:
        check_count("n", self.n, least=0, most=_MOST)
        check_seed(self.seed)
        check_count("block", self.block, least=1, most=_MOST)
        check_count("window", self.window, least=1, most=_MOST)
        if self.inside not in ("shuffled", "sequential"):
            raise ValueError(f'inside should be "shuffled" or "sequential", but got {self.inside!r}')

    def __len__(self) -> int:
        return self.n

    @property
    def block_count(self) -> int:
        """Blocks in the dataset, a short last one included."""
        return -(-self.n // self.block)

    @property
    def window_count(self) -> int:
        """Windows in an epoch, the last of which may have fewer blocks."""
        return -(-self.block_count // self.window)

    def blocks(self, window: int, epoch: int) -> Numbers:
        """The blocks whose samples come in a window: what a reader should fetch next, each with one sequential read."""
        first = check_count("window", window, least=0, most=self.window_count - 1) * self.window
        return self._block_at(np.arange(first, min(first + self.window, self.block_count)), check_epoch(epoch))

    def indices(self, positions: npt.ArrayLike, epoch: int) -> Numbers:
        """The index at each position."""
        inside = as_positions(positions, self.n)
        if inside.size == 0:
            return inside.copy()
        shape = _Shape.of(self, check_epoch(epoch))
        mixed = shape.shuffled if self.inside == "shuffled" else shape.sequential
        slot, offset = mixed(inside.reshape(-1), Key(self.seed, epoch, Purpose.WINDOW))
        return (self._block_at(slot, epoch) * self.block + offset).reshape(inside.shape)

    def describe(self) -> dict[str, Any]:
        """The settings, as JSON values."""
        sizes = {"n": self.n, "seed": self.seed, "block": self.block, "window": self.window}
        return {"order": "block-shuffle", **sizes, "inside": self.inside}

    def _block_at(self, slots: Numbers, epoch: int) -> Numbers:
        return permute(slots, self.block_count, Key(self.seed, epoch, Purpose.BLOCKS))


@dataclass(frozen=True)
class _Shape:
    """How the slots of one epoch lie along its positions."""

    n: int
    block: int
    window: int  # blocks in a window, at most all there are
    slots: int
    short_slot: int  # where the short block landed; the number of slots when there is none
    gap: int  # how many samples the short block lacks

    @classmethod
    def of(cls, order: BlockShuffle, epoch: int) -> _Shape:
        slots = order.block_count
        gap = slots * order.block - order.n
        short = _slot_of_last(slots, order.seed, epoch) if gap else slots
        return cls(order.n, order.block, min(order.window, slots), slots, short, gap)

    def shuffled(self, positions: Numbers, key: Key) -> tuple[Numbers, Numbers]:
        """(slot, offset in its block) of each position, the window's samples in random order."""
        window, start = self._window_of(positions)
        sizes = self._start(window + 1) - start
        mixed = start + permute_by_size(positions - start, sizes, key, window)
        slot = self._widen(mixed) // self.block
        return slot, self._widen(mixed) - slot * self.block

    def sequential(self, positions: Numbers, key: Key) -> tuple[Numbers, Numbers]:
        """(slot, offset in its block) of each position, the window's blocks taking turns."""
        window, start = self._window_of(positions)
        first = window * self.window
        members = np.minimum(first + self.window, self.slots) - first
        local, kept = positions - start, self.block - self.gap
        # Past the short block's end its window goes on with one member fewer.
        holds_short = (self.short_slot >= first) & (self.short_slot < first + members)
        late = holds_short & (local // members >= kept)
        takers = np.where(late, members - 1, members)
        turn_start = np.where(late, kept * members, 0)
        turn = (local - turn_start) // takers
        place = local - turn_start - turn * takers
        offset = turn + np.where(late, kept, 0)
        slot = first + permute_by_size(place, takers, key, window * self.block + offset)
        return slot + (late & (slot >= self.short_slot)), offset

    def _window_of(self, positions: Numbers) -> tuple[Numbers, Numbers]:
        window = self._widen(positions) // self.block // self.window
        return window, self._start(window)

    def _start(self, window: Numbers) -> Numbers:
        first = np.minimum(window * self.window, self.slots)
        return first * self.block - np.where(first > self.short_slot, self.gap, 0)

    def _widen(self, positions: Numbers) -> Numbers:
        """Positions as they would be if the short block were as long as the others."""
        end_of_short = (self.short_slot + 1) * self.block - self.gap
        return positions + np.where(positions >= end_of_short, self.gap, 0)


@functools.lru_cache(maxsize=64)
def _slot_of_last(slots: int, seed: int, epoch: int) -> int:
    return int(unpermute([slots - 1], slots, Key(seed, epoch, Purpose.BLOCKS))[0])
