"""Which sample takes the place of one that cannot be loaded (`on_error="skip"`).

The choice is a pure function of the seed, the epoch, the sample's position in the epoch and how many were tried before
it. Nothing of who loads goes into it: no rank, no row of a rank's batch, no worker. So a step has the same samples on
any number of ranks and workers, also where the replacement is bad too, and after a resume on others.

What a stream of keys makes of the choice is its own matter: an order, and torch's own samplers, give any sample of the
epoch; other samplers one of the same batch, since nobody else knows what they would allow.
"""

from __future__ import annotations

from typing import Any

from stoker.contracts import EpochNote
from stoker.loader.keys import KeyStream, Vacancy
from stoker.order import reserve_number

RESERVES = 16
"""Samples tried in the place of a bad one before it is given up: a guess, and a lot."""


def reserve(stream: KeyStream, note: EpochNote, vacancy: Vacancy, attempt: int) -> Any:
    """The key to try as the `attempt`-th (from 1) for a row; None where there is no other, or enough were tried."""
    if attempt > RESERVES:
        return None
    seed = note.seed if stream.seed is None else stream.seed
    return stream.reserve(reserve_number(seed & (2**64 - 1), note.epoch, vacancy.position, attempt), vacancy)
