"""`stoker.DataLoader`: every argument of torch's `DataLoader`, the same batches, sooner.

It is a subclass, so `isinstance` checks of trainers hold, and torch's own constructor checks the arguments and makes
the samplers. What differs is the iterator, and two more arguments: `num_workers="auto"` and `workers=Workers(…)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import torch
import torch.utils.data
from torch.utils.data import Dataset, IterableDataset, Sampler

from stoker.contracts import Workers
from stoker.loader.assemble import Assembly
from stoker.loader.crewed import CrewedIterator
from stoker.loader.inline import InlineIterator

T = TypeVar("T", covariant=True)


class DataLoader(torch.utils.data.DataLoader[T]):
    """Put this where `torch.utils.data.DataLoader` stands.

    The arguments are torch's. Beside them:

    num_workers  also "auto": measures a few samples, picks inline, threads or processes, and logs what and why
    workers      `stoker.Workers(processes=…, lanes=…, …)` instead of `num_workers`
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
    ) -> None:
        chosen = _choose(num_workers, workers, dataset)
        _check_dataset(dataset, chosen, shuffle)
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
        self.workers = chosen
        if _threads_only(chosen):
            self.prefetch_factor = prefetch_factor

    def _get_iterator(self) -> Any:
        if self.num_workers > 0:
            self.check_worker_number_rationality()
        elif self.timeout and not _threads_only(self.workers):
            raise AssertionError("timeout needs workers: with num_workers=0 nothing can be waited for")
        return InlineIterator(self) if Assembly(self).is_inline else CrewedIterator(self)


def _choose(num_workers: Any, workers: Workers | None, dataset: Any) -> Workers:
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

        return decide(dataset)
    if not isinstance(num_workers, int):
        raise TypeError(
            f'num_workers should be a whole number or "auto", but got {num_workers!r} ({type(num_workers).__name__})'
        )
    if num_workers < 0:  # torch's own words, which users know
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing. "
            f"(It was {num_workers}.)"
        )
    return Workers(processes=num_workers)


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


def _threads_only(workers: Workers) -> bool:
    return workers.processes == 0 and workers.lanes > 1
