"""Any source as something that can be walked again and again, and the number of batches that gives.

A source is a loader (torch's, Stoker's), any iterable, an old sequence with `__getitem__` alone, or a function that
makes a new iterator for each pass (`lambda: read_lines(path)`). A generator is its own iterator and is used up after
one pass: the pass after that is refused with words rather than being empty in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch.utils.data
from torch.utils.data import BatchSampler, IterableDataset

from stoker.loader import DataLoader
from stoker.loader.dataloader import asked_of, setup_of
from stoker.passes.assemble import Assembly


def walkable(source: Any) -> Any:
    """The source itself where `iter()` does what it should, else something around it that does."""
    kind = type(source)
    if hasattr(kind, "__iter__"):
        return source
    if hasattr(kind, "__getitem__"):
        return _Sequence(source) if hasattr(kind, "__len__") else source
    if callable(source):
        return _Factory(source)
    raise TypeError(
        f"stoker.prefetch needs a loader, an iterable, or a function that makes an iterator, but got "
        f"{kind.__name__!r}. (A map-style dataset has __getitem__; an iterable one has __iter__.)"
    )


@dataclass(frozen=True)
class _Factory:
    make: Callable[[], Any]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.make())


@dataclass(frozen=True)
class _Sequence:
    """A sequence that knows its length: many datasets go on for ever when asked for an index beyond it."""

    items: Any

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self.items)):
            try:
                yield self.items[index]
            except IndexError:
                return


def check_rows(source: Any, batch_size: int | None) -> None:
    """Refuse to combine batches of ranks that each lose rows of their own: the numbers of batches would differ."""
    if batch_size is None or not isinstance(source, DataLoader) or asked_of(source).policy.action != "drop":
        return
    if (ranks := Assembly(setup_of(source)).ranks) > 1:
        raise ValueError(
            f'batch_size={batch_size} combines rows, and on_error="drop" leaves out other rows on each of {ranks} '
            "ranks: one would have fewer batches, and the others wait for it for ever. Use "
            'on_error="skip", or leave batch_size out.'
        )


def length_of(source: Any, batch_size: int | None, drop_last: bool) -> int:
    """How many batches a pass gives; TypeError where nobody can say."""
    if batch_size is None:
        return _own_length(source)
    samples = _samples_of(source)
    return samples // batch_size if drop_last else -(-samples // batch_size)


def _own_length(source: Any) -> int:
    if not hasattr(type(source), "__len__"):
        raise TypeError(f"object of type {type(source).__name__!r} has no len(), so stoker.prefetch around it has none")
    return len(source)


def _samples_of(source: Any) -> int:
    """How many rows a loader gives in all."""
    if not isinstance(source, torch.utils.data.DataLoader):
        raise TypeError(
            f"the number of combined batches is unknown: an object of type {type(source).__name__!r} does not say how "
            "many rows its batches have. A DataLoader with a batch_size does."
        )
    if source.batch_size is None:
        raise TypeError("the number of combined batches is unknown: the loader's batches are made by its batch_sampler")
    if isinstance(source.dataset, IterableDataset):
        samples = _own_length(source.dataset)
    else:
        sampler: Any = source.sampler
        samples = len(sampler)
    if source.drop_last and isinstance(source.batch_sampler, (BatchSampler, type(None))):
        samples -= samples % source.batch_size
    return samples
