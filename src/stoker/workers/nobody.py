"""A crew without anybody: stands where batches are made by the one who asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stoker.contracts import EpochNote, Report, Ticket


class NoCrew:
    """Nothing is asked of it, so nothing comes."""

    is_at_rest = False
    workers: Sequence[Any] = ()
    restarts = 0

    def pid_of(self, worker: int) -> int | None:
        return None

    def begin_epoch(self, note: EpochNote) -> int:
        return 0

    def submit(self, ticket: Ticket, worker: int | None = None) -> None:
        raise AssertionError("a ticket was handed out, and there is nobody to take it")

    def flush(self) -> None:
        """Nothing was submitted."""

    def collect(self) -> list[Report]:
        return []

    def wait(self, timeout_s: float | None) -> list[Report]:
        return []

    def wake(self) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Nobody is to be let go."""
