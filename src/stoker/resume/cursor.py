"""How far a pass has come: the batches that were handed over, not those that were prefetched.

A loader's course keeps the cursor of its latest pass, also after the pass itself is gone, so that a state can be asked
for after a `break`. With `in_order=False` batches are handed over out of turn: the place is then the last batch before
which all were handed over, and the ones ahead of it are remembered by number.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from stoker.batches import Items, opened, state_of
from stoker.resume.place import Place
from stoker.sampling.streams import KeyStream


@dataclass(frozen=True)
class HandedBatch:
    """What is known of a batch that leaves a crew's queue."""

    batch: int  # its number in the epoch
    end: int  # samples of the epoch that are used up after it, over all ranks
    sampler_state: Any  # where the sampler stood after its keys, if it can say
    rows: int
    is_keyed: bool  # the samples were asked for by keys; an iterable dataset's were not
    worker: int | None
    worker_state: Any  # where the worker's dataset stood after it, if it can say


class Cursor:
    """The place of a pass, moved on with every batch."""

    def __init__(self, place: Place, processes: int, keeps_workers: bool, has_states: bool, full_rows: int = 0) -> None:
        self.place = place
        self.finished = False
        self.items: Items | None = None  # of an iterable dataset that the training process itself walks
        self.keys: KeyStream | None = None
        self.dataset: Any = None  # a map-style dataset with a state of its own, in the training process
        self._keeps_workers = keeps_workers  # worker states outlive the epoch
        self._has_states = has_states  # the dataset keeps a state of its own in each worker
        # batches handed over out of turn: (end, sampler state); of those before a resume only the number at first
        self._ahead: dict[int, tuple[int, Any] | None] = dict.fromkeys(place.ahead)
        restored = place.workers or {}
        self._processes = processes
        self._states: list[Any] = list(restored.get("states", [None] * max(1, processes)))
        self._turn: int = restored.get("turn", 0)
        # An iterable's batch with fewer rows is kept for the epoch's end, where all are put together.
        self._full_rows = full_rows
        self._before_last: dict[int, Any] = {}  # where workers stood before such a batch

    def handed_over(self, handed: HandedBatch) -> None:
        """A batch was given to the training loop."""
        if handed.worker is not None and handed.worker_state is not None:
            if not handed.is_keyed and handed.rows < self._full_rows:
                self._before_last.setdefault(handed.worker, self._states[handed.worker])
            self._states[handed.worker] = handed.worker_state
            self._turn = (handed.worker + 1) % len(self._states)
        if handed.is_keyed:
            self.passed_in_stream(handed.batch, handed.end, handed.sampler_state)
        else:  # batches of workers whose iterable has ended leave holes in the numbers
            self.moved_on(0, None)

    def passed_in_stream(self, batch: int, end: int, sampler_state: Any) -> None:
        """A batch of the stream of keys was given, now or, out of turn, before the run was resumed."""
        if not self._ahead and batch == self.place.batches:  # in turn, as nearly always
            self.moved_on(end, sampler_state)
            return
        self._ahead[batch] = (end, sampler_state)
        while (behind := self._ahead.get(self.place.batches)) is not None:
            del self._ahead[self.place.batches]
            self.moved_on(*behind)

    def passed_over(self, handed: HandedBatch) -> None:
        """It is the turn of a worker whose iterable has ended: all its batches are behind."""
        if handed.worker is not None and handed.worker_state is not None:
            self._states[handed.worker] = handed.worker_state

    def moved_on(self, end: int, sampler_state: Any) -> None:
        """One more batch is behind: all before it were handed over too."""
        self.place.batches += 1
        self.place.position = end
        self.place.sampler = sampler_state

    def state(self) -> dict[str, Any]:
        """The state to save now, in the middle of the epoch."""
        place = copy.copy(self.place)
        if self.keys is not None:
            place.drawn = self.keys.drawn()
        place.ahead = sorted(self._ahead)
        place.workers = self._workers()
        if place.workers is not None and self._before_last:
            states = [self._before_last.get(worker, state) for worker, state in enumerate(self._states)]
            place.workers = {**place.workers, "states": states}
        return place.to_state()

    def surviving_workers(self) -> dict[str, Any] | None:
        """After the epoch: worker states that live on into the next one, to be restored and then begun anew."""
        if not (self._keeps_workers or self.items is not None or self.dataset is not None):
            return None
        workers = self._workers()
        if workers is not None:
            workers["turn"] = 0
            workers["states"] = [_finished(opened(state)) for state in workers["states"]]
        return workers

    def beginning_of(self, epoch: Place, keys: KeyStream | None) -> Place:
        """Another epoch's beginning, for a pass of which nothing was taken: with whatever it has drawn already."""
        if self.place.batches:  # an epoch that was resumed, and is over now: as between any two epochs
            epoch.workers = self.surviving_workers()
            return epoch
        epoch.base_seed = self.place.base_seed
        if keys is not None:
            epoch.drawn = {name: value for name, value in keys.drawn().items() if name != "epoch"}
        return epoch

    def _workers(self) -> dict[str, Any] | None:
        if self.items is not None:
            return {"count": 0, "turn": 0, "states": [self.items.state()]}
        if self.dataset is not None:
            return {"count": 0, "turn": 0, "states": [state_of(self.dataset)]}
        if not self._has_states and all(state is None for state in self._states):
            return None
        return {"count": self._processes, "turn": self._turn, "states": self._states}


def _finished(state: Any) -> Any:
    """An iterable's place at the end of an epoch, to be restored and then begun anew."""
    return {**state, "finished": True} if isinstance(state, dict) and "batches" in state else state
