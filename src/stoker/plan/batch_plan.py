"""`BatchPlan`: how many samples one step takes, and which of them is for whom.

A loader hands a training program one batch per step. Between that batch and the model lie five numbers, and every
program that gets them wrong gets them wrong in its own way; so they are one small value, checked when it is made:

    b  micro_batch             rows the model sees at a time
    G  gradient_accumulation   micro-batches whose gradients one weight update adds up
    R  replicas                copies of the model that this process feeds
    D  device_iterations       weight updates made from one batch of the loader
       hosts                   processes that load, each a part of its own

A step's batch on one host has C = b · D · G · R rows, in row-major order of [D, G, R, b]:

    row = ((iteration · G + accumulation) · R + replica) · b + row in the micro-batch

So consecutive micro-batches go round the replicas, then to the next accumulation, then to the next iteration. That is
also the order in which samples come from the dataset: any factors with the same product take the same samples in the
same order, and only cut them differently.

Replicas may read in groups of g (`input_group_size`): all replicas of a group get the same samples, and the layout is
[D, G, R/g, b] with groups in the replicas' place. Replica r reads group r // g if groups are "consecutive", and group
r % (R/g) if they are "orthogonal".
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from stoker.whole_numbers import check_whole, keep_whole

Tail = Literal["drop", "keep", "pad"]
TAILS: tuple[Tail, ...] = ("drop", "keep", "pad")
_GROUPINGS = ("consecutive", "orthogonal")


class RowPlace(NamedTuple):
    """Where a row of a step's batch goes."""

    iteration: int
    accumulation: int
    replica: int  # with input groups: the first of the replicas that read it
    row: int


@dataclass(frozen=True)
class BatchPlan:
    """How many samples one step takes: `micro_batch` rows × accumulation × replicas × iterations, on each host."""

    micro_batch: int
    gradient_accumulation: int = 1
    replicas: int = 1
    device_iterations: int = 1
    hosts: int = 1
    input_group_size: int = 1
    input_grouping: Literal["consecutive", "orthogonal"] = "consecutive"

    def __post_init__(self) -> None:
        for factor in dataclasses.fields(self)[:6]:
            _check_factor(self, factor.name)
        if self.input_grouping not in _GROUPINGS:
            raise ValueError(f"input_grouping should be one of {_GROUPINGS}, but got {self.input_grouping!r}")
        if self.replicas % self.input_group_size:
            fitting = [size for size in range(1, self.replicas + 1) if self.replicas % size == 0]
            raise ValueError(
                f"{self.replicas} replicas cannot be put in groups of {self.input_group_size}: {_product(self)} is not "
                f"a whole number of groups. input_group_size can be one of {fitting}."
            )

    @property
    def groups(self) -> int:
        """Replicas that read different samples: R, or R/g where they read in groups."""
        return self.replicas // self.input_group_size

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """[D, G, R/g, b]: how the rows of a step lie on one host."""
        return self.device_iterations, self.gradient_accumulation, self.groups, self.micro_batch

    @property
    def replica_batch(self) -> int:
        """Samples of one replica in one weight update."""
        return self.micro_batch * self.gradient_accumulation

    @property
    def global_batch(self) -> int:
        """Samples that one weight update is made from, over all replicas and hosts."""
        return self.replica_batch * self.groups * self.hosts

    @property
    def combined_batch(self) -> int:
        """Rows of a step's batch on one host."""
        return self.replica_batch * self.groups * self.device_iterations

    @property
    def samples_per_step(self) -> int:
        """Samples that a step takes from the dataset, over all hosts."""
        return self.combined_batch * self.hosts

    @property
    def micro_steps(self) -> int:
        """How often each replica runs in a step: D × G."""
        return self.device_iterations * self.gradient_accumulation

    @property
    def local(self) -> BatchPlan:
        """The same plan for one host alone: for data that were split by host already."""
        return dataclasses.replace(self, hosts=1)

    @property
    def one_replica(self) -> BatchPlan:
        """What a process loads that is a single replica, as a rank of DistributedDataParallel is."""
        return dataclasses.replace(self, replicas=1, input_group_size=1, hosts=self.hosts * self.groups)

    def steps_per_epoch(self, length: int, last: Tail = "drop") -> int:
        """How many steps a dataset of this length makes."""
        if last not in TAILS:
            raise ValueError(f"last should be one of {TAILS}, but got {last!r}")
        full, left = divmod(check_whole("length", length, least=0), self.samples_per_step)
        return full + (left > 0 and last != "drop")

    def group_of(self, replica: int) -> int:
        """Which group a replica reads: itself, unless replicas read in groups."""
        replica = _place("replica", replica, self.replicas, self)
        return replica // self.input_group_size if self.input_grouping == "consecutive" else replica % self.groups

    def replicas_of(self, group: int) -> tuple[int, ...]:
        """The replicas that read a group."""
        group = _place("group", group, self.groups, self)
        return tuple(replica for replica in range(self.replicas) if self.group_of(replica) == group)

    def row_of(self, iteration: int, accumulation: int, replica: int, row: int) -> int:
        """Which row of a step's batch is `row` of that replica's micro-batch."""
        step = _place("iteration", iteration, self.device_iterations, self) * self.gradient_accumulation
        step += _place("accumulation", accumulation, self.gradient_accumulation, self)
        micro = step * self.groups + self.group_of(replica)
        return micro * self.micro_batch + _place("row", row, self.micro_batch, self)

    def place_of(self, row: int) -> RowPlace:
        """For whom a row of a step's batch is: the inverse of `row_of`."""
        micro, row = divmod(_place("row", row, self.combined_batch, self), self.micro_batch)
        step, group = divmod(micro, self.groups)
        iteration, accumulation = divmod(step, self.gradient_accumulation)
        return RowPlace(iteration, accumulation, self.replicas_of(group)[0], row)

    def __str__(self) -> str:
        """The product written out, for messages: `4 rows × 2 accumulation × 3 replicas = 24 samples per step`."""
        return f"{_product(self)} = {self.samples_per_step} samples per step"


_WORDS = {
    "micro_batch": "rows",
    "gradient_accumulation": "accumulation",
    "replicas": "replicas",
    "device_iterations": "iterations",
    "hosts": "hosts",
}


def _product(plan: BatchPlan) -> str:
    """The factors as they were given, right or wrong; ones are left out."""
    factors = {name: getattr(plan, name) for name in _WORDS}
    shown = [f"{value!r} {_WORDS[name]}" for name, value in factors.items() if name == "micro_batch" or value != 1]
    groups = "" if plan.input_group_size == 1 else f" ÷ {plan.input_group_size!r} replicas a group"
    return " × ".join(shown) + groups


def _check_factor(plan: BatchPlan, name: str) -> None:
    try:
        keep_whole(plan, name, least=1)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error}. The step would be {_product(plan)}.") from None


def _place(name: str, value: Any, count: int, plan: BatchPlan) -> int:
    place = check_whole(name, value, least=0)
    if place >= count:
        raise IndexError(f"{name} {place} is not in the plan, whose last is {count - 1}: {plan}")
    return place
