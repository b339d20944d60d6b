"""Which outputs of a step's micro-batches come back.

A step runs a model many times, and seldom are all its outputs wanted. For D iterations, G accumulations, R replicas:

    returns       micro-batches   which
    "all"         D · G · R       every one, in the order of the batch's rows
    "final"       R               the last one of each replica
    "sum"         R               for each replica, the sum of its outputs
    Every(n)      (D/n) · G · R   those of iterations n, 2n, … (counted from 1)

They are put one behind the other: tensors along their first dimension, numbers (tensors without dimensions, such as a
loss) into a vector, unless there is only one. Whatever the outputs are made of (tuples, dictionaries, …), so is what
comes back. Replicas that read the same samples, in groups, are run once and count as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils import _pytree as pytree

from stoker.plan import BatchPlan
from stoker.whole_numbers import keep_whole


@dataclass(frozen=True)
class Every:
    """The outputs of every n-th iteration."""

    n: int

    def __post_init__(self) -> None:
        keep_whole(self, "n", least=1)


Returns = Literal["all", "final", "sum"] | Every


class Outputs:
    """Collects the outputs of a step and keeps no more of them than will come back."""

    def __init__(self, returns: Returns, plan: BatchPlan) -> None:
        if not isinstance(returns, Every) and returns not in ("all", "final", "sum"):
            raise ValueError(f'returns should be "all", "final", "sum" or Every(n), but got {returns!r}')
        if isinstance(returns, Every) and plan.device_iterations % returns.n:
            raise ValueError(
                f"every {returns.n} of {plan.device_iterations} iterations is not a whole number of them ({plan}). "
                f"Choose n so that it divides {plan.device_iterations}."
            )
        self._returns = returns
        self._listed: list[Any] = []
        self._by_replica: dict[int, Any] = {}

    def add(self, iteration: int, replica: int, output: Any) -> None:
        """Take the output of one micro-batch; they come in the order of the batch's rows."""
        output = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, output)
        if self._returns == "final" or (self._returns == "sum" and replica not in self._by_replica):
            self._by_replica[replica] = output
        elif self._returns == "sum":
            self._by_replica[replica] = pytree.tree_map(_add, self._by_replica[replica], output)
        elif not isinstance(self._returns, Every) or (iteration + 1) % self._returns.n == 0:
            self._listed.append(output)

    def result(self) -> Any:
        """What comes back; None if nothing was to."""
        kept = [self._by_replica[replica] for replica in sorted(self._by_replica)] or self._listed
        return pytree.tree_map(_join, *kept) if kept else None


def _add(sum_so_far: Any, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if sum_so_far.shape != value.shape:
        raise ValueError(
            f'returns="sum" adds the outputs of micro-batches, but these have the shapes {tuple(sum_so_far.shape)} and '
            f'{tuple(value.shape)}: the last step is short. Use last="drop", or returns="all".'
        )
    return sum_so_far + value


def _join(first: Any, *others: Any) -> Any:
    if not isinstance(first, torch.Tensor):
        return [first, *others] if others else first
    if first.dim():
        return torch.cat([first, *others]) if others else first
    return torch.stack([first, *others]) if others else first
