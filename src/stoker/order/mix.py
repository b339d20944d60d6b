"""Weighted mixing of several datasets, in proportions that hold to within one sample wherever the run is cut.

Drawing the next dataset at random keeps proportions only on average: after 10 000 samples a tenth is off by ±30. Here
the turns are laid out (`stoker.order.turns`), so every stretch from the epoch's beginning has each part's share to
within one sample, and part and position are computed for any place without walking there. There is no seed: the turns
need none, and which of its samples a part gives is the part's own affair.

What happens when a part is used up, `when_used_up`:

"stop"    the epoch ends with the last sample of the part that is used up first. No sample comes twice; of the other
          parts some do not come this epoch (with a `Shuffle`, others next time).
"repeat"  the part begins its next epoch, in that epoch's order, until every part was used up once. The
          next epoch of the mix goes on in each part where this one stopped, so none of its samples is favoured.
"drop"    the part leaves, and the others share its turns in their proportions, until all are used up: every sample
          comes exactly once. Proportions hold to within one sample counted from the last leaving.

The index of a sample is its place in the parts put one behind the other, as `torch.utils.data.ConcatDataset` has it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stoker.order.mixer import check_epoch
from stoker.order.permutation import MOST, Numbers, as_positions
from stoker.order.protocol import Order
from stoker.order.repeat import Repeat
from stoker.order.turns import Turns, lay_out, whole_weights

WhenUsedUp = Literal["stop", "repeat", "drop"]


@dataclass(frozen=True)
class Mix:
    """Several orders, mixed by weight. `weights` become whole numbers: (0.7, 0.2, 0.1) is kept as (7, 2, 1)."""

    parts: Sequence[Order]
    weights: Sequence[float | Fraction]
    when_used_up: WhenUsedUp = "stop"

    def __post_init__(self) -> None:
        # Tuples and whole numbers, so that equal mixes are equal and can be hashed.
        object.__setattr__(self, "parts", tuple(self.parts))
        _check(self.parts, self.weights, self.when_used_up)
        object.__setattr__(self, "weights", whole_weights(self.weights))

    def __len__(self) -> int:
        return self.n

    @property
    def n(self) -> int:
        """Samples in one epoch, which follows from `when_used_up`."""
        return sum(stretch.length for stretch in self._stretches)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The index of each part's first sample, and behind them the number of all samples."""
        return tuple(itertools.accumulate((part_length(part) for part in self.parts), initial=0))

    def locate(self, positions: npt.ArrayLike) -> tuple[Numbers, Numbers]:
        """(part, how many samples of it came earlier in the epoch) at each position."""
        inside = as_positions(positions, self.n)
        part, place = np.empty_like(inside), np.empty_like(inside)
        for stretch in self._stretches:
            chosen = (inside >= stretch.start) & (inside < stretch.start + stretch.length)
            part[chosen], place[chosen] = stretch.at(inside[chosen])
        return part, place

    def indices(self, positions: npt.ArrayLike, epoch: int) -> Numbers:
        """The index at each position, in the parts put one behind the other."""
        check_epoch(epoch)
        part, place = self.locate(positions)
        out = np.empty_like(part)
        for number, (order, offset) in enumerate(zip(self._streams, self.offsets, strict=False)):
            chosen = part == number
            out[chosen] = order.indices(place[chosen], epoch) + offset
        return out

    def describe(self) -> dict[str, Any]:
        """The settings, as JSON values."""
        parts = [part.describe() for part in self.parts]
        return {"order": "mix", "weights": list(self.weights), "when_used_up": self.when_used_up, "parts": parts}

    @cached_property
    def _stretches(self) -> tuple[_Stretch, ...]:
        everyone = _Stretch(0, 0, tuple(range(len(self.parts))), self._whole, (0,) * len(self.parts))
        ends = [everyone.turns.end_of(number, part.n) for number, part in enumerate(self.parts)]
        if self.when_used_up == "drop":
            return tuple(_until_all_left(self._whole, [part.n for part in self.parts]))
        return (everyone.cut(min(ends) if self.when_used_up == "stop" else max(ends)),)

    @cached_property
    def _streams(self) -> tuple[Order, ...]:
        if self.when_used_up != "repeat":
            return tuple(self.parts)
        stretch = self._stretches[0]
        taken = [stretch.turns.taken(number, stretch.length) for number in range(len(self.parts))]
        return tuple(Repeat(part, samples) for part, samples in zip(self.parts, taken, strict=True))

    @property
    def _whole(self) -> tuple[int, ...]:
        return tuple(int(weight) for weight in self.weights)


@dataclass(frozen=True)
class _Stretch:
    """Part of an epoch with the same members all the way."""

    start: int
    length: int
    members: tuple[int, ...]
    weights: tuple[int, ...]
    came: tuple[int, ...]  # samples of each member that came before this stretch

    @property
    def turns(self) -> Turns:
        return lay_out(self.weights)

    def cut(self, length: int) -> _Stretch:
        return _Stretch(self.start, length, self.members, self.weights, self.came)

    def at(self, positions: Numbers) -> tuple[Numbers, Numbers]:
        member, place = self.turns.at(positions - self.start)
        return np.asarray(self.members, dtype=np.int64)[member], place + np.asarray(self.came, dtype=np.int64)[member]


def part_length(part: Order) -> int:
    """How many indices a part has room for: a `Repeat` or a `Mix` may order fewer or more samples than it has."""
    if isinstance(part, Repeat):
        return part_length(part.order)
    return part.offsets[-1] if isinstance(part, Mix) else part.n


def _until_all_left(weights: tuple[int, ...], sizes: list[int]) -> list[_Stretch]:
    stretches: list[_Stretch] = []
    start, came = 0, [0] * len(sizes)
    while staying := tuple(number for number, size in enumerate(sizes) if came[number] < size):
        shares = whole_weights([weights[number] for number in staying])
        stretch = _Stretch(start, 0, staying, shares, tuple(came[number] for number in staying))
        left = [sizes[number] - came[number] for number in staying]
        stretch = stretch.cut(min(stretch.turns.end_of(member, size) for member, size in enumerate(left)))
        stretches.append(stretch)
        for member, number in enumerate(staying):
            came[number] += stretch.turns.taken(member, stretch.length)
        start += stretch.length
    return stretches


def _check(parts: Sequence[Order], weights: Sequence[float | Fraction], when_used_up: str) -> None:
    if not parts:
        raise ValueError("a mix needs at least one part")
    if len(parts) != len(weights):
        raise ValueError(f"a mix needs a weight for each part, but got {len(parts)} parts and {len(weights)} weights")
    for number, part in enumerate(parts):
        if part.n == 0:
            raise ValueError(f"part {number} of the mix has no samples, so it cannot have a share; leave it out")
    total = sum(part_length(part) for part in parts)
    if total > MOST:
        raise ValueError(f"the parts of the mix have {total} samples together, but indices go up to 2**63 - 1")
    if when_used_up not in ("stop", "repeat", "drop"):
        raise ValueError(f'when_used_up should be "stop", "repeat" or "drop", but got {when_used_up!r}')
