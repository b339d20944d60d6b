"""How many samples one step takes, and for whom.

`batch_plan`  the plan: micro-batch, accumulation, replicas, iterations, hosts, and their products
`step_batch`  one step's batch, and its views: iterations, micro-batches, replicas, the whole grid
`columns`     what of a batch has rows, whatever it is made of
"""

from stoker.plan.batch_plan import TAILS, BatchPlan, Tail
from stoker.plan.columns import Columns, columns_of, join_rows, take_rows
from stoker.plan.step_batch import StepBatch

__all__ = ["TAILS", "BatchPlan", "Columns", "StepBatch", "Tail", "columns_of", "join_rows", "take_rows"]
