"""Who loads, and whether the arguments fit together.

Torch's own constructor checks torch's arguments; here are those that torch does not have, and combinations. Each error
says what to change.
"""

from __future__ import annotations

import numbers
import threading
from typing import Any

from torch.utils.data import IterableDataset

from stoker.arguments.asked import LASTS, Asked
from stoker.options import OnError, Workers
from stoker.order import Order
from stoker.order.mix import part_length
from stoker.sources.fetch import is_async


def is_left_to_loader(asked: Asked) -> bool:
    """Whether how many load is for the loader to find out."""
    given: Any = asked.workers
    if isinstance(given, Workers) and given.is_range and not _is_within(asked.num_workers, given):
        raise ValueError(
            f"num_workers={asked.num_workers!r} is not within the range of workers={given}: give one of them."
        )
    is_left = asked.num_workers == "auto" or (isinstance(given, Workers) and given.is_range)
    if is_left and isinstance(given, Workers) and given.share == "parts":
        raise ValueError(
            'share="parts" gives every worker its part of each batch, so that their number matters: give a number of '
            "processes, or leave share out, and whoever is free takes the next rows."
        )
    return is_left


def _is_within(num_workers: Any, given: Workers) -> bool:
    """Whether this number says nothing against a range; one that is made anew from attributes has some number."""
    if num_workers in (0, "auto"):
        return True
    return isinstance(num_workers, numbers.Integral) and num_workers <= max(1, given.most_processes or given.processes)


def choose_workers(num_workers: Any, workers: Workers | None, dataset: Any, context: Any) -> Workers:
    """Who loads, from `num_workers` and `workers`, where that is said."""
    if workers is not None:
        if not isinstance(workers, Workers):
            raise TypeError(f"workers should be a stoker.Workers, but got {workers!r} ({type(workers).__name__})")
        if num_workers not in (0, workers.processes):
            raise ValueError(
                f"num_workers={num_workers!r} and workers={workers} disagree: give one of them, or the same number."
            )
        return workers
    if has_thread_workers(context) and num_workers:
        return _thread_workers(num_workers, dataset)
    if not isinstance(num_workers, numbers.Integral):  # "auto" is not asked here
        raise TypeError(
            f'num_workers should be a whole number or "auto", but got {num_workers!r} ({type(num_workers).__name__})'
        )
    if num_workers < 0:  # torch's own words, which users know
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing. "
            f"(It was {num_workers}.)"
        )
    return Workers(processes=int(num_workers))


def has_thread_workers(context: Any) -> bool:
    """Whether "processes" of this multiprocessing context are threads of the training process, as MONAI has them."""
    process = getattr(context, "Process", None)
    return isinstance(process, type) and issubclass(process, threading.Thread)


def _thread_workers(num_workers: Any, dataset: Any) -> Workers:
    if isinstance(dataset, IterableDataset):
        raise ValueError(
            f"multiprocessing_context has threads for processes, and {num_workers} of them would read one "
            "IterableDataset at the same time. Use worker processes, or num_workers=0."
        )
    return Workers(processes=0, threads=int(num_workers))


def check_dataset(dataset: Any, workers: Workers, shuffle: bool | None) -> None:
    """Lanes and shuffling are for datasets that can be asked for any sample."""
    if isinstance(dataset, IterableDataset):
        if workers.lanes > 1:
            raise ValueError(
                f"an IterableDataset is read by one thread in each process, but workers={workers} asks for "
                f"{workers.lanes}. Use more processes instead, or a map-style dataset."
            )
    elif shuffle and not hasattr(dataset, "__len__"):
        raise TypeError(
            f"object of type {type(dataset).__name__!r} has no len(): a map-style dataset needs __len__ to be "
            "shuffled. Give it one, pass a sampler, or make it a torch.utils.data.IterableDataset."
        )


def check_order(asked: Asked) -> None:
    """An order needs a dataset that it can be put upon."""
    if not asked.is_plain:
        raise ValueError(
            "order and shard say which samples come next; an IterableDataset, a sampler or a batch_sampler says so "
            "itself. Use one or the other."
        )
    if asked.shard is not None and asked.shuffle and asked.seed is None:
        raise ValueError("all ranks must shuffle alike: give seed= beside shard= and shuffle=True")


def check_length(order: Order, dataset: Any) -> None:
    """An order must not reach beyond the dataset."""
    needed = part_length(order)  # of a mix or a repeat: the samples behind it, not the draws
    if needed > len(dataset):
        raise ValueError(f"the order is over {needed} samples, but the dataset has {len(dataset)}")


def check_last(asked: Asked) -> None:
    """What becomes of the epoch's last, partial step."""
    if asked.last is None:
        return
    if asked.last not in LASTS:
        raise ValueError(f"last should be one of {LASTS}, but got {asked.last!r}")
    if asked.drop_last and asked.last != "drop":
        raise ValueError(f'drop_last=True and last="{asked.last}" contradict each other: leave drop_last out')
    if asked.last == "pad" and asked.plan is None:
        raise ValueError(
            'last="pad" fills the last step up and masks what was added, which needs a plan: pass '
            'plan=stoker.BatchPlan(…), or use last="keep", which only makes the parts of all ranks equal.'
        )


def check_last_of_torchs(asked: Asked) -> None:
    """Where torch's samplers, or the user's, say which samples come: nobody shares the last step over ranks."""
    if asked.last == "even" and asked.plan is None:
        raise ValueError('last="even" says how ranks share the last step: it needs seed=, order= or shard=')
    if asked.last == "drop" and asked.batch_sampler is not None and asked.plan is None:
        raise ValueError('last="drop" is for the batch_sampler to say: pass it drop_last=True')


def check_faults(policy: OnError, workers: Workers, dataset: Any) -> None:
    """Policies need somebody who can be stopped, or something that can go on."""
    if workers.sample_timeout_s is not None and workers.processes == 0 and not is_async(dataset):
        raise ValueError(
            "sample_timeout_s needs worker processes, or samples that are awaited: a thread of the training process "
            f"can't be stopped. Use workers=stoker.Workers(processes=1, threads={workers.lanes}, …)."
        )
    if not policy.is_default and isinstance(dataset, IterableDataset):
        raise ValueError(
            "on_error works sample by sample, and an iterator that has raised cannot go on: catch errors inside the "
            "IterableDataset, or use a map-style dataset."
        )


def check_reseed(reseed: Any, workers: Workers, dataset: Any) -> None:
    """Seeding the global generators needs one sample at a time."""
    if reseed not in (None, "sample"):
        raise ValueError(f'reseed should be "sample" or None, but got {reseed!r}')
    if reseed and (isinstance(dataset, IterableDataset) or is_async(dataset)):
        kind = "an IterableDataset" if isinstance(dataset, IterableDataset) else "samples that are awaited together"
        raise ValueError(f"reseed='sample' seeds generators for each sample in turn, which {kind} does not have")
    if reseed and workers.lanes > 1:
        raise ValueError(
            f"reseed='sample' seeds the generators that all threads of a process share, so it needs one thread, but "
            f"workers={workers} has {workers.lanes}. Use more processes, or draw from stoker.rng() in the dataset."
        )
