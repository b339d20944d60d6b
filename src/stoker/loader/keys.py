"""Which indices make the next batch: the sampler's, in the sampler's order.

torch's own samplers hand out one Python number at a time, which for small samples costs more than loading them. For the
exact types that torch makes by default the same numbers are cut from one array instead; they come from the same
generator, drawn in the same order and as often, so that whatever else uses that generator sees no difference. Any
other sampler is simply iterated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from stoker.contracts import Keys


def batches_of_keys(index_sampler: Any, batched: bool) -> Iterator[Keys]:
    """The keys of each batch; a batch of `batch_size=None` has the one key that is its index."""
    if not batched:
        return ([key] for key in index_sampler)
    if type(index_sampler) is BatchSampler and type(index_sampler.sampler) in _CUTTERS:
        sampler: Any = index_sampler.sampler
        if type(sampler) is SequentialSampler or _is_plain_shuffle(sampler):
            cutter: Callable[[Any, int, bool], Iterator[Keys]] = _CUTTERS[type(sampler)]
            return cutter(sampler, index_sampler.batch_size, index_sampler.drop_last)
    return (batch if isinstance(batch, list) else list(batch) for batch in index_sampler)


def _is_plain_shuffle(sampler: RandomSampler) -> bool:
    return not sampler.replacement and sampler.num_samples == len(sampler.data_source) > 0


def _cut_sequence(sampler: Any, batch_size: int, drop_last: bool) -> Iterator[Keys]:
    length = _length(sampler.data_source)
    for start in range(0, _end(length, batch_size, drop_last), batch_size):
        yield np.arange(start, min(start + batch_size, length), dtype=np.int64)


def _cut_shuffle(sampler: Any, batch_size: int, drop_last: bool) -> Iterator[Keys]:
    length = len(sampler.data_source)
    generator = sampler.generator
    if generator is None:
        generator = torch.Generator()
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    order = torch.randperm(length, generator=generator).numpy()
    for start in range(0, _end(length, batch_size, drop_last), batch_size):
        yield order[start : start + batch_size]
    torch.randperm(length, generator=generator)  # torch's sampler draws once more for the zero samples that are left


_CUTTERS: dict[type, Any] = {SequentialSampler: _cut_sequence, RandomSampler: _cut_shuffle}


def _end(length: int, batch_size: int, drop_last: bool) -> int:
    return length - length % batch_size if drop_last else length


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError as error:
        raise TypeError(
            f"{error}: a map-style dataset needs __len__ for sequential order. Give it one, pass a sampler, or make "
            "it a torch.utils.data.IterableDataset."
        ) from None
