"""Bad samples of a batch that a crew makes: what the policy says is done about them.

    raise    the error of the first row becomes the batch's
    skip     the row gets another key, and is asked for again (with a whole batch, all of it)
    drop     the row becomes a gap: nothing is asked for if the others are there already

Which key it gets, and whether a row may be left out at all, is the reserves' matter. Failures are noted here and
counted when it is their batch's turn, in order, and only those that the training loop came to.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np

from stoker.contracts import Ask, EpochNote, Gap
from stoker.passes.failures import Failures
from stoker.passes.making import BadSample, Making
from stoker.sampling.reserves import Reserves, Starved
from stoker.sampling.streams import Vacancy


class Remake(enum.Enum):
    """What has to be asked for again."""

    NOTHING = 0
    ROWS = 1  # those that have a key again
    BATCH = 2  # as it was asked for
    WHOLE = 3  # by one worker: the rows that are there do not fit together


@dataclass(frozen=True)
class Mending:
    """Mends the batches of one pass."""

    failures: Failures
    reserves: Reserves
    note: EpochNote
    names_workers: bool  # threads of the training process have no numbers that say anything

    def mend(self, making: Making) -> tuple[Remake, list[int]]:
        """Do what the policy says; gives what has to be asked for again, and of rows, which."""
        failed = making.take_failed()
        for row, worker, error in failed:
            bad = BadSample(making.key(row), self._position(making, row), worker if self.names_workers else None, error)
            making.bad.append(bad)
        if self.failures.policy.action == "raise":
            making.error = (failed[0][0], failed[0][2])
            return Remake.NOTHING, []
        rows = [row for row, _, _ in failed]
        try:
            filled = self._refill(making, rows)
        except Starved as why:
            making.error = (rows[0], why)
            return Remake.NOTHING, []
        return self._remake(making, filled), filled

    def _remake(self, making: Making, filled: list[int]) -> Remake:
        gaps = making.gaps
        making.is_empty = len(gaps) == len(making.keys)
        making.is_ended |= making.is_empty
        if making.is_empty:
            return Remake.NOTHING
        if making.ask is Ask.BATCH:  # the worker could not make the batch with them
            return Remake.BATCH if filled or not making.payloads else Remake.NOTHING
        making.dropped = set(gaps)  # the others are in the slot
        if filled:
            return Remake.ROWS
        return Remake.WHOLE if making.is_misfit else Remake.NOTHING

    def _refill(self, making: Making, rows: list[int]) -> list[int]:
        """Put other keys in the place of these rows', or gaps; gives the rows that have a key again."""
        # Python's own numbers, as a dataset gets them from torch.
        keys: Any = making.keys
        making.keys = keys.tolist() if isinstance(keys, np.ndarray) else list(keys)
        filled = []
        for row in rows:
            attempt = making.attempts[row] = making.attempts.get(row, 0) + 1
            vacancy = Vacancy(self._position(making, row), making.draw.keys, row)
            key = self.reserves.fill(vacancy, attempt, len(making.gaps))
            making.keys[row] = Gap.GAP if key is None else key
            if key is not None:
                filled.append(row)
        return filled

    def _position(self, making: Making, row: int) -> int:
        return self.note.position(making.draw.position + row)

    def record(self, making: Making) -> None:
        """It is the batch's turn: count what has failed. TooManyFailures past the budget, or where a row is needed."""
        for bad in sorted(making.bad, key=lambda bad: bad.position):
            self.failures.record(bad.key, self.note.epoch, bad.position, bad.error, bad.worker)
        if making.error is not None and isinstance(making.error[1], Starved):
            raise self.failures.starved(making.error[1])
