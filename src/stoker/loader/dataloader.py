"""`stoker.DataLoader`: every argument of torch's `DataLoader`, the same batches, sooner.

It is a subclass, so `isinstance` checks of trainers hold, and torch's own constructor checks the arguments and makes
the samplers. What differs is the iterator, and two more arguments: `num_workers="auto"` and `workers=Workers(…)`.
"""

from __future__ import annotations

import json
import numbers
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

import torch
import torch.utils.data
from torch.utils.data import BatchSampler, Dataset, IterableDataset, RandomSampler, Sampler

from stoker.batches import has_state
from stoker.contracts import Failure, OnError, Workers
from stoker.device import Lookahead
from stoker.errors import ResumeMismatch, StateError
from stoker.loader.assemble import Assembly
from stoker.loader.crewed import CrewedIterator
from stoker.loader.epochs import Epochs, listen, tell
from stoker.loader.failures import Failures, read_policy
from stoker.loader.inline import InlineIterator
from stoker.loader.keys import draw_for, is_cuttable, state_between_epochs
from stoker.loader.ordered import OrderPlan, choose_order, choose_shard
from stoker.loader.planned import Asked, Planned, read_plan, sampler_name
from stoker.loader.progress import Progress
from stoker.loader.state import Place, check_iterable_states, check_same_data, check_step
from stoker.loader.tuned import Arguments, decided_by
from stoker.loader.watched import Watched
from stoker.order import Order
from stoker.order.mix import part_length
from stoker.plan import BatchPlan, Tail
from stoker.sources.fetch import is_async

T = TypeVar("T", covariant=True)


class DataLoader(Watched, torch.utils.data.DataLoader[T]):
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

    workers: Workers

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
        chosen = _choose(num_workers, workers, dataset, multiprocessing_context)
        _check_dataset(dataset, chosen, shuffle)
        _check_reseed(reseed, chosen, dataset)
        _check_faults(read_policy(on_error), chosen, dataset)
        planned: Planned | None = None
        if plan is not None or tail is not None:
            asked = Asked(dataset, batch_size, sampler, batch_sampler, collate_fn, drop_last, shard, uneven)
            planned, asked = read_plan(plan, tail, asked, read_policy(on_error))
            batch_size, batch_sampler = asked.batch_size, asked.batch_sampler
            drop_last, shard = asked.drop_last, asked.shard
        if shuffle is False and not _is_plain(None, sampler, batch_sampler):
            order = shard = uneven = None  # a trainer made this loader anew, with a sampler of its own choice
        if order is not None or shard is not None or (seed is not None and _is_plain(dataset, sampler, batch_sampler)):
            _check_order(dataset, sampler, batch_sampler, shuffle, seed, shard)
            chosen_order = choose_order(order, bool(shuffle), seed or 0, _length(dataset))
            last = uneven or ("drop" if drop_last else "pad")
            _check_length(chosen_order, dataset)
            if planned is not None:
                sampler = planned.order_plan(chosen_order, isinstance(order, Order), last)
            else:
                sampler = OrderPlan(chosen_order, batch_size or 1, None if shard is None else choose_shard(shard), last)
            shuffle, drop_last = None, False
        elif uneven is not None:
            raise ValueError("uneven says what ranks do with the last step: it needs seed=, order= or shard=")
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
            multiprocessing_context if chosen.start_method is None else chosen.start_method,
            generator,
            prefetch_factor=None if _threads_only(chosen) else prefetch_factor,
            persistent_workers=persistent_workers and not _threads_only(chosen),
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        self._planned = planned
        if planned is not None and batch_sampler is None and not planned.is_stream:
            planned.check_enough(self.sampler)
        self.plan, self.tail, self.tuned = plan, tail, tuned
        self.workers, self.seed, self.reseed = chosen, seed, reseed
        self.order, self.shard, self.uneven = order, shard, uneven
        self.snapshot_every_n_steps = snapshot_every_n_steps
        self.on_error = on_error
        self.device = device
        self._lookahead = None if device is None else Lookahead(device)
        self._failures = Failures(read_policy(on_error))
        self._watch()
        self._progress: Progress | None = None
        self._epochs = self.sampler.epochs if isinstance(self.sampler, OrderPlan) else Epochs()
        listen(self, self._epochs)
        # Two questions of accelerate's: is the loader sharded already, and does it keep a state to be saved?
        self._is_accelerate_prepared = self.use_stateful_dataloader = isinstance(self.sampler, OrderPlan)
        self._place: Place | None = None  # where the next pass begins: loaded, or drawn ahead for a state
        self._is_loaded = False
        if _threads_only(chosen):
            self.prefetch_factor = prefetch_factor

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

    @property
    def failures(self) -> list[Failure]:
        """The samples that could not be loaded so far."""
        return list(self._failures.listed)

    def state_dict(self) -> dict[str, Any]:
        """The place in the data: what was handed over, whatever has been prefetched since. See `stoker.skip`."""
        ahead = self._lookahead.state() if self._lookahead is not None else None
        return self._state_of_loading() if ahead is None else ahead

    def _state_of_loading(self) -> dict[str, Any]:
        """The same, where nobody reads ahead of the training loop."""
        if _threads_only(self.workers) and has_state(self.dataset):
            raise StateError(
                "the dataset keeps a state of its own, and several threads move it at once: it has no place to save. "
                "Use worker processes, or lanes=1."
            )
        state = self._state()
        failures = self._failures.state()
        return {**state, "failures": failures} if failures else state

    def _state(self) -> dict[str, Any]:
        if self._place is not None:
            return self._place.to_state()
        if self._progress is not None and not self._progress.finished:
            return self._progress.state()
        self._place = self._draw_ahead()
        return self._place.to_state()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next pass go on where the state was saved: on any number of ranks, workers and lanes."""
        place = Place.from_state(state_dict)
        check_same_data(place, self._described())
        plan = self.sampler if isinstance(self.sampler, OrderPlan) else None
        check_step(place, plan.per_step if plan is not None else None)
        self._check_parts(place)
        if self._lookahead is not None:
            self._lookahead.forget(self._iterator is not None)
        if self._iterator is not None:  # persistent workers stand somewhere else
            self._iterator._shutdown_workers()  # type: ignore[attr-defined]
            self._iterator = None
        self._failures.resume(place.failures)
        place.failures = {}  # counted there from now on
        self._go_to(place)
        self._epochs.resume(place.epoch, place.told)

    def _go_to(self, place: Place) -> None:
        """Let the next pass begin there."""
        self._place, self._is_loaded = place, True

    def __getstate__(self) -> dict[str, Any]:
        """A copy, in this process or a spawned one, begins anew: the passes under way are of this loader only."""
        anew = None if self.device is None else Lookahead(self.device)
        return {**super().__getstate__(), **dict.fromkeys(("_iterator", "_progress", "_place")), "_lookahead": anew}

    def _check_parts(self, place: Place) -> None:
        """Refuse a state that lacks what this loader would need to go on from the middle of an epoch."""
        if isinstance(self.dataset, IterableDataset) and place.workers is not None:
            check_iterable_states(place.workers["states"])
        if is_cuttable(self._index_sampler) and place.position > (place.data.get("length") or 0):
            raise StateError(f"the state's 'position' is {place.position}, beyond the epoch's end: it was damaged")
        if not place.batches:
            return
        lacking = None
        if isinstance(self.dataset, IterableDataset) and place.workers is None:
            lacking = "workers", "where the iterable dataset stood in each worker"
        elif isinstance(self.sampler, RandomSampler) and place.sampler is None and not place.drawn:
            lacking = "drawn", "what the epoch's order was drawn from"
        if lacking is not None:
            raise StateError(
                f"the state is of the middle of an epoch but has no {lacking[0]!r}: {lacking[1]} is missing, and going "
                "on would repeat or lose samples. Use a whole state; a checkpoint that only fills in keys which a new "
                "loader's state has should store json.dumps(loader.state_dict()) instead."
            )

    def _next_place(self) -> Place:
        """Where the pass that begins now starts."""
        place, self._place = self._place, None
        if place is None:
            place = self._described(self._progress.place.epoch + 1 if self._progress is not None else 0)
        news = self._epochs.heed()
        if self._is_loaded and news is not None and not place.is_in(news):
            place = self._described(news)
        if not self._is_loaded:
            place.sampler = None  # the sampler stands where it stands
            place.epoch = place.epoch if news is None else news
        place.told = place.told if self._epochs.current is None else self._epochs.current
        self._is_loaded = False
        if isinstance(self.sampler, OrderPlan):
            self.sampler.epoch = place.epoch
        return place

    def _draw_ahead(self) -> Place:
        """The beginning of the next epoch, with what it would draw from generators drawn now, for a state to hold."""
        last = self._progress
        place = self._described(last.place.epoch + 1 if last is not None else 0)
        keeps = self._iterator is not None and last is not None
        place.base_seed = last.place.base_seed if keeps and last is not None else self._draw_base_seed()
        drawn_from = self.sampler if type(self._index_sampler) is BatchSampler else self._index_sampler
        place.drawn = draw_for(drawn_from)
        place.sampler = state_between_epochs(drawn_from, last.place.sampler if last is not None else None)
        if last is not None:  # after the draws: a dataset's state may hold torch's generator
            place.workers = last.surviving_workers()
        return place

    def _draw_base_seed(self) -> int:
        return int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())

    def _described(self, epoch: int = 0) -> Place:
        data = {} if isinstance(self.dataset, IterableDataset) else {"length": _length_or_none(self.dataset)}
        plan = self.sampler if isinstance(self.sampler, OrderPlan) else None
        if plan is not None:
            order = {**plan.order.describe(), "samples": plan.order.n, "per_step": plan.per_step}
            order = json.loads(json.dumps(order, default=int))  # NumPy's numbers become Python's
        else:  # torch's samplers: at least their kind has to be the same
            own = self.batch_size is None and self.batch_sampler is not None
            order = {"sampler": sampler_name(self.batch_sampler if own else self.sampler)}
        return Place(epoch=epoch, data=data, order=order)

    def _get_iterator(self) -> Any:
        if self.num_workers > 0:
            self.check_worker_number_rationality()
        elif self.timeout and not _threads_only(self.workers):
            raise AssertionError("timeout needs workers: with num_workers=0 nothing can be waited for")
        kept = self._place, self._progress, self._is_loaded
        try:
            latest = InlineIterator(self) if Assembly(self).is_inline else CrewedIterator(self)
            self._latest = weakref.ref(latest)
            return latest
        except ResumeMismatch:  # the loader stays as it was: with other workers the state can still be used
            self._place, self._progress, self._is_loaded = kept
            raise


def _choose(num_workers: Any, workers: Workers | None, dataset: Any, context: Any) -> Workers:
    if workers is not None:
        if not isinstance(workers, Workers):
            raise TypeError(f"workers should be a stoker.Workers, but got {workers!r} ({type(workers).__name__})")
        if num_workers not in (0, workers.processes):
            raise ValueError(
                f"num_workers={num_workers!r} and workers={workers} disagree: give one of them, or the same number."
            )
        return workers
    if isinstance(num_workers, str):
        if num_workers != "auto":
            raise TypeError(f'num_workers should be a whole number or "auto", but got {num_workers!r}')
        from stoker.loader.auto import decide

        return decide(dataset, context)
    if not isinstance(num_workers, numbers.Integral):
        raise TypeError(
            f'num_workers should be a whole number or "auto", but got {num_workers!r} ({type(num_workers).__name__})'
        )
    if num_workers < 0:  # torch's own words, which users know
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing. "
            f"(It was {num_workers}.)"
        )
    return Workers(processes=int(num_workers))


def _check_dataset(dataset: Any, workers: Workers, shuffle: bool | None) -> None:
    if isinstance(dataset, IterableDataset):
        if workers.lanes > 1:
            raise ValueError(
                f"an IterableDataset is read by one lane in each process, but workers={workers} asks for "
                f"{workers.lanes}. Use lanes=1 and more processes, or a map-style dataset."
            )
    elif shuffle and not hasattr(dataset, "__len__"):
        raise TypeError(
            f"object of type {type(dataset).__name__!r} has no len(): a map-style dataset needs __len__ to be "
            "shuffled. Give it one, pass a sampler, or make it a torch.utils.data.IterableDataset."
        )


def _is_plain(dataset: Any, sampler: Any, batch_sampler: Any) -> bool:
    return sampler is None and batch_sampler is None and not isinstance(dataset, IterableDataset)


def _check_order(dataset: Any, sampler: Any, batch_sampler: Any, shuffle: Any, seed: Any, shard: Any) -> None:
    if not _is_plain(dataset, sampler, batch_sampler):
        raise ValueError(
            "order and shard say which samples come next; an IterableDataset, a sampler or a batch_sampler says so "
            "itself. Use one or the other."
        )
    if shard is not None and shuffle and seed is None:
        raise ValueError("all ranks must shuffle alike: give seed= beside shard= and shuffle=True")


def _check_length(order: Order, dataset: Any) -> None:
    needed = part_length(order)  # of a mix or a repeat: the samples behind it, not the draws
    if needed > len(dataset):
        raise ValueError(f"the order is over {needed} samples, but the dataset has {len(dataset)}")


def _check_faults(policy: OnError, workers: Workers, dataset: Any) -> None:
    if workers.sample_timeout_s is not None and workers.processes == 0 and not is_async(dataset):
        raise ValueError(
            "sample_timeout_s needs worker processes, or samples that are awaited: a thread of the training process "
            f"can't be stopped. Use workers=stoker.Workers(processes=1, lanes={max(1, workers.lanes)}, …)."
        )
    if policy != OnError() and isinstance(dataset, IterableDataset):
        raise ValueError(
            "on_error works sample by sample, and an iterator that has raised cannot go on: catch errors inside the "
            "IterableDataset, or use a map-style dataset."
        )


def _check_reseed(reseed: Any, workers: Workers, dataset: Any) -> None:
    if reseed not in (None, "sample"):
        raise ValueError(f'reseed should be "sample" or None, but got {reseed!r}')
    if reseed and (isinstance(dataset, IterableDataset) or is_async(dataset)):
        kind = "an IterableDataset" if isinstance(dataset, IterableDataset) else "samples that are awaited together"
        raise ValueError(f"reseed='sample' seeds generators for each sample in turn, which {kind} does not have")
    if reseed and workers.lanes > 1:
        raise ValueError(
            f"reseed='sample' seeds the generators that all threads of a process share, so it needs lanes=1, but "
            f"workers={workers} has {workers.lanes}. Use more processes, or draw from stoker.rng() in the dataset."
        )


def _length(dataset: Any) -> int:
    return len(dataset)


def _length_or_none(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def _threads_only(workers: Workers) -> bool:
    return workers.processes == 0 and workers.lanes > 1
