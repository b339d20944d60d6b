"""`StepBatch`: what a loader with a plan hands over in a step, and the ways to look at it.

It wraps whatever the loader would have given (a tensor, a tuple of tensors, a dictionary, …) for all rows of a step,
and can be used in its place: `images, labels = batch`, `batch["image"]`, `model(**batch)`. Its views share the batch's
memory, which lives as long as any of them:

    batch.grid()            [D, G, R/g, b, …]                 the whole, as the plan lays it out
    batch.iterations()      D batches of G·(R/g)·b rows       each a StepBatch: what one weight update is made from
    batch.micro_batches()   D·G·(R/g) pieces of b rows        by iteration, then accumulation, then replica
    batch.replica(r)        [D, G, b, …]                      what one replica sees

Lists of texts or objects are cut by rows as well: where a tensor has dimensions, they are nested lists.

With `last="keep"` an epoch's last step may be short. It still gives iterations and micro-batches, fewer of them and the
last one short, but it has no grid. With `last="pad"` it is filled up with rows that came before, and `mask` says which
rows are real.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from stoker.nested import is_array
from stoker.plan.batch_plan import BatchPlan
from stoker.plan.columns import Columns, columns_of, map_tensors


class StepBatch:
    """One step's batch: `data` for all rows, the `plan` they follow, and a `mask` of real rows if some may not be."""

    __slots__ = ("_columns", "_expected", "data", "mask", "plan")

    def __init__(self, data: Any, plan: BatchPlan, mask: Any = None, rows: int | None = None) -> None:
        self.data, self.plan, self.mask = data, plan, mask
        self._expected = (plan.combined_batch,) if rows is None else (rows, plan.combined_batch)
        self._columns: Columns | None = None  # taken apart when a view is first asked for

    def __len__(self) -> int:
        """Rows, padding included."""
        return self._taken().rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __getitem__(self, key: Any) -> Any:
        return self.data[key]

    def keys(self) -> Any:
        """Of a dictionary: so that `model(**batch)` works."""
        return self.data.keys()

    def __repr__(self) -> str:
        return f"StepBatch({type(self.data).__name__}, plan={self.plan})"

    def __reduce__(self) -> tuple[Any, ...]:
        return StepBatch, (self.data, self.plan, self.mask, self._expected[0])

    @property
    def is_full(self) -> bool:
        """Whether there are as many rows as the plan says."""
        return len(self) == self.plan.combined_batch

    def grid(self) -> Any:
        """Everything as [D, G, R/g, b, …]."""
        self._check_full("grid()")
        return self._taken().each(lambda part: _unflatten(part, self.plan.shape))

    def replica(self, replica: int) -> Any:
        """What one replica sees, as [D, G, b, …]."""
        group = self.plan.group_of(replica)
        self._check_full(f"replica({replica})")

        def seen(part: Any) -> Any:
            whole = _unflatten(part, self.plan.shape)
            if is_array(part):
                return whole[:, :, group]
            return [[groups[group] for groups in accumulations] for accumulations in whole]

        return self._taken().each(seen)

    def iterations(self) -> Iterator[StepBatch]:
        """What each weight update is made from, one after the other."""
        plan = dataclasses.replace(self.plan, device_iterations=1)
        for start in range(0, len(self), plan.combined_batch):
            stop = start + plan.combined_batch
            mask = None if self.mask is None else self.mask[start:stop]
            yield StepBatch(self._rows(start, stop), plan, mask, min(stop, len(self)) - start)

    def micro_batches(self) -> Iterator[Any]:
        """What the model sees at a time: all iterations, in each all accumulations, in each all replicas."""
        for start in range(0, len(self), self.plan.micro_batch):
            yield self._rows(start, start + self.plan.micro_batch)

    def micro_batch(self, iteration: int = 0, accumulation: int = 0, replica: int = 0) -> Any:
        """One replica's micro-batch."""
        start = self.plan.row_of(iteration, accumulation, replica, 0)
        if start >= len(self):
            raise IndexError(f"this step is short: it has {len(self)} rows, and that micro-batch begins at row {start}")
        return self._rows(start, start + self.plan.micro_batch)

    def micro_masks(self) -> Iterator[Any]:
        """The masks of `micro_batches()`, or None for each."""
        for start in range(0, len(self), self.plan.micro_batch):
            yield None if self.mask is None else self.mask[start : start + self.plan.micro_batch]

    def to(self, device: Any, non_blocking: bool = False) -> StepBatch:
        """The same with its tensors on a device."""
        return self._each_tensor(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def device_leaves(self) -> tuple[Any, Any]:
        """What it is made of, for whoever copies it ahead of the step."""
        return self.data, self.mask

    def pin_memory(self) -> StepBatch:
        """The same in page-locked memory."""
        return self._each_tensor(lambda tensor: tensor.pin_memory())

    def _each_tensor(self, change: Any) -> StepBatch:
        mask = None if self.mask is None else change(self.mask)
        return StepBatch(map_tensors(self.data, change), self.plan, mask, self._expected[0])

    def _rows(self, start: int, stop: int) -> Any:
        return self._taken().each(lambda part: part[start:stop])

    def _taken(self) -> Columns:
        if self._columns is None:
            self._columns = columns_of(self.data, *self._expected)
        return self._columns

    def _check_full(self, asked: str) -> None:
        if not self.is_full:
            raise ValueError(
                f"{asked} needs a full step, but this one has {len(self)} rows, and the plan is {self.plan.local}. Use "
                'iterations() or micro_batches(), or a loader with last="pad" or last="drop".'
            )


def _unflatten(part: Any, shape: tuple[int, ...]) -> Any:
    """Cut rows into a shape: a view of a tensor or array, nested lists of a list."""
    if hasattr(part, "unflatten"):
        return part.unflatten(0, shape)
    if is_array(part):
        return part.reshape(*shape, *part.shape[1:])
    for size in reversed(shape[1:]):
        part = [part[start : start + size] for start in range(0, len(part), size)]
    return part
