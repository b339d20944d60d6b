"""`stoker.DataLoader`: every argument of torch's `DataLoader`, the same batches, sooner.

It is a subclass, so `isinstance` checks of trainers hold, and torch's own constructor checks the arguments and makes
the samplers. What differs is the iterator, and the arguments that torch does not have: the class lists them.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import torch
import torch.utils.data
from torch.utils.data import Dataset, Sampler

from stoker.arguments.asked import GivesWay, OwnArguments
from stoker.arguments.checks import (
    check_dataset,
    check_faults,
    check_length,
    check_order,
    check_reseed,
    choose_workers,
    has_thread_workers,
    is_plain,
    length_of,
    threads_only,
)
from stoker.arguments.planned import Asked, Planned, read_plan
from stoker.auto.tuned import Arguments, decided_by
from stoker.contracts import Failure, OnError, Workers
from stoker.device import Lookahead
from stoker.device.device_loader import DeviceLoader
from stoker.device.lookahead import DevicePass
from stoker.errors import ResumeMismatch
from stoker.loader.dynamo import hide
from stoker.loader.patches import refuse_patched_iterators
from stoker.order import Order
from stoker.passes.assemble import Assembly
from stoker.passes.batch_pass import BatchIterator
from stoker.passes.crewed import CrewedIterator
from stoker.passes.failures import Failures, read_policy
from stoker.passes.inline import InlineIterator
from stoker.plan import BatchPlan, Tail
from stoker.resume.cursor import Progress
from stoker.resume.place import Place
from stoker.resume.resumed import Resumed
from stoker.sampling.epochs import Epochs, listen, tell
from stoker.sampling.ordered import OrderPlan, choose_order, choose_shard
from stoker.watch.watched import Watched

T = TypeVar("T", covariant=True)


class DataLoader(Watched, Resumed, torch.utils.data.DataLoader[T]):
    """Put this where `torch.utils.data.DataLoader` stands.

    The arguments are torch's. Beside them:

    num_workers  also "auto": measures a few samples, picks inline, threads or processes, and logs what and why
    workers      `stoker.Workers(processes=…, lanes=…, …)` instead of `num_workers`
    seed, order  arithmetic order: `seed=7` with or without `shuffle=True`, or an order of `stoker.order`; an epoch's
                 order is then a pure function of the seed and the epoch, and any place in it is found at once
    shard        (rank, world); by default torch.distributed's, or torchrun's environment, where order is arithmetic
    uneven       what ranks do with the last, partial step: "pad" (default), "even", "drop" (default with drop_last)
    reseed       "sample" keys Python's, NumPy's and torch's global generators by (seed, epoch, position)
    on_error     what to do with samples that cannot be loaded: "raise", "skip", "drop", "retry", or a `stoker.OnError`
    plan, tail   a `stoker.BatchPlan` instead of `batch_size`: a step's batch is then a `stoker.StepBatch`; the epoch's
                 last, partial step is left out ("drop", the default), short ("keep") or filled up and masked ("pad")
    device       where the model is: two batches are there before they are asked for (see `stoker.to_device`)
    tuned        a file that `stoker tune` wrote: batch_size, workers and prefetch_factor are what it says
    snapshot_every_n_steps   accepted for code written for torchdata; a state is exact at every step here
    """

    # For people, and for trainers that make a loader anew: see `own_arguments`. This code reads `_asked`.
    workers: Workers
    seed: int | None
    reseed: Literal["sample"] | None
    snapshot_every_n_steps: int
    on_error: OnError | Literal["raise", "skip", "drop", "retry"]
    plan: BatchPlan | None
    tail: Tail | None
    device: torch.device | str | int | None
    tuned: str | os.PathLike[str] | None

    def __init__(
        self,
        dataset: Dataset[T] | Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int | Literal["auto"] = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        workers: Workers | None = None,
        seed: int | None = None,
        order: Order | Literal["sequential", "shuffle"] | None = None,
        shard: tuple[int, int] | None = None,
        uneven: Literal["pad", "even", "drop"] | None = None,
        reseed: Literal["sample"] | None = None,
        snapshot_every_n_steps: int = 1,
        on_error: OnError | Literal["raise", "skip", "drop", "retry"] = "raise",
        plan: BatchPlan | None = None,
        tail: Tail | None = None,
        device: torch.device | str | int | None = None,
        tuned: str | os.PathLike[str] | None = None,
    ) -> None:
        if tuned is not None:
            given = (batch_size, num_workers, workers, prefetch_factor, multiprocessing_context, batch_sampler)
            batch_size, workers, prefetch_factor = decided_by(tuned, Arguments(*given))
            num_workers = 0
        is_own_choice = tuned is not None or num_workers == "auto" or has_thread_workers(multiprocessing_context)
        chosen = choose_workers(num_workers, workers, dataset, multiprocessing_context)
        check_dataset(dataset, chosen, shuffle)
        check_reseed(reseed, chosen, dataset)
        check_faults(read_policy(on_error), chosen, dataset)
        planned: Planned | None = None
        if plan is not None or tail is not None:
            asked = Asked(dataset, batch_size, sampler, batch_sampler, collate_fn, drop_last, shard, uneven)
            planned, asked = read_plan(plan, tail, asked, read_policy(on_error))
            batch_size, batch_sampler = asked.batch_size, asked.batch_sampler
            drop_last, shard = asked.drop_last, asked.shard
        if shuffle is False and not is_plain(None, sampler, batch_sampler):
            order = shard = uneven = None  # a trainer made this loader anew, with a sampler of its own choice
        if order is not None or shard is not None or (seed is not None and is_plain(dataset, sampler, batch_sampler)):
            check_order(dataset, sampler, batch_sampler, shuffle, seed, shard)
            chosen_order = choose_order(order, bool(shuffle), seed or 0, length_of(dataset))
            last = uneven or ("drop" if drop_last else "pad")
            check_length(chosen_order, dataset)
            if planned is not None:
                sampler = planned.order_plan(chosen_order, isinstance(order, Order), last)
            else:
                sampler = OrderPlan(chosen_order, batch_size or 1, None if shard is None else choose_shard(shard), last)
            sampler.seed = seed or 0
            shuffle, drop_last = None, False
        elif uneven is not None:
            raise ValueError("uneven says what ranks do with the last step: it needs seed=, order= or shard=")
        if is_own_choice and chosen.processes == 0:  # what needs processes was meant for the case that there are some
            persistent_workers, multiprocessing_context = False, None
            if not threads_only(chosen):
                prefetch_factor, timeout = None, min(timeout, 0)
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            chosen.processes,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            chosen.start_method or multiprocessing_context,
            generator,
            prefetch_factor=None if threads_only(chosen) else prefetch_factor,
            persistent_workers=persistent_workers and not threads_only(chosen),
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        if planned is not None:
            planned.settle(self.sampler, self.batch_sampler, batch_sampler is not None)
        places = {"seed": seed, "order": order, "shard": shard, "uneven": uneven, "reseed": reseed}
        steps = {"plan": plan, "tail": tail, "device": device, "snapshot_every_n_steps": snapshot_every_n_steps}
        own = OwnArguments(chosen, on_error=on_error, tuned=tuned, **places, **steps)  # type: ignore[arg-type]
        own.show_on(self)
        self._set_up(own, planned)
        if threads_only(chosen):
            self.prefetch_factor = prefetch_factor

    # Of a subclass that never calls our constructor and iterates by itself, as torchdata's StatefulDataLoader does when
    # our class was put in the place of torch's.
    _planned: Planned | None = None
    _lookahead: Lookahead | None = None
    _is_set_up = False

    def _set_up(self, asked: OwnArguments, planned: Planned | None) -> None:
        """What is ours, beside what torch's constructor has set."""
        self._asked, self._planned = asked, planned
        self._lookahead = None if asked.device is None else Lookahead(asked.device)
        self._failures = Failures(read_policy(asked.on_error))
        self._watch()
        self._progress: Progress | None = None
        self._epochs = self.sampler.epochs if isinstance(self.sampler, OrderPlan) else Epochs()
        listen(self, self._epochs)
        self._place: Place | None = None  # where the next pass begins: loaded, or drawn ahead for a state
        self._is_loaded = False
        self._is_set_up = True

    def __len__(self) -> int:
        """Batches of an epoch; with a plan, its steps."""
        batches = super().__len__()
        if self._planned is None:
            return batches
        if self._planned.is_stream:  # torch has just noted the dataset's length
            return self._planned.plan.steps_per_epoch(self._IterableDataset_len_called or 0, self._planned.tail)
        return self._planned.steps_of(batches)

    def __iter__(self) -> Any:
        if self._lookahead is None:
            return super().__iter__()
        return self._lookahead.begin(super().__iter__, self._state_of_loading, self.persistent_workers)

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch, as trainers say it; else the loader counts by itself."""
        tell(self, epoch)

    @GivesWay
    def order(self) -> Order | Literal["sequential", "shuffle"] | None:
        """The order that was asked for; `loader.sampler` has the one that is used."""
        return self._asked.order

    @GivesWay
    def shard(self) -> tuple[int, int] | None:
        """The (rank, world) that was asked for."""
        return self._asked.shard

    @GivesWay
    def uneven(self) -> Literal["pad", "even", "drop"] | None:
        """What ranks were asked to do with the last, partial step."""
        return self._asked.uneven

    @GivesWay
    def use_stateful_dataloader(self) -> bool:
        """accelerate asks whether the loader keeps a state that belongs into its checkpoints."""
        return isinstance(self.sampler, OrderPlan)

    @GivesWay
    def _is_accelerate_prepared(self) -> bool:
        """accelerate asks whether the loader is sharded already."""
        return isinstance(self.sampler, OrderPlan)

    @GivesWay
    def failures(self) -> list[Failure]:
        """The samples that could not be loaded so far."""
        return list(self._failures.listed)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, in this process or a spawned one, begins anew: the passes under way are of this loader only."""
        anew = None if self._lookahead is None else Lookahead(self._lookahead.device)
        return {**super().__getstate__(), **dict.fromkeys(("_iterator", "_progress", "_place")), "_lookahead": anew}

    def _get_iterator(self) -> Any:
        refuse_patched_iterators(self)
        if not self._is_set_up:
            self._set_up(OwnArguments(Workers(processes=int(self.num_workers))), None)
        if self.num_workers > 0:
            self.check_worker_number_rationality()
        elif self.timeout and not threads_only(self._asked.workers):
            raise AssertionError("timeout needs workers: with num_workers=0 nothing can be waited for")
        kept = self._place, self._progress, self._is_loaded
        try:
            latest = InlineIterator(self) if Assembly(self).is_inline else CrewedIterator(self)
            self._latest = weakref.ref(latest)
            return latest
        except ResumeMismatch:  # the loader stays as it was: with other workers the state can still be used
            self._place, self._progress, self._is_loaded = kept
            raise


hide(DataLoader, "__init__", "__iter__", "__len__", "set_epoch")
hide(Resumed, "state_dict", "load_state_dict")
hide(Watched, "stats", "trace", "on_stats")
hide(BatchIterator, "__iter__", "__next__", "__len__", "close")
hide(DevicePass, "__iter__", "__next__", "close")
hide(DeviceLoader, "__iter__", "__len__", "__getattr__")
