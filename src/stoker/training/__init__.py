"""Running a torch model on one step's batch: micro-steps, gradient accumulation, and what comes back.

`micro_steps`  a `StepBatch` cut into what the model sees at a time, padding left out
`train`        weight updates from one batch;  `infer`  outputs from one batch
`outputs`      which of them come back: all, the final ones, sums, or those of every n-th iteration
"""

from stoker.training.infer import infer_step
from stoker.training.outputs import Every, Outputs, Returns
from stoker.training.train import StepResult, train_step

__all__ = ["Every", "Outputs", "Returns", "StepResult", "infer_step", "train_step"]
