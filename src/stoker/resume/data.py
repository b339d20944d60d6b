"""What a state is of: a dataset, and whoever says which of its samples come next.

A state holds a description of both, and is refused where they are others than those it was saved with: the samples
would come in another order, or some of them twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset, RandomSampler

from stoker.batches import has_state
from stoker.errors import StateError
from stoker.resume.place import Place, check_iterable_states, check_same_data, check_step
from stoker.sampling.grouped import sampler_name
from stoker.sampling.ordered import OrderPlan
from stoker.sampling.streams import (
    draw_for,
    inside,
    is_cuttable,
    is_drawn_for,
    length_or_none,
    state_between_epochs,
)


@dataclass(frozen=True)
class Data:
    """A loader's dataset and samplers, none of which changes while the loader lives."""

    dataset: Any
    sampler: Any
    batch_sampler: Any
    index_sampler: Any  # what torch takes a batch's indices from: the batch sampler, or the sampler
    batch_size: int | None

    @property
    def is_iterable(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    @property
    def order_plan(self) -> OrderPlan | None:
        """The arithmetic order, if it is one."""
        return self.sampler if isinstance(self.sampler, OrderPlan) else None

    @property
    def drawn_from(self) -> Any:
        """The sampler that indices are drawn from."""
        return inside(self.index_sampler)

    def beginning(self, epoch: int) -> Place:
        """The beginning of an epoch of this data."""
        data = {} if self.is_iterable else {"length": length_or_none(self.dataset)}
        return Place(epoch=epoch, data=data, order=self._described_order())

    def _described_order(self) -> dict[str, Any]:
        plan = self.order_plan
        if plan is None:  # torch's samplers: at least their kind has to be the same
            is_own = self.batch_size is None and self.batch_sampler is not None
            return {"sampler": sampler_name(self.batch_sampler if is_own else self.sampler)}
        order = {**plan.order.describe(), "samples": plan.order.n, "per_step": plan.per_step}
        described: dict[str, Any] = json.loads(json.dumps(order, default=int))  # NumPy's numbers become Python's
        return described

    def draw_ahead(self, place: Place, last: Place | None) -> None:
        """Draw now what the epoch that begins there would draw from generators, for a state to hold."""
        place.drawn = draw_for(self.drawn_from)
        place.sampler = state_between_epochs(self.drawn_from, last.sampler if last is not None else None)

    def check(self, place: Place) -> None:
        """Refuse a place that is not in this data, or lacks what is needed to go on from it."""
        check_same_data(place, self.beginning(0))
        check_step(place, self.order_plan.per_step if self.order_plan is not None else None)
        self._check_owners(place)
        if self.is_iterable and place.workers is not None:
            check_iterable_states(place.workers["states"])
        if is_cuttable(self.index_sampler) and place.position > (place.data.get("length") or 0):
            raise StateError(f"the state's 'position' is {place.position}, beyond the epoch's end: it was damaged")
        if place.batches:
            self._check_whole(place)

    def _check_whole(self, place: Place) -> None:
        """Of the middle of an epoch."""
        lacking = None
        if self.is_iterable and place.workers is None:
            lacking = "workers", "where the iterable dataset stood in each worker"
        elif isinstance(self.drawn_from, RandomSampler) and place.sampler is None and not place.drawn:
            lacking = "drawn", "what the epoch's order was drawn from"
        if lacking is not None:
            raise StateError(
                f"the state is of the middle of an epoch but has no {lacking[0]!r}: {lacking[1]} is missing, and going "
                "on would repeat or lose samples. Use a whole state; a checkpoint that only fills in keys which a new "
                "loader's state has should store json.dumps(loader.state_dict()) instead."
            )

    def _check_owners(self, place: Place) -> None:
        """Refuse parts of a state that nobody here could be given."""
        wrong = None
        if self._has_strange_workers(place):
            wrong = "workers", "places of the dataset, which keeps none"
        elif place.sampler is not None and place.sampler["of"] == "sampler" and not has_state(self.drawn_from):
            wrong = "sampler", "a place of the sampler, which keeps none"
        elif not is_drawn_for(self.drawn_from, place.drawn):
            wrong = "drawn", "what this loader's sampler does not draw from"
        if wrong is not None:
            raise StateError(
                f"the state's {wrong[0]!r} has {wrong[1]}: it was edited, or is of a loader over another kind of "
                "dataset or sampler. Load it into one like that in which it was saved."
            )

    def _has_strange_workers(self, place: Place) -> bool:
        states = [] if place.workers is None else place.workers["states"]
        if self.is_iterable:  # which always has places, of its iterators
            states = [state for state in states if state and state.get("dataset") is not None]
        return bool(states) and not has_state(self.dataset)
