"""Which sample takes the place of one that cannot be loaded, and which rows have to be filled at all.

The choice is a pure function of the seed, the epoch, the sample's position in the epoch and how many were tried before
it. Nothing of who loads goes into it: no rank, no row of a rank's batch, no worker. So a step has the same samples on
any number of ranks and workers, also where the replacement is bad too, and after a resume on others.

What a stream of keys makes of the choice is its own matter: an order, and torch's own samplers, give any sample of the
epoch; other samplers one of the same batch, since nobody else knows what they would allow.

A row that nothing fills is left out, and a batch that loses all its rows is passed over; but not where somebody counts
on it. Ranks that train together need a batch each in every step, or one of them waits for ever: there the last row of a
batch is filled, also with `on_error="drop"`. And a plan's steps all have the same number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stoker.contracts import EpochNote
from stoker.order import reserve_number
from stoker.order.mixer import as_word
from stoker.sampling.ordered import OrderPlan, choose_shard
from stoker.sampling.streams import KeyStream, Vacancy

RESERVES = 16
"""Samples tried in the place of a bad one before it is given up: a guess, and a lot."""


class Starved(Exception):
    """A row has to be filled, and nothing can be loaded that may fill it; the text says why it has to."""


@dataclass(frozen=True)
class Reserves:
    """Fills the rows of one pass."""

    stream: KeyStream | None
    note: EpochNote
    drops: bool  # rows are left out as long as that is allowed
    ranks: int = 1
    keeps_size: bool = False  # no row may be left out

    def fill(self, vacancy: Vacancy, attempt: int, lost: int) -> Any:
        """The key to try as the `attempt`-th (from 1) for a row; None leaves it out, as `lost` were before it."""
        is_last = self.ranks > 1 and lost + 1 >= len(vacancy.batch)
        must = self.keeps_size or is_last
        if self.drops and not must:
            return None
        key = None if self.stream is None else reserve(self.stream, self.note, vacancy, attempt)
        if key is None and must:
            raise Starved(
                "every step of a plan has the same number of rows"
                if self.keeps_size
                else f"every rank needs a batch in every step, and there are {self.ranks} ranks"
            )
        return key


def ranks_of(sampler: Any, batches: Any, planned: int | None) -> int:
    """How many ranks train together with this one, as far as that can be known; `planned` is what a plan says."""
    if isinstance(sampler, OrderPlan):
        return sampler.shard.world if planned is None else planned
    told = [getattr(one, "num_replicas", 1) for one in (sampler, batches, getattr(batches, "sampler", None))]
    return max(choose_shard(None).world, *(ranks for ranks in told if isinstance(ranks, int)))


def reserve(stream: KeyStream, note: EpochNote, vacancy: Vacancy, attempt: int) -> Any:
    """The key to try as the `attempt`-th (from 1) for a row; None where there is no other, or enough were tried."""
    if attempt > RESERVES:
        return None
    seed = note.seed if stream.seed is None else stream.seed
    return stream.reserve(reserve_number(as_word(seed), note.epoch, vacancy.position, attempt), vacancy)
