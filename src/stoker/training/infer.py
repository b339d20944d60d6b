"""Outputs of a torch model from one step's batch, without gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stoker.plan import StepBatch
from stoker.training.micro_steps import check_step, updates_of
from stoker.training.outputs import Outputs, Returns


def infer_step(
    model: torch.nn.Module,
    batch: StepBatch,
    compute: Callable[[torch.nn.Module, Any], Any] | None = None,
    *,
    returns: Returns = "all",
) -> Any:
    """Run the model on every micro-batch, in evaluation mode; `compute(model, data)` is `model(data)` by default."""
    check_step(batch)
    outputs = Outputs(returns, batch.plan)
    if batch.plan.gradient_accumulation != 1:
        raise ValueError(
            f"there are no gradients to accumulate without training, but the plan is {batch.plan.local}. Use "
            "device_iterations in the place of gradient_accumulation."
        )
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for iteration, micros in enumerate(updates_of(batch)):
                for micro in micros:
                    output = model(micro.data) if compute is None else compute(model, micro.data)
                    outputs.add(iteration, micro.replica, output)
    finally:
        model.train(was_training)
    return outputs.result()
