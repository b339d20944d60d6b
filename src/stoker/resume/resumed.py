"""The part of a loader that knows its place in the data: states are saved, loaded, and tell where a pass begins.

A state is of what the training loop was given. Between two epochs it holds what the next one would draw from
generators, drawn ahead, so that the epoch is the same with and without a state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler

from stoker.arguments.asked import OwnArguments
from stoker.arguments.checks import threads_only
from stoker.arguments.planned import sampler_name
from stoker.batches import has_state
from stoker.device import Lookahead
from stoker.errors import StateError
from stoker.passes.failures import Failures
from stoker.resume.cursor import Progress
from stoker.resume.place import Place, check_iterable_states, check_same_data, check_step
from stoker.sampling.epochs import Epochs
from stoker.sampling.ordered import OrderPlan
from stoker.sampling.streams import draw_for, is_cuttable, is_drawn_for, state_between_epochs


class Resumed:
    """What `stoker.DataLoader` can say of its place, and how it goes to another."""

    _asked: OwnArguments
    dataset: Any
    sampler: Any
    batch_sampler: Any
    batch_size: int | None
    generator: torch.Generator | None
    _index_sampler: Any
    _iterator: Any
    _lookahead: Lookahead | None
    _failures: Failures
    _epochs: Epochs
    _progress: Progress | None
    _place: Place | None  # where the next pass begins: loaded, or drawn ahead for a state
    _is_loaded: bool

    def state_dict(self) -> dict[str, Any]:
        """The place in the data: what was handed over, whatever has been prefetched since. See `stoker.skip`."""
        ahead = self._lookahead.state() if self._lookahead is not None else None
        return self._state_of_loading() if ahead is None else ahead

    def _state_of_loading(self) -> dict[str, Any]:
        """The same, where nobody reads ahead of the training loop."""
        if threads_only(self._asked.workers) and has_state(self.dataset):
            raise StateError(
                "the dataset keeps a state of its own, and several threads move it at once: it has no place to save. "
                "Use worker processes, or lanes=1."
            )
        state = self._state()
        failures = self._failures.state()
        return {**state, "failures": failures} if failures else state

    def _state(self) -> dict[str, Any]:
        if self._place is not None:
            return self._place.to_state()
        if self._progress is not None and not self._progress.finished:
            return self._progress.state()
        self._place = place = self._draw_ahead()
        try:
            return place.to_state()
        except StateError:
            place.workers = place.sampler = None  # which stand where they stand
            raise

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next pass go on where the state was saved: on any number of ranks, workers and lanes."""
        place = Place.from_state(state_dict)
        check_same_data(place, self._described())
        plan = self.sampler if isinstance(self.sampler, OrderPlan) else None
        check_step(place, plan.per_step if plan is not None else None)
        self._check_parts(place)
        if self._lookahead is not None:
            self._lookahead.forget(self._iterator is not None)
        if self._iterator is not None:  # persistent workers stand somewhere else
            self._iterator._shutdown_workers()
            self._iterator = None
        self._failures.resume(place.failures)
        place.failures = {}  # counted there from now on
        self._go_to(place)
        self._epochs.resume(place.epoch, place.told)

    def _go_to(self, place: Place) -> None:
        """Let the next pass begin there."""
        self._place, self._is_loaded = place, True

    def _check_parts(self, place: Place) -> None:
        """Refuse a state that lacks what this loader would need to go on from the middle of an epoch."""
        self._check_owners(place)
        if isinstance(self.dataset, IterableDataset) and place.workers is not None:
            check_iterable_states(place.workers["states"])
        if is_cuttable(self._index_sampler) and place.position > (place.data.get("length") or 0):
            raise StateError(f"the state's 'position' is {place.position}, beyond the epoch's end: it was damaged")
        if not place.batches:
            return
        lacking = None
        if isinstance(self.dataset, IterableDataset) and place.workers is None:
            lacking = "workers", "where the iterable dataset stood in each worker"
        elif isinstance(self._drawn_from(), RandomSampler) and place.sampler is None and not place.drawn:
            lacking = "drawn", "what the epoch's order was drawn from"
        if lacking is not None:
            raise StateError(
                f"the state is of the middle of an epoch but has no {lacking[0]!r}: {lacking[1]} is missing, and going "
                "on would repeat or lose samples. Use a whole state; a checkpoint that only fills in keys which a new "
                "loader's state has should store json.dumps(loader.state_dict()) instead."
            )

    def _check_owners(self, place: Place) -> None:
        """Refuse parts of a state that nobody here could be given."""
        is_iterable = isinstance(self.dataset, IterableDataset)
        sampler = self._drawn_from()
        states = [] if place.workers is None else place.workers["states"]
        wrong = None
        if (states and not is_iterable and not has_state(self.dataset)) or (
            is_iterable
            and any(state and state.get("dataset") is not None for state in states)
            and not has_state(self.dataset)
        ):
            wrong = "workers", "places of the dataset, which keeps none"
        elif place.sampler is not None and place.sampler["of"] == "sampler" and not has_state(sampler):
            wrong = "sampler", "a place of the sampler, which keeps none"
        elif not is_drawn_for(sampler, place.drawn):
            wrong = "drawn", "what this loader's sampler does not draw from"
        if wrong is not None:
            raise StateError(
                f"the state's {wrong[0]!r} has {wrong[1]}: it was edited, or is of a loader over another kind of "
                "dataset or sampler. Load it into one like that in which it was saved."
            )

    def _next_place(self) -> Place:
        """Where the pass that begins now starts."""
        place, self._place = self._place, None
        if place is None:
            place = self._described(self._progress.place.epoch + 1 if self._progress is not None else 0)
        news = self._epochs.heed()
        if self._is_loaded and news is not None and not place.is_in(news):
            place = self._described(news)
        if not self._is_loaded:
            place.sampler = None  # the sampler stands where it stands
            place.epoch = place.epoch if news is None else news
        place.told = place.told if self._epochs.current is None else self._epochs.current
        self._is_loaded = False
        if isinstance(self.sampler, OrderPlan):
            self.sampler.epoch = place.epoch
        return place

    def _draw_ahead(self) -> Place:
        """The beginning of the next epoch, with what it would draw from generators drawn now, for a state to hold."""
        last = self._progress
        place = self._described(last.place.epoch + 1 if last is not None else 0)
        keeps = self._iterator is not None and last is not None
        place.base_seed = last.place.base_seed if keeps and last is not None else self._draw_base_seed()
        drawn_from = self._drawn_from()
        place.drawn = draw_for(drawn_from)
        place.sampler = state_between_epochs(drawn_from, last.place.sampler if last is not None else None)
        if last is not None:  # after the draws: a dataset's state may hold torch's generator
            place.workers = last.surviving_workers()
        return place

    def _drawn_from(self) -> Any:
        """The sampler that indices are drawn from: with a batch sampler of the user's own, the one inside it."""
        index_sampler: Any = self._index_sampler
        return index_sampler.sampler if type(index_sampler) is BatchSampler else index_sampler

    def _draw_base_seed(self) -> int:
        return int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())

    def _described(self, epoch: int = 0) -> Place:
        data = {} if isinstance(self.dataset, IterableDataset) else {"length": _length_or_none(self.dataset)}
        plan = self.sampler if isinstance(self.sampler, OrderPlan) else None
        if plan is not None:
            order = {**plan.order.describe(), "samples": plan.order.n, "per_step": plan.per_step}
            order = json.loads(json.dumps(order, default=int))  # NumPy's numbers become Python's
        else:  # torch's samplers: at least their kind has to be the same
            own = self.batch_size is None and self.batch_sampler is not None
            order = {"sampler": sampler_name(self.batch_sampler if own else self.sampler)}
        return Place(epoch=epoch, data=data, order=order)


def _length_or_none(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None
