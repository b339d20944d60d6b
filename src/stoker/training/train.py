"""Weight updates of a torch model from one step's batch.

    for each iteration:            one weight update
        for each accumulation:
            for each replica:      forward, backward: gradients add up

Replicas of a process are run one after the other on the same model, which comes to the same as copies whose gradients
are averaged (but for layers that keep statistics of batches, which see all of them). Under DistributedDataParallel
gradients are exchanged once for each weight update, in its last micro-step: the others run inside `no_sync`.

The gradient is that of the mean loss over all rows of the update, on all ranks, where a micro-batch's loss is the mean
over its rows ("mean"); or that of the sum of all micro-batches' losses ("sum"). Padding counts nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed

from stoker.plan import StepBatch
from stoker.training.micro_steps import MicroStep, check_step, updates_of
from stoker.training.outputs import Outputs, Returns

Compute = Callable[[torch.nn.Module, Any], Any]
"""(model, data of a micro-batch) to its loss, or to (loss, outputs)."""


@dataclass(frozen=True)
class StepResult:
    """What a step gave."""

    losses: torch.Tensor  # one for each weight update, over the rows of this rank
    outputs: Any  # those that were asked for


def train_step(
    model: torch.nn.Module,
    batch: StepBatch,
    compute: Compute,
    optimizer: torch.optim.Optimizer,
    *,
    reduction: Literal["mean", "sum"] = "mean",
    returns: Returns = "final",
) -> StepResult:
    """Make the weight updates of one step; `compute(model, data)` gives a micro-batch's loss, or (loss, outputs).

    To clip gradients or move a schedule on, use the optimizer's `register_step_pre_hook` and `register_step_post_hook`.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction should be "mean" or "sum", but got {reduction!r}')
    check_step(batch)
    ranks = _Ranks(model)
    updates = list(updates_of(batch, keep_empty=ranks.are_several))
    totals = ranks.rows_of(updates, has_mask=batch.mask is not None)
    outputs, losses = Outputs(returns, batch.plan), []
    for iteration, (micros, total) in enumerate(zip(updates, totals, strict=True)):
        if not total:  # nothing but padding, on all ranks
            continue
        optimizer.zero_grad()
        update = _Update(model, compute, ranks, total if reduction == "mean" else None)
        for micro in micros:
            output = update.run(micro, is_last=micro is micros[-1])
            if micro.rows:
                outputs.add(iteration, micro.replica, output)
        optimizer.step()
        losses.append(update.loss(sum(micro.rows for micro in micros)))
    return StepResult(torch.stack(losses) if losses else torch.zeros(0), outputs.result())


class _Update:
    """The micro-steps of one weight update."""

    def __init__(self, model: torch.nn.Module, compute: Compute, ranks: _Ranks, rows: int | None) -> None:
        self._model, self._compute, self._ranks = model, compute, ranks
        self._rows = rows  # over all ranks, of which the loss is the mean; None for a sum
        self._sum: Any = 0.0

    def run(self, micro: MicroStep, is_last: bool) -> Any:
        """Forward and backward; gives the outputs."""
        counts = micro.rows if self._rows is not None else int(micro.rows > 0)
        with contextlib.nullcontext() if is_last else self._ranks.apart():
            loss, output = _loss_of(self._compute(self._model, micro.data))
            # Ranks average their gradients, so each gives as many times its own as there are ranks.
            torch.autograd.backward(loss * (counts * self._ranks.count / (self._rows or 1)))
        self._sum = self._sum + loss.detach() * counts
        return output

    def loss(self, rows: int) -> torch.Tensor:
        """The mean over this rank's rows, or the sum."""
        loss: torch.Tensor = self._sum / max(1, rows) if self._rows is not None else self._sum
        return loss


class _Ranks:
    """The ranks that train a model together: one, unless the model is wrapped for DistributedDataParallel."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.are_several = callable(getattr(model, "no_sync", None)) and torch.distributed.is_initialized()
        self._group = getattr(model, "process_group", None)
        self.count = torch.distributed.get_world_size(self._group) if self.are_several else 1

    def apart(self) -> contextlib.AbstractContextManager[Any]:
        """Inside, gradients add up and are not exchanged."""
        apart: contextlib.AbstractContextManager[Any] = (
            self._model.no_sync() if self.are_several else contextlib.nullcontext()
        )
        return apart

    def rows_of(self, updates: list[list[MicroStep]], has_mask: bool) -> list[int]:
        """Real rows of each weight update, over all ranks. Only masked steps may have other numbers on other ranks."""
        own = [sum(micro.rows for micro in micros) for micros in updates]
        if not (self.are_several and has_mask):
            return [rows * self.count for rows in own]
        counted = torch.tensor(own, device=next(self._model.parameters()).device)
        torch.distributed.all_reduce(counted, group=self._group)
        return [int(rows) for rows in counted.tolist()]


def _loss_of(computed: Any) -> tuple[torch.Tensor, Any]:
    loss, output = computed if isinstance(computed, tuple) and len(computed) == 2 else (computed, None)
    if not isinstance(loss, torch.Tensor) or loss.dim():
        given = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise TypeError(
            f"compute should give the micro-batch's loss, a tensor without dimensions, or (loss, outputs), but gave "
            f"{given}. Reduce the loss over the rows, with .mean() for example."
        )
    return loss, output
