"""Arithmetic order as torch knows samplers: which samples this rank takes in which step.

`OrderPlan` counts as a `DistributedSampler`, because it already shards: trainers that would put their own sampler in
place of a plain one leave it alone, and call `set_epoch` on it.

Who this rank is may be known only later: trainers are handed a loader first and start their ranks afterwards. So unless
`shard` was given, it is looked up whenever it matters, and a pass keeps to what it found when it began.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch.distributed
from torch.utils.data.distributed import DistributedSampler

from stoker.order import LastStep, Order, Sequential, Shard, Shuffle, rank_positions, steps_per_epoch
from stoker.order.permutation import Numbers
from stoker.sampling.epochs import Epochs


class OrderPlan(DistributedSampler[Any]):
    """An order, cut into steps over all ranks, and this rank's part of them."""

    def __init__(self, order: Order, batch_size: int, shard: Shard | None, last: LastStep) -> None:
        # DistributedSampler's own constructor asks torch.distributed for ranks, which need not exist.
        self.order, self.last, self.batch_size = order, last, batch_size
        self.given_shard = shard
        self.epoch = 0
        self.seed = 0  # what picks other samples in the place of bad ones: the same on every rank
        self.epochs = Epochs()
        self.drop_last = last == "drop"
        steps_per_epoch(order.n, self.per_step, self.shard.world, last)  # refuses what cannot be shared

    @property
    def shard(self) -> Shard:
        """This rank, and how many there are."""
        return choose_shard(self.given_shard)

    @property
    def per_step(self) -> int:
        """Samples that all ranks take together in a step."""
        return self.batch_size * self.shard.world

    @property
    def steps(self) -> int:
        """Steps in an epoch."""
        return steps_per_epoch(self.order.n, self.per_step, self.shard.world, self.last)

    # Names that code written for DistributedSampler reads.
    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        return self.shard.world

    @property
    def rank(self) -> int:  # type: ignore[override]
        return self.shard.rank

    def fixed(self) -> OrderPlan:
        """The plan of a pass, whose ranks do not change any more."""
        plan = OrderPlan(self.order, self.batch_size, self.shard, self.last)
        plan.seed = self.seed
        return plan

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process, which may not be told of the ranks, keeps to those that are known by now."""
        found = self.shard
        return {**self.__dict__, "given_shard": found if found.world > 1 else self.given_shard}

    def __len__(self) -> int:
        """Samples of this rank in an epoch."""
        if self.steps == 0:
            return 0
        return (self.steps - 1) * (self.per_step // self.shard.world) + len(self.positions(self.steps - 1))

    def __iter__(self) -> Iterator[int]:
        for step in range(self.steps):
            yield from self.order.indices(self.positions(step), self.epoch).tolist()

    def set_epoch(self, epoch: int) -> None:
        """Called by trainers before an epoch; else the loader counts by itself."""
        self.epochs.tell(epoch)
        self.epoch = self.epochs.current or 0

    def positions(self, step: int) -> Numbers:
        """Where in the epoch the samples stand that this rank takes in a step."""
        return rank_positions(step, self.order.n, self.per_step, self.shard, self.last)

    def number_of(self, step: int, positions: Numbers) -> int:
        """What tickets call the first sample of a step: its position.

        Padding is the epoch's beginning once more, but is numbered on from the end, so that every row of a last step
        has a number of its own, which does not depend on how many ranks share the step.
        """
        return step * self.per_step + self.shard.rank * len(positions)

    def step_at(self, position: int) -> int:
        """The step that begins at a position, over all ranks."""
        return -(-position // self.per_step)

    def position_after(self, step: int) -> int:
        """How many samples of the epoch the first `step` steps use up, over all ranks."""
        return min(step * self.per_step, self.order.n)


def choose_order(order: Order | str | None, shuffle: bool, seed: int, length: int) -> Order:
    """The order that the loader's arguments ask for."""
    if order is None:
        order = "shuffle" if shuffle else "sequential"
    if isinstance(order, str):
        if order not in ("sequential", "shuffle"):
            raise ValueError(
                f'order should be "sequential", "shuffle" or an order of stoker.order (BlockShuffle, Mix, …), but got '
                f"{order!r}"
            )
        return Shuffle(length, seed) if order == "shuffle" else Sequential(length)
    if not isinstance(order, Order):
        raise TypeError(f"order should be a text or an order of stoker.order, but got {type(order).__name__}")
    return order


def choose_shard(shard: tuple[int, int] | Shard | None) -> Shard:
    """The rank given, or that of torch.distributed, or that of torchrun's environment, or the only one."""
    if isinstance(shard, Shard):
        return shard
    if shard is not None:
        rank, world = shard
        return Shard(rank, world)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Shard(torch.distributed.get_rank(), torch.distributed.get_world_size())
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return Shard(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    return Shard()
