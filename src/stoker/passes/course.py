"""What outlives a pass: where the next one begins, what trainers have said, failures, and who watches.

A loader has one course, and hands it to each of its passes; a pass knows nothing else of the loader that began it.

A state is of what the training loop was given. Between two epochs it holds what the next one would draw from
generators, drawn ahead, so that the epoch is the same with and without a state.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from stoker.auto.steering import Steering
from stoker.errors import StateError
from stoker.options import OnError
from stoker.passes.failures import Failures
from stoker.resume.cursor import Cursor
from stoker.resume.data import Data
from stoker.resume.place import Place
from stoker.sampling.epochs import Epochs
from stoker.sampling.streams import draw_seed
from stoker.watch.stats import Stats
from stoker.watch.watch import Watch

_NO_PASS: dict[str, Any] = {"_cursor": None, "_next": None, "_is_exact": False}


class Course:
    """The run of one loader, over all its passes."""

    def __init__(self, data: Data, policy: OnError, lanes: int = 1, steering: Steering | None = None) -> None:
        self.data = data
        self.epochs = Epochs() if data.order_plan is None else data.order_plan.epochs
        self.failures = Failures(policy)
        self.watch = Watch()
        self.steering = steering  # where the number of those who load may change
        self.length_told: int | None = None  # what an iterable dataset has said of its length
        self._lanes = lanes
        self._cursor: Cursor | None = None  # of the latest pass
        self._next: Place | None = None  # where the next pass begins: loaded, or drawn ahead for a state
        self._is_exact = False  # the next pass begins just there, and not where the sampler happens to stand

    # The place.

    def state(self, generator: torch.Generator | None, keeps_workers: bool) -> dict[str, Any]:
        """The state to save now; workers that are kept keep their seeds, others draw from the generator."""
        state = self._state(generator, keeps_workers)
        failures = self.failures.state()
        return {**state, "failures": failures} if failures else state

    def _state(self, generator: torch.Generator | None, keeps_workers: bool) -> dict[str, Any]:
        if self._next is not None:
            return self._next.to_state()
        if self._cursor is not None and not self._cursor.finished:
            return self._cursor.state()
        self._next = place = self._draw_ahead(generator, keeps_workers)
        try:
            return place.to_state()
        except StateError:
            place.workers = place.sampler = None  # which stand where they stand
            raise

    def _draw_ahead(self, generator: torch.Generator | None, keeps_workers: bool) -> Place:
        """The beginning of the next epoch, with what it would draw from generators drawn now."""
        last = self._cursor
        place = self._beginning_of_next()
        place.base_seed = last.place.base_seed if last is not None and keeps_workers else draw_seed(generator)
        self.data.draw_ahead(place, None if last is None else last.place)
        if last is not None:  # after the draws: a dataset's state may hold torch's generator
            place.workers = last.surviving_workers()
        return place

    def read(self, state: Mapping[str, Any]) -> Place:
        """The place that a state tells; an error says why this loader cannot go on from there."""
        place = Place.from_state(state)
        self.data.check(place)
        return place

    def load(self, place: Place) -> None:
        """Let the next pass go on where a state was saved."""
        self.failures.resume(place.failures)
        place.failures = {}  # counted there from now on
        self.go_to(place)
        self.epochs.resume(place.epoch, place.told)

    def go_to(self, place: Place) -> None:
        """Let the next pass begin there."""
        self._next, self._is_exact = place, True

    def next_place(self) -> Place:
        """Where the pass that begins now starts. Nothing is forgotten until it has `begun`."""
        place = self._beginning_of_next() if self._next is None else copy.copy(self._next)
        news = self.epochs.news
        if self._is_exact and news is not None and not place.is_in(news):
            place = self.data.beginning(news)
        if not self._is_exact:
            place.sampler = None  # the sampler stands where it stands
            place.epoch = place.epoch if news is None else news
        place.told = place.told if self.epochs.current is None else self.epochs.current
        if self.data.order_plan is not None:
            self.data.order_plan.epoch = place.epoch
        return place

    def begun(self, cursor: Cursor) -> None:
        """A pass has begun, and this is how far it has come."""
        self._cursor, self._next, self._is_exact = cursor, None, False
        self.epochs.heed()
        self.failures.begin_epoch()

    def begin_again_if_left(self) -> int | None:
        """Let an epoch that was left early begin again in the same order; gives its number, if it was."""
        last = self._cursor
        if last is None or last.finished or self._next is not None:
            return None
        self._next = self.data.beginning(last.place.epoch)
        return last.place.epoch

    def _beginning_of_next(self) -> Place:
        return self.data.beginning(0 if self._cursor is None else self._cursor.place.epoch + 1)

    # Watching.

    def stats(self) -> Stats:
        """The statistics now, without a look at memory."""
        stats = self.watch.stats({"lanes": self._lanes, "failures": len(self.failures.listed)})
        return stats if self.steering is None else replace(stats, **self.steering.shown())

    def __getstate__(self) -> dict[str, Any]:
        """A copy, in this process or a spawned one, begins anew: the passes under way are of this loader only."""
        steering = None if self.steering is None else self.steering.anew()
        begun_anew = {"watch": Watch(), "failures": Failures(self.failures.policy), "steering": steering}
        return {**self.__dict__, **begun_anew, **_NO_PASS}
