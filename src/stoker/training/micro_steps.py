"""A step's batch, cut into what the model sees at a time.

Padding never reaches the model: a micro-batch is cut down to its real rows. One that has none is left out, except where
other ranks wait for this one in an all-reduce; there it is run, and counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stoker.plan import StepBatch, columns_of, take_rows


@dataclass(frozen=True)
class MicroStep:
    """One micro-batch of a weight update."""

    data: Any
    rows: int  # real ones: what it counts
    replica: int  # or group of replicas, where they read the same samples


def updates_of(batch: StepBatch, keep_empty: bool = False) -> Iterator[list[MicroStep]]:
    """The micro-batches of each weight update."""
    for part in batch.iterations():
        steps, left = [], len(part)
        for number, (data, mask) in enumerate(zip(part.micro_batches(), part.micro_masks(), strict=True)):
            steps.append(_micro_step(data, mask, min(left, batch.plan.micro_batch), number % batch.plan.groups))
            left -= batch.plan.micro_batch
        yield [step for step in steps if step.rows or keep_empty]


def check_step(batch: Any) -> None:
    """Refuse what is not a step's batch."""
    if not isinstance(batch, StepBatch):
        raise TypeError(
            f"a step is a stoker.StepBatch, but got {type(batch).__name__}: make the loader with "
            "plan=stoker.BatchPlan(…), or wrap the batch in stoker.StepBatch(data, plan)"
        )
    if len(batch) > batch.plan.combined_batch:
        raise ValueError(f"the batch has {len(batch)} rows, more than a step of its plan: {batch.plan.local}")


def _micro_step(data: Any, mask: Any, rows: int, replica: int) -> MicroStep:
    if mask is None or bool(mask.all()):
        return MicroStep(data, rows, replica)
    real = mask.nonzero().flatten().tolist()
    return MicroStep(take_rows(columns_of(data, rows), real) if real else data, len(real), replica)
