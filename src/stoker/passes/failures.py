"""Samples that could not be loaded: what is done about them, and what is remembered.

    raise   the batch's turn comes, and the first error of its rows is raised, as torch's loader does
    skip    the row is filled with another sample of the same order, chosen by (seed, epoch, position, attempt): the
            same one in every run, on any number of ranks, and after a resume (see `reserves`)
    drop    the row is left out, and the batch is shorter

Every failure is remembered with its traceback (`loader.failures`), and written to a file as it happens if wanted. Past
the budget the run stops with the list.
"""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

from stoker.contracts import Failure
from stoker.errors import RemoteError, TooManyFailures
from stoker.options import OnError

_SHOWN = 10


class Failures:
    """The failures of one loader, over all its passes."""

    def __init__(self, policy: OnError) -> None:
        self.policy = policy
        self.listed: list[Failure] = []
        self._before = 0  # failures of earlier epochs
        self._forgotten = 0  # failures before a resume: their number counts, and the file has the rest
        self.seen = 0  # samples handed over so far, for a budget that is a share

    def state(self) -> dict[str, int]:
        """What a budget needs to know after a resume; nothing, while nothing has failed."""
        count = self._forgotten + len(self.listed)
        return {"count": count, "seen": self.seen} if count else {}

    def resume(self, state: dict[str, int]) -> None:
        """Go on counting where the state was saved."""
        self.listed.clear()
        self._before = 0
        self._forgotten, self.seen = state.get("count", 0), state.get("seen", 0)

    def begin_epoch(self) -> None:
        self._before = len(self.listed)

    def check_epoch(self, batches: int) -> None:
        """An epoch in which nothing at all could be loaded is not an epoch: a disk is gone, or a path is wrong."""
        if batches == 0 and len(self.listed) > self._before and self.policy.action != "raise":
            raise TooManyFailures(_too_many(self.listed, "not a whole epoch"), failures=list(self.listed))

    def starved(self, why: object) -> TooManyFailures:
        """A row could not be filled, and has to be."""
        return TooManyFailures(_starved(self.listed, why), failures=list(self.listed))

    def record(self, index: Any, epoch: int, position: int, error: RemoteError, worker: int | None) -> None:
        """Remember one; TooManyFailures past the budget."""
        last_line = error.text.strip().splitlines()[-1] if error.text.strip() else error.name
        failure = Failure(index, epoch, position, last_line, error.text, time.time(), worker, self.policy.action)
        self.listed.append(failure)
        if self.policy.log is not None:
            _append(self.policy.log, failure)
        self._check_budget()

    def _check_budget(self) -> None:
        budget, count = self.policy.budget, self._forgotten + len(self.listed)
        if budget is None or self.policy.action == "raise":
            return
        allowed = budget if isinstance(budget, int) else budget * max(self.seen, 1)
        # A share of few samples says nothing yet: two failures may come before the first hundred samples.
        if count > (allowed if isinstance(budget, int) else allowed + 2):
            raise TooManyFailures(_too_many(self.listed, budget, self._forgotten), failures=list(self.listed))


def _too_many(failures: list[Failure], budget: int | float | str, forgotten: int = 0) -> str:
    allowed = f"{budget:.2%} of the samples" if isinstance(budget, float) else str(budget)
    return (
        f"{len(failures) + forgotten} samples could not be loaded, and the budget allows {allowed}:\n"
        f"{_latest(failures, forgotten)}\n"
        "  Mend or remove them, or raise OnError(budget=…). loader.failures has them all, with tracebacks."
    )


def _starved(failures: list[Failure], why: object) -> str:
    return (
        f"a sample could not be loaded, nor any that may take its place; and {why}:\n{_latest(failures)}\n"
        "  Mend or remove them. With a sampler of your own only samples of the same batch may take its place; with "
        "seed= or order= any of the epoch may."
    )


def _latest(failures: list[Failure], forgotten: int = 0) -> str:
    rows = "\n".join(
        f"  sample {f.index} (epoch {f.epoch}, position {f.position}): {f.error}" for f in failures[-_SHOWN:]
    )
    hidden = max(0, len(failures) - _SHOWN) + forgotten
    return rows + (f"\n  and {hidden} before these" if hidden else "")


def _append(path: str, failure: Failure) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(failure), default=str) + "\n")
