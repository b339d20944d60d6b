"""From what was asked to what torch's constructor gets and what the engine gets: rules, one after the other.

    asked ─► by the file ─► who loads ─► the plan ─► without what needs workers ─► the order ─► torch's arguments
             `tuned=`        "auto"      `plan=`                                    `seed=` …

Each rule takes the record and gives another one, with some arguments replaced; none changes anything. What a rule finds
does not fit is refused with what to do instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from stoker.arguments.asked import Asked
from stoker.arguments.checks import (
    check_dataset,
    check_faults,
    check_last,
    check_last_of_torchs,
    check_length,
    check_order,
    check_reseed,
    choose_workers,
    has_thread_workers,
    is_left_to_loader,
)
from stoker.arguments.planned import Planned, read_plan
from stoker.auto.size import Limits
from stoker.auto.tuned import decided_by
from stoker.batches import has_state, is_default_collate
from stoker.options import Workers
from stoker.order import LastStep, Order
from stoker.sampling.ordered import OrderPlan, choose_order, choose_shard

# A step that is kept is short; ranks are made equal by a few samples that come twice, or with "even" not at all.
_LAST_STEP: dict[str, LastStep] = {"drop": "drop", "keep": "pad", "even": "even", "pad": "pad"}
_TORCH = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "generator",
    "pin_memory_device",
    "in_order",
)


@dataclass(frozen=True)
class Settled:
    """What follows from what was asked."""

    decided: Asked  # the same call with nothing left to a file or to "auto"
    workers: Workers  # where their number may change, those to begin with
    limits: Limits | None  # None: their number stays
    planned: Planned | None
    torch: dict[str, Any]  # the arguments of torch's constructor
    prefetch_factor: int | None  # that of threads too, which torch would refuse
    is_theirs: bool  # the user's own batch sampler says what makes a batch

    @property
    def shown_workers(self) -> Workers:
        """What a loader that is made anew from this one's attributes is to be given."""
        return self.workers if self.limits is None else self.limits.written_in(self.workers)


def settle(asked: Asked) -> Settled:
    """Apply the rules."""
    decided, limits = _decide(asked)
    is_own_choice = asked.tuned is not None or decided.num_workers == "auto"  # what does not go with it is passed over
    is_own_choice |= has_thread_workers(asked.multiprocessing_context)
    decided = replace(decided, num_workers=0)
    workers = decided.workers or Workers()
    if is_own_choice and limits is None and not workers.processes:
        workers = replace(workers, start_method=None)  # meant for the case that there are some
    _check(decided, workers)
    planned, engine = read_plan(decided) if decided.plan is not None else (None, decided)
    engine = _without_what_needs_workers(engine, workers, limits) if is_own_choice else engine
    is_theirs = engine.batch_sampler is not None
    engine = _ordered(engine, planned)
    torch = _for_torch(engine, workers, limits)
    return Settled(decided, workers, limits, planned, torch, engine.prefetch_factor, is_theirs)


def _decide(asked: Asked) -> tuple[Asked, Limits | None]:
    """Who loads, and within which limits that may change."""
    if asked.tuned is not None:
        batch_size, workers, prefetch_factor = decided_by(asked.tuned, asked)
        return replace(asked, tuned=None, batch_size=batch_size, workers=workers, prefetch_factor=prefetch_factor), None
    if is_left_to_loader(asked) and not has_thread_workers(asked.multiprocessing_context):
        return _left_to_loader(asked)
    workers = choose_workers(asked.num_workers, asked.workers, asked.dataset, asked.multiprocessing_context)
    return replace(asked, workers=workers), None


def _left_to_loader(asked: Asked) -> tuple[Asked, Limits | None]:
    from stoker.auto.choice import Wanted, decide

    own_collate = asked.collate_fn if not is_default_collate(asked.collate_fn) else None
    wanted = Wanted(
        asked.dataset,
        asked.workers,
        is_most=asked.num_workers == "auto",
        context=asked.multiprocessing_context,
        collate=own_collate if asked.batch_size is not None else None,
        rows=asked.plan.combined_batch if asked.plan is not None else asked.batch_size,
        one_lane=asked.reseed == "sample",
        keeps_state=has_state(asked.dataset),
        needs_process=asked.worker_init_fn is not None or (asked.workers is not None and asked.workers.replaces),
    )
    chosen = decide(wanted)
    limits = chosen.limits
    if limits is not None and asked.device is not None and (chosen.draws or asked.reseed):
        # Batches would be made in a thread beside the loop, which draws from the same generators.
        limits = replace(limits, least_processes=max(1, limits.least_processes))
    reseed = "sample" if chosen.draws else asked.reseed
    return replace(asked, num_workers="auto", workers=chosen.workers, reseed=reseed), limits


def _check(asked: Asked, workers: Workers) -> None:
    check_dataset(asked.dataset, workers, asked.shuffle)
    check_reseed(asked.reseed, workers, asked.dataset)
    check_faults(asked.policy, workers, asked.dataset)
    check_last(asked)


def _ordered(asked: Asked, planned: Planned | None) -> Asked:
    """An arithmetic order becomes a sampler."""
    if asked.shuffle is False and asked.has_sampler:
        # A trainer made this loader anew, with a sampler of its own choice.
        return replace(asked, order=None, shard=None)
    if asked.order is None and asked.shard is None and (asked.seed is None or not asked.is_plain):
        check_last_of_torchs(asked)
        is_said = asked.last == "drop" and asked.plan is None  # of a plan it is known already
        return replace(asked, drop_last=asked.drop_last or is_said)
    return replace(asked, sampler=_order_plan(asked, planned), shuffle=None, drop_last=False)


def _order_plan(asked: Asked, planned: Planned | None) -> OrderPlan:
    check_order(asked)
    order = choose_order(asked.order, bool(asked.shuffle), asked.seed or 0, len(asked.dataset))
    check_length(order, asked.dataset)
    last = _LAST_STEP[asked.last] if asked.last is not None else "drop" if asked.drop_last else "pad"
    if planned is not None:
        plan = planned.order_plan(order, isinstance(asked.order, Order), last)
    else:
        shard = None if asked.shard is None else choose_shard(asked.shard)
        plan = OrderPlan(order, asked.batch_size or 1, shard, last)
    plan.seed = asked.seed or 0
    return plan


def _without_what_needs_workers(asked: Asked, workers: Workers, limits: Limits | None) -> Asked:
    """What needs processes was meant for the case that there are some."""
    if workers.processes > 0 or limits is not None:
        return asked
    asked = replace(asked, persistent_workers=False, multiprocessing_context=None)
    return asked if workers.are_threads else replace(asked, prefetch_factor=None, timeout=min(asked.timeout, 0))


def _for_torch(asked: Asked, workers: Workers, limits: Limits | None) -> dict[str, Any]:
    # Where there may be some later, torch is told of one: it refuses much of what is for workers without any.
    processes = workers.processes if limits is None else max(1, workers.processes)
    return {
        **{name: getattr(asked, name) for name in _TORCH},
        "num_workers": processes,
        "multiprocessing_context": workers.start_method or asked.multiprocessing_context,
        "prefetch_factor": None if workers.are_threads else asked.prefetch_factor,
        "persistent_workers": asked.persistent_workers and not workers.are_threads,
    }
