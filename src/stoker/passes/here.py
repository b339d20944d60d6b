"""Batches of a map-style dataset made in the thread that asks for them, with what the policy says of bad samples."""

from __future__ import annotations

from typing import Any

from stoker.batches import DROPPED, InlineBatches
from stoker.contracts import EpochNote
from stoker.passes.failures import Failures
from stoker.sampling.reserves import Reserves, Starved
from stoker.sampling.streams import Draw, Vacancy
from stoker.watch.watch import PassWatch


class Here:
    """Makes the batches of one epoch."""

    def __init__(self, maker: InlineBatches, failures: Failures, reserves: Reserves, note: EpochNote) -> None:
        self.maker = maker
        self.lost: list[int] = []  # rows of the latest batch that were left out
        self._failures, self._reserves, self._note = failures, reserves, note
        self._keys: Any = None  # of the batch at hand, as they were drawn

    def make(self, draw: Draw, watch: PassWatch) -> Any:
        """The batch of these keys; DROPPED if nothing is left of it."""
        self._keys, self.lost = draw.keys, []
        try:
            return self.maker.of_keys(draw.keys, draw.position, self._note, self._replace)
        finally:
            if self.maker.retries:
                watch.retried(self.maker.retries)
                self.maker.retries = 0

    def _replace(self, keys: list[Any], row: int, attempt: int, position: int, error: Any) -> Any:
        """What to load in the place of a bad sample; DROPPED for nothing."""
        position = self._note.position(position)
        self._failures.record(keys[row], self._note.epoch, position, error, None)
        if self._failures.policy.action == "raise":
            raise error.to_exception()
        try:
            key = self._reserves.fill(Vacancy(position, self._keys, row), attempt, len(self.lost))
        except Starved as why:
            raise self._failures.starved(why) from None
        if key is None:
            self.lost.append(row)
        return DROPPED if key is None else key
