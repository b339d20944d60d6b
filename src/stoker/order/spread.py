"""Where in the epoch the samples of a rank stand, when they are no neighbours.

The engine numbers the samples of a rank one after the other, and for ranks that take a contiguous part of each step
these are, up to a constant, positions in the epoch. A rank that is one replica of several takes every so many rows:

    step    ├ b rows ┤ others ├ b rows ┤ others │ …       replica 0 of 2
    places    0 … b-1           b … 2b-1

`Spread` turns such a place into the position, so that randomness that belongs to a position is the same whoever takes
the sample. The last, partial step is shared contiguously.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stoker.order.permutation import Numbers


@dataclass(frozen=True)
class Spread:
    """From places of one rank to positions in the epoch."""

    rows: int  # of the rank in a full step
    block: int  # of them that are neighbours
    apart: int  # positions from one block to the next
    first: int  # position of the rank's first row in step 0
    per_step: int  # samples of all ranks
    full: int  # full steps
    last: int  # position of the rank's first row in the last, partial step

    def __call__(self, place: int) -> int:
        """The position of a place."""
        step, row = divmod(place, self.rows)
        if step >= self.full:
            return self.last + place - self.full * self.rows
        block, inside = divmod(row, self.block)
        return step * self.per_step + self.first + block * self.apart + inside

    def positions(self, step: int) -> Numbers:
        """The positions of a full step."""
        blocks = np.arange(self.rows // self.block, dtype=np.int64)[:, None] * self.apart
        return (step * self.per_step + self.first + blocks + np.arange(self.block, dtype=np.int64)).reshape(-1)
