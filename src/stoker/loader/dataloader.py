"""`stoker.DataLoader`: every argument of torch's `DataLoader`, the same batches, sooner.

It is a subclass, so `isinstance` checks of trainers hold, and torch's own constructor checks the arguments and makes
the samplers. What differs is the iterator, and the arguments that torch does not have: the class lists them.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeVar

import torch
import torch.utils.data
from torch.utils.data import Dataset, Sampler

from stoker.arguments.asked import Asked, GivesWay, Last
from stoker.arguments.settle import Settled, settle
from stoker.auto.processor import cores
from stoker.auto.size import Size
from stoker.auto.steering import Steering
from stoker.auto.tuned import Tuned
from stoker.batches import has_state
from stoker.contracts import Failure
from stoker.device import Lookahead
from stoker.device.device_loader import DeviceLoader
from stoker.device.lookahead import DevicePass
from stoker.errors import StateError
from stoker.loader.dynamo import hide
from stoker.loader.patches import refuse_patched_iterators
from stoker.options import OnError, Workers
from stoker.order import Order
from stoker.passes.adaptive import AdaptivePass
from stoker.passes.assemble import Assembly
from stoker.passes.batch_pass import BatchPass
from stoker.passes.course import Course
from stoker.passes.crewed import CrewedPass
from stoker.passes.inline import InlinePass
from stoker.passes.setup import Setup
from stoker.plan import BatchPlan
from stoker.resume.data import Data
from stoker.sampling.epochs import listen, tell
from stoker.sampling.ordered import OrderPlan
from stoker.watch.stats import Stats
from stoker.watch.trace import Trace

T = TypeVar("T", covariant=True)


class DataLoader(torch.utils.data.DataLoader[T]):
    """Put this where `torch.utils.data.DataLoader` stands.

    The arguments are torch's. Beside them:

    num_workers  also "auto": begins with a look at a few samples and goes on while the model trains (docs/auto.md)
    workers      `stoker.Workers(processes=…, threads=…, …)` instead of `num_workers`
    seed, order  arithmetic order: `seed=7` with or without `shuffle=True`, or an order of `stoker.order`; an epoch's
                 order is then a pure function of the seed and the epoch, and any place in it is found at once
    shard        (rank, world); by default torch.distributed's, or torchrun's environment, where order is arithmetic
    last         what becomes of the epoch's last, partial step: "drop" leaves it out, "keep" keeps it short (ranks get
                 equal parts, a few samples coming twice), "even" too (a few are left out instead), "pad" fills a plan's
                 step up and masks what was added. By default "keep", or what drop_last says; with a plan "drop"
    reseed       "sample" keys Python's, NumPy's and torch's global generators by (seed, epoch, position)
    on_error     what to do with samples that cannot be loaded: "raise", "skip", "drop", "retry", or a `stoker.OnError`
    plan         a `stoker.BatchPlan` instead of `batch_size`: a step's batch is then a `stoker.StepBatch`
    device       where the model is: two batches are there before they are asked for (see `stoker.to_device`)
    tuned        a file that `stoker tune` wrote: batch_size, workers and prefetch_factor are what it says
    snapshot_every_n_steps   accepted for code written for torchdata; a state is exact at every step here
    """

    # For people, and for trainers that make a loader anew: see `stoker.arguments.asked`. This code reads `_asked`.
    workers: Workers
    seed: int | None
    reseed: Literal["sample"] | None
    snapshot_every_n_steps: int
    on_error: OnError | Literal["raise", "skip", "drop", "retry"]
    plan: BatchPlan | None
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
        last: Last | None = None,
        reseed: Literal["sample"] | None = None,
        snapshot_every_n_steps: int = 1,
        on_error: OnError | Literal["raise", "skip", "drop", "retry"] = "raise",
        plan: BatchPlan | None = None,
        device: torch.device | str | int | None = None,
        tuned: str | os.PathLike[str] | None = None,
    ) -> None:
        asked = Asked.among(locals())
        settled = settle(asked)
        super().__init__(**settled.torch)
        if settled.workers.are_threads:
            self.prefetch_factor = settled.prefetch_factor
        if settled.planned is not None:
            settled.planned.settle(self.sampler, self.batch_sampler, settled.is_theirs)
        asked.show_on(self, settled.shown_workers)
        self._set_up(asked, settled)

    # Of a subclass that never calls our constructor and iterates by itself, as torchdata's StatefulDataLoader does when
    # our class was put in the place of torch's.
    _lookahead: Lookahead | None = None
    _is_set_up = False

    def _set_up(self, asked: Asked, settled: Settled) -> None:
        """What is ours, beside what torch's constructor has set."""
        self._asked, self._settled = asked, settled
        self._lookahead = None if asked.device is None else Lookahead(asked.device)
        data = Data(self.dataset, self.sampler, self.batch_sampler, self._index_sampler, self.batch_size)
        workers, limits = settled.workers, settled.limits
        first = Size(workers.processes, workers.lanes)
        steering = None if limits is None else Steering(workers, limits, first)
        self._course = Course(data, asked.policy, workers.lanes, steering)
        listen(self.sampler, self.batch_sampler, self._course.epochs)
        self._is_set_up = True

    def __len__(self) -> int:
        """Batches of an epoch; with a plan, its steps."""
        batches = super().__len__()
        if not self._is_set_up:
            return batches
        self._course.length_told = self._IterableDataset_len_called  # which torch has just noted
        planned = self._settled.planned
        if planned is None:
            return batches
        if planned.is_iterable:
            return planned.plan.steps_per_epoch(self._IterableDataset_len_called or 0, planned.tail)
        return planned.steps_of(batches)

    def __iter__(self) -> Any:
        if self._lookahead is None:
            return super().__iter__()
        return self._lookahead.begin(super().__iter__, self._state_of_loading, self.persistent_workers)

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch, as trainers say it; else the loader counts by itself."""
        tell(self.sampler, self.batch_sampler, epoch)

    def state_dict(self) -> dict[str, Any]:
        """The place in the data: what was handed over, whatever has been prefetched since. See `stoker.skip`."""
        ahead = self._lookahead.state() if self._lookahead is not None else None
        return self._state_of_loading() if ahead is None else ahead

    def _state_of_loading(self) -> dict[str, Any]:
        """The same, where nobody reads ahead of the training loop."""
        if self._settled.workers.are_threads and has_state(self.dataset):
            raise StateError(
                "the dataset keeps a state of its own, and several threads move it at once: it has no place to save. "
                "Use worker processes, or a single thread."
            )
        return self._course.state(self.generator, keeps_workers=self._iterator is not None)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next pass go on where the state was saved: on any number of ranks, workers and lanes."""
        place = self._course.read(state_dict)
        if self._lookahead is not None:
            self._lookahead.forget(self._iterator is not None)
        if self._iterator is not None:  # persistent workers stand somewhere else
            kept: Any = self._iterator
            kept._shutdown_workers()
            self._iterator = None
        self._course.load(place)

    def stats(self, memory: bool = True) -> Stats:
        """Where the time went so far, over all passes; `print(loader.stats())` is a readable block.

        A look at memory takes some milliseconds: without it the peak is that of the last look.
        """
        if memory:
            self._course.watch.look()
        return self._course.stats()

    def on_stats(self, function: Callable[[Stats, int], object], every: int = 50) -> None:
        """Call `function(stats, step)` every so many steps, with what has happened since the last call.

        It is called when the training loop asks for its next batch. `step` counts over all passes.
        """
        self._course.watch.tell(function, every, self._course.stats())

    def save_tuned(self, path: str | os.PathLike[str]) -> None:
        """Write down who loads now, for `DataLoader(dataset, tuned=path)`: what "auto" has found so far."""
        fixed = setup_of(self).workers
        prefetch = self.prefetch_factor if fixed.processes or fixed.threads else None
        tuned = Tuned(fixed.processes, fixed.threads, fixed.start_method, prefetch_factor=prefetch, cores=cores())
        tuned.save(path)

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """Write what the following passes do to a file for Perfetto, until the trace is closed or its block ends."""
        return self._course.watch.begin_trace(path)

    @GivesWay
    def asked(self) -> Asked:
        """The call that made this loader; `dataclasses.replace(loader.asked, …).arguments()` is that of another."""
        return self._asked

    @GivesWay
    def order(self) -> Order | Literal["sequential", "shuffle"] | None:
        """The order that was asked for; `loader.sampler` has the one that is used."""
        return self._asked.order

    @GivesWay
    def shard(self) -> tuple[int, int] | None:
        """The (rank, world) that was asked for."""
        return self._asked.shard

    @GivesWay
    def last(self) -> Last | None:
        """What was asked to become of the epoch's last, partial step."""
        return self._asked.last

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
        return list(self._course.failures.listed)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, in this process or a spawned one, begins anew: the passes under way are of this loader only."""
        anew = None if self._lookahead is None else Lookahead(self._lookahead.device)
        course = {"_course": copy.copy(self._course)} if self._is_set_up else {}
        return {**self.__dict__, **course, "_iterator": None, "_lookahead": anew}

    def _get_iterator(self) -> Any:
        refuse_patched_iterators(self)
        if not self._is_set_up:
            asked = Asked(self.dataset, num_workers=int(self.num_workers))
            self._set_up(asked, settle(asked))
        if self.num_workers > 0:
            self.check_worker_number_rationality()
        elif self.timeout and not self._settled.workers.are_threads:
            raise AssertionError("timeout needs workers: with num_workers=0 nothing can be waited for")
        assembly = Assembly(setup_of(self))
        if assembly.limits is not None:
            return AdaptivePass(assembly, self._course)
        return (InlinePass if assembly.is_inline else CrewedPass)(assembly, self._course)


def setup_of(loader: DataLoader[Any]) -> Setup:
    """What a pass over this loader is made from now: most of torch's attributes may be changed until then."""
    settled = loader._settled
    workers, limits, asked = settled.workers, settled.limits, settled.decided
    if loader.num_workers != settled.torch["num_workers"]:  # somebody has said how many
        workers, limits = replace(workers, processes=int(loader.num_workers)), None
    elif loader._course.steering is not None:
        workers = loader._course.steering.fixed
    return Setup(
        loader._course.data,
        workers,
        limits,
        asked.policy,
        loader._settled.planned,
        loader.collate_fn,
        loader.worker_init_fn,
        loader.multiprocessing_context,
        loader.generator,
        loader._auto_collation,
        loader.drop_last,
        loader.in_order,
        loader.prefetch_factor,
        loader.persistent_workers,
        loader.timeout,
        loader.pin_memory,
        loader.pin_memory_device,
        asked.seed,
        asked.reseed,
    )


def course_of(loader: DataLoader[Any]) -> Course:
    """What outlives the passes of a loader, for those who look at it from outside."""
    return loader._course


def asked_of(loader: DataLoader[Any]) -> Asked:
    """`loader.asked`, also of a subclass that has taken that name for itself."""
    return loader._asked


def again(loader: DataLoader[Any], **changes: Any) -> Asked:
    """The call of a loader like this one, with nothing left to a file or to "auto", and these arguments changed."""
    workers = setup_of(loader).workers
    return replace(loader._settled.decided, **{"workers": workers, **changes})


hide(DataLoader, "__init__", "__iter__", "__len__", "set_epoch", "state_dict", "load_state_dict")
hide(DataLoader, "stats", "trace", "on_stats")
hide(BatchPass, "__iter__", "__next__", "__len__", "close")
hide(DevicePass, "__iter__", "__next__", "close")
hide(DeviceLoader, "__iter__", "__len__", "__getattr__")
