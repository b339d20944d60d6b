"""Batches of the engine become steps of a plan.

Mostly that is a wrapper around the batch, whose rows stay in their slot. Rows are copied in three cases: a last step
that is padded, batches that a user's `collate_fn` made one by one from a user's batch sampler, and the ends of an
iterable dataset. There each worker has a last, short batch of its own; they are kept until the end and then put
together, in the order of the workers, so that the whole stream has one tail and not one a worker. A state saved in
between has those workers stand before their last batch, and counts the steps that were made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.arguments.planned import Planned
from stoker.plan import Columns, StepBatch, columns_of, join_rows, take_rows
from stoker.resume.place import Place
from stoker.sampling.ordered import OrderPlan

Pull = Callable[[], Any]


class Steps:
    """Makes the steps of one pass, each from one batch of the engine."""

    def __init__(self, planned: Planned, sampler: Any) -> None:
        self._plan, self._tail, self._joins = planned.plan, planned.tail, planned.joins
        self._order = sampler if isinstance(sampler, OrderPlan) else None
        self._size = self._plan.combined_batch
        self.number, self.rows, self.worker = 0, 0, 0  # of the batch that was pulled last
        self._lost: Sequence[int] = ()  # rows of it that could not be loaded: `rows` are what is left

    def told(self, number: int, rows: int, worker: int | None, lost: Sequence[int] = ()) -> None:
        """The pass says which batch of the epoch it hands over."""
        self.number, self.rows, self.worker, self._lost = number, rows - len(lost), worker or 0, lost

    def step(self, pull: Pull) -> StepBatch:
        """The next step; StopIteration at the end."""
        batch = pull()
        real = self._real_rows()
        if self._tail == "pad" and self.rows < self._size:
            return self._padded(columns_of(batch, self.rows), real)
        return self._full(batch, real)

    def _full(self, batch: Any, real: int) -> StepBatch:
        """A step as it is: with a mask where rows may be there to make ranks equal, and always if steps are padded."""
        has_mask = self._tail == "pad" or self._is_shared_unevenly()
        return StepBatch(batch, self._plan, torch.arange(self.rows) < real if has_mask else None, self.rows)

    def _padded(self, columns: Columns, real: int) -> StepBatch:
        """The rows over and over until the step is full."""
        data = take_rows(columns, [row % columns.rows for row in range(self._size)])
        return StepBatch(data, self._plan, torch.arange(self._size) < real, self._size)

    def _last(self, columns: Columns) -> StepBatch:
        """What is left at the end of the epoch, by the loader's tail."""
        if self._tail == "drop":
            raise StopIteration
        if self._tail == "pad" and columns.rows < self._size:
            return self._padded(columns, columns.rows)
        return self._joined([columns])

    def _joined(self, parts: list[Columns]) -> StepBatch:
        self.rows = sum(columns.rows for columns in parts)
        return self._full(join_rows(parts), self.rows)

    def _is_shared_unevenly(self) -> bool:
        """Whether some ranks have rows in this step that only make it equal: then all have a mask, or none."""
        return self._order is not None and self._asked * self._order.shard.world > self._left(self._order)

    def _left(self, order: OrderPlan) -> int:
        """Samples of the epoch from this step on, over all ranks."""
        return order.order.n - self.number * order.per_step

    @property
    def _asked(self) -> int:
        """Rows of the batch at hand before some were lost."""
        return self.rows + len(self._lost)

    def _real_rows(self) -> int:
        """Rows of the batch at hand that are there for themselves, and not to make the ranks' last steps equal."""
        if self._order is None:
            return self.rows
        left = self._left(self._order)
        if left >= self._order.per_step:
            return self.rows
        real = min(self._asked, max(0, left - self._order.shard.rank * self._asked))
        return real - sum(row < real for row in self._lost)


class JoinedSteps(Steps):
    """Makes each step from several batches of the engine."""

    def __init__(self, planned: Planned, sampler: Any) -> None:
        super().__init__(planned, sampler)
        self._parts: list[Columns] = []

    def step(self, pull: Pull) -> StepBatch:
        while len(self._parts) < self._joins:
            try:
                batch = pull()
            except StopIteration:
                if not self._parts:
                    raise
                parts, self._parts = self._parts, []
                return self._last(columns_of(join_rows(parts), sum(columns.rows for columns in parts)))
            self._parts.append(columns_of(batch, self.rows, self._plan.micro_batch))
        parts, self._parts = self._parts, []
        return self._joined(parts)


class StreamSteps(Steps):
    """Makes steps from the batches of an iterable dataset's workers, whose ends are put together."""

    def __init__(self, planned: Planned, sampler: Any, place: Place) -> None:
        super().__init__(planned, sampler)
        self._place = place
        self._ends: list[tuple[int, Columns]] = []  # (worker, its last, short batch)
        self._rest: Columns | None = None  # of all workers, once they have ended

    def step(self, pull: Pull) -> StepBatch:
        while self._rest is None:
            try:
                batch = pull()
            except StopIteration:
                self._rest = self._put_together()
                break
            if self.rows >= self._size:
                return self._full(batch, self.rows)
            self._ends.append((self.worker, columns_of(batch, self.rows)))
        return self._step_of_rest(self._rest)

    def _put_together(self) -> Columns:
        ends = [columns for _, columns in sorted(self._ends, key=lambda end: end[0])]
        return columns_of(join_rows(ends), sum(columns.rows for columns in ends)) if ends else Columns(0, [], list)

    def _step_of_rest(self, rest: Columns) -> StepBatch:
        made = self._place.joined or 0
        start, stop = made * self._size, min((made + 1) * self._size, rest.rows)
        if start >= rest.rows:
            raise StopIteration
        part = columns_of(rest.each(lambda column: column[start:stop]), stop - start)
        step = self._joined([part]) if part.rows == self._size else self._last(part)
        self._place.joined = made + 1
        return step


def steps_for(planned: Planned | None, sampler: Any, place: Place) -> Steps | None:
    """What makes the steps of a pass that begins at a place; None without a plan."""
    if planned is None:
        return None
    if planned.is_iterable:
        return StreamSteps(planned, sampler, place)
    return Steps(planned, sampler) if planned.joins == 1 else JoinedSteps(planned, sampler)
