"""Loading samples one by one, with each allowed to fail: the one rule for samples that are asked for or awaited.

Used where bad samples are skipped, dropped or tried again, or where a worker's death has to be pinned on a sample: then
`mark` notes the row of each sample before it is begun, where the training process can see it. A `try` that does not
raise costs nothing and a mark is one store, so this is as quick as loading the run in one go. Datasets that give whole
runs at once (`__getitems__`) are asked for them all the same, and sample by sample only when that goes wrong.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from stoker.contracts import NO_ROW, Failed, Fetch, Gap, Randomness, SampleRun, during
from stoker.errors import RemoteError
from stoker.options import OnError


@dataclass
class Careful:
    """Loads a run; what cannot be loaded is a `Failed` in its sample's place."""

    policy: OnError
    where: str
    mark: Callable[[int], None] | None = None
    singly: bool = False  # even where runs could be loaded at once
    sleep: Callable[[float], None] = time.sleep
    retries: int = 0  # tries so far beyond the first of each sample
    here: bool = False  # in the training process: an error that will be raised is raised itself

    def load(self, fetch: Fetch, run: SampleRun, randomness: Randomness | None, first_row: int) -> list[Any]:
        """Load the samples of a run, which is the current one meanwhile."""
        return during(run, self._load, fetch, run, randomness, first_row)

    def _load(self, fetch: Fetch, run: SampleRun, randomness: Randomness | None, first_row: int) -> list[Any]:
        if fetch.by_runs and randomness is None and not self.singly:
            try:
                return fetch.many(run.keys)
            except Exception:
                if self.policy.is_default:
                    raise  # else the samples are loaded one by one, which shows whose error it is
        return self._one_by_one(fetch, run, randomness, first_row)

    def _one_by_one(self, fetch: Fetch, run: SampleRun, randomness: Randomness | None, first_row: int) -> list[Any]:
        one = fetch.one if randomness is None else _seeded(fetch.one, run, randomness)
        mark = self.mark or _unseen
        samples: list[Any] = []
        for row, key in enumerate(run.keys, first_row):
            if key is Gap.GAP:
                samples.append(Failed(None))
                continue
            mark(row)
            try:
                samples.append(one(key))
            except Exception as error:
                if self.policy.is_default:
                    raise
                samples.append(self._again(one, key, row, error))
        mark(NO_ROW)  # what follows is nobody's fault
        return samples

    def _again(self, one: Callable[[Any], Any], key: Any, row: int, error: Exception) -> Any:
        mark = self.mark or _unseen
        for pause_s in pauses(self.policy):
            mark(NO_ROW)
            self.sleep(pause_s)
            mark(row)
            self.retries += 1
            try:
                return one(key)
            except Exception as again:
                error = again
        return self._failed(error)

    async def load_async(self, one: Callable[[Any], Awaitable[Any]], key: Any) -> Any:
        """The same for one sample that is awaited."""
        if key is Gap.GAP:
            return Failed(None)
        error: BaseException | None = None
        for pause_s in (None, *pauses(self.policy)):
            if pause_s is not None:
                await asyncio.sleep(pause_s)
                self.retries += 1
            try:
                return await one(key)
            except (Exception, asyncio.CancelledError) as raised:
                error = raised
        if error is not None and self.policy.is_default:
            raise error
        return self._failed(error or TimeoutError())

    def _failed(self, error: BaseException) -> Failed:
        return Failed(RemoteError.capture(error, self.where, keep=self.here and self.policy.action == "raise"))


def pauses(policy: OnError) -> Iterator[float]:
    """How long to wait before each further try of a sample, in seconds: scattered, and with no draw of the user's."""
    for number in range(policy.tries - 1):
        yield policy.pause_s * 2**number * random.SystemRandom().uniform(0.5, 1.5)


def _unseen(row: int) -> None:
    """Nobody watches."""


def _seeded(one: Callable[[Any], Any], run: SampleRun, randomness: Randomness) -> Callable[[Any], Any]:
    return lambda key: randomness.one(one, key, run)
