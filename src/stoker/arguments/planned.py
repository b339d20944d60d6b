"""What a `BatchPlan` means for a loader: which arguments the engine gets, and who this process is.

The engine below knows nothing of plans: it is asked for batches of the combined size, in an order it knows, and what it
hands over is wrapped (`stoker.passes.steps`). So everything else of a loader, its workers, states and failures, is as
without a plan.

Who is who follows from the number of ranks (`shard=`, torch.distributed, or torchrun's environment):

    ranks = hosts              each rank loads a whole step's batch, for all its replicas
    ranks = hosts × replicas   each rank is one replica, as with DistributedDataParallel: it loads just what that
                               replica would see, so that a weight update is made from the same samples either way
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from torch.utils.data import BatchSampler

from stoker.arguments.asked import Asked, Last
from stoker.batches import is_default_collate
from stoker.order import LastStep, LeftoversFirst, Order, Sequential, Shard, Shuffle, Spread
from stoker.order.permutation import Numbers
from stoker.plan import BatchPlan, Tail
from stoker.sampling.grouped import Grouped
from stoker.sampling.ordered import OrderPlan, choose_shard
from stoker.sampling.streams import length_or_none

_TAILS: dict[Last, Tail] = {"drop": "drop", "keep": "keep", "even": "keep", "pad": "pad"}


@dataclass(frozen=True)
class Planned:
    """A plan, read for one loader."""

    whole: BatchPlan
    tail: Tail
    shard: Shard  # which host this is; for a rank that is a replica, which rank
    is_replica: bool = False
    joins: int = 1  # batches of the user's batch sampler that are put together when they are loaded
    is_iterable: bool = False

    @property
    def plan(self) -> BatchPlan:
        """The plan of this process."""
        return self.whole.one_replica if self.is_replica else self.whole

    def order_plan(self, order: Order, is_own: bool, last: LastStep) -> OrderPlan:
        """This process's part of an order; one that the loader chose by itself gives leftovers their turn."""
        if self.tail == "drop" and not is_own and isinstance(order, Sequential | Shuffle):
            used = order.n - order.n % self.whole.samples_per_step
            order = LeftoversFirst(order, used) if 0 < used < order.n else order
        if not self.is_replica:
            return OrderPlan(order, self.whole.combined_batch, self.shard, last)
        return ReplicaOrder(order, self.whole, self.shard, last)

    def settle(self, sampler: Any, batches: Any, is_theirs: bool) -> None:
        """Refuse an epoch without a single step; mark what gives the steps' indices, for code that passes it on."""
        if not is_theirs and not self.is_iterable:
            self.check_enough(sampler)
        for one in (sampler, batches):
            if type(one) is BatchSampler or isinstance(one, OrderPlan | Grouped):
                one.of_plan = self  # type: ignore[union-attr]

    def check_enough(self, sampler: Any) -> None:
        """Refuse an epoch without a single step."""
        samples = sampler.order.n if isinstance(sampler, OrderPlan) else length_or_none(sampler)
        if self.tail != "drop" or samples is None or samples >= self.whole.samples_per_step:
            return
        raise ValueError(
            f'the dataset has {samples} samples, fewer than one step takes: {self.whole}. With last="drop" there would '
            f'be no step at all. Use last="pad" or last="keep", or a plan of at most {samples} samples.'
        )

    def steps_of(self, batches: int) -> int:
        """How many steps so many batches of the engine make."""
        return batches // self.joins if self.tail == "drop" else -(-batches // self.joins)


class ReplicaOrder(OrderPlan):
    """The part of an order that one replica of a plan sees; a last, partial step is shared evenly."""

    def __init__(self, order: Order, plan: BatchPlan, rank: Shard, last: LastStep) -> None:
        host, replica = divmod(rank.rank, plan.replicas)
        group, rows = plan.group_of(replica), plan.one_replica.combined_batch
        super().__init__(order, rows, Shard(host * plan.groups + group, plan.hosts * plan.groups), last)
        full = order.n // self.per_step
        end = super().number_of(full, super().positions(full)) if self.steps > full else order.n
        first = host * plan.combined_batch + group * plan.micro_batch
        self.spread = Spread(rows, plan.micro_batch, plan.groups * plan.micro_batch, first, self.per_step, full, end)

    def positions(self, step: int) -> Numbers:
        return self.spread.positions(step) if step < self.spread.full else super().positions(step)

    def fixed(self) -> OrderPlan:
        return self  # its ranks were given

    def number_of(self, step: int, positions: Numbers) -> int:
        return step * self.spread.rows


def read_plan(asked: Asked) -> tuple[Planned, Asked]:
    """The plan as this loader has to follow it, and the arguments that the engine gets instead."""
    plan: Any = asked.plan
    if not isinstance(plan, BatchPlan):
        raise TypeError(f"plan should be a stoker.BatchPlan, but got {plan!r} ({type(plan).__name__})")
    tail = _tail_of(asked)
    planned = Planned(plan, tail, Shard(), is_iterable=asked.is_iterable)
    remade = _made_from(asked, planned)
    if remade is not None:
        return remade
    _check_batch_size(plan, asked)
    if asked.is_plain:
        planned, asked = _find_rank(planned, asked)
    elif plan.hosts > 1:
        kind = "an IterableDataset" if asked.is_iterable else "a sampler or batch_sampler"
        raise ValueError(
            f"{kind} says by itself which samples come, so the loader cannot share them over {plan.hosts} hosts "
            f"({plan}). Let it give each host its own samples, and pass plan=plan.local."
        )
    if asked.batch_sampler is not None:
        return _group(planned, asked)
    drops = tail == "drop" and not asked.is_iterable  # of a stream each worker would drop a tail of its own
    return planned, dataclasses.replace(asked, batch_size=planned.plan.combined_batch, drop_last=drops)


def _made_from(asked: Asked, planned: Planned) -> tuple[Planned, Asked] | None:
    """What a loader was, that is made anew from another one's attributes: its sampler knows the steps already."""
    for given in (asked.sampler, asked.batch_sampler):
        while given is not None:
            made: Planned | None = getattr(given, "of_plan", None)
            if made is not None and (made.whole, made.tail) == (planned.whole, planned.tail):
                size = made.plan.combined_batch if asked.batch_sampler is None else asked.batch_size
                return made, dataclasses.replace(asked, batch_size=size)
            given = getattr(given, "batch_sampler", None)  # ignite and others put one of theirs around it
    return None


def _tail_of(asked: Asked) -> Tail:
    tail = _TAILS[asked.last or "drop"]
    if asked.policy.action == "drop" and tail != "keep":
        raise ValueError(
            'on_error="drop" makes batches shorter, but every step of a plan has the same number of rows. Use '
            'on_error="skip", which takes another sample in the place of a bad one, or last="keep".'
        )
    return tail


def _check_batch_size(plan: BatchPlan, asked: Asked) -> None:
    if asked.batch_size is None and asked.batch_sampler is None:
        raise ValueError(f"batch_size=None hands out single samples, but a plan makes batches of them: {plan}")
    # Code that makes a loader anew from an old one's attributes passes the combined batch.
    if asked.batch_size not in (None, 1, plan.micro_batch, plan.combined_batch):
        raise ValueError(
            f"batch_size={asked.batch_size} and plan disagree: the plan's micro-batch has {plan.micro_batch} rows "
            f"({plan}). Leave batch_size out."
        )


def _find_rank(planned: Planned, asked: Asked) -> tuple[Planned, Asked]:
    """Which host this is, or which replica."""
    plan, found = planned.whole, choose_shard(asked.shard)
    ranks = plan.hosts * plan.replicas
    if found.world not in (plan.hosts, ranks):
        known = f"there are {found.world} ranks" if found.world > 1 or asked.shard else "this process is the only one"
        raise ValueError(
            f"{known}, but the plan is for {plan.hosts} (one for each host) or {ranks} (one for each replica): {plan}. "
            f"Pass shard=(rank, {plan.hosts}), or start it with torchrun, or use a plan with hosts={found.world}."
        )
    is_replica = found.world != plan.hosts
    if found.world > 1:
        asked = dataclasses.replace(asked, shard=(found.rank, found.world))
    return dataclasses.replace(planned, shard=found, is_replica=is_replica), asked


def _group(planned: Planned, asked: Asked) -> tuple[Planned, Asked]:
    """Steps of a user's batch sampler: several of its batches each."""
    plan = planned.plan
    batches: Any = asked.batch_sampler
    count, drops = plan.combined_batch // plan.micro_batch, planned.tail == "drop"
    own_size = getattr(batches, "batch_size", None) if type(batches) is BatchSampler else None
    if own_size not in (None, plan.micro_batch):
        raise ValueError(
            f"the batch_sampler gives batches of {own_size}, but the plan's micro-batch has {plan.micro_batch} rows "
            f"({plan}). Make them the same."
        )
    if asked.collate_fn is not None and not is_default_collate(asked.collate_fn):
        return dataclasses.replace(planned, joins=count), asked  # which must see one micro-batch at a time
    if own_size is not None and (drops or not batches.drop_last):
        grouped: Any = BatchSampler(batches.sampler, own_size * count, drops)
    else:
        grouped = batches if count == 1 else Grouped(batches, count, drops)
    return planned, dataclasses.replace(asked, batch_sampler=grouped)
