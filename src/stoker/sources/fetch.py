"""How samples are got from a dataset: one by one, by runs, or gathered with one indexing operation.

| the dataset                                            | way                                                         |
|---|---|
| `TensorDataset`, a tensor, an array, a Subset of those | gathered: one indexing operation a column                   |
| has `__getitems__`                                     | asked for runs                                              |
| torch's `Subset` of a dataset without it               | asked sample by sample                                      |
| has `async def __agetitem__`                           | awaited, many at a time, where lanes are coroutines         |
| any other map-style dataset                            | asked sample by sample                                      |

A subclass of `TensorDataset` may change what a sample is, so only the exact type is gathered.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stoker.nested import is_plain_tensor


@dataclass
class MapFetch:
    """Samples of a map-style dataset."""

    dataset: Any
    arrays: Sequence[Any] | None = None
    bare: bool = False
    by_runs: bool = False

    def one(self, key: Any) -> Any:
        return self.dataset[key]

    def many(self, keys: Iterator[Any]) -> list[Any]:
        dataset = self.dataset
        return [dataset[key] for key in keys]

    async def one_async(self, key: Any) -> Any:
        return await self.dataset.__agetitem__(key)


@dataclass
class RunFetch(MapFetch):
    """Samples of a dataset that has `__getitems__`."""

    def one(self, key: Any) -> Any:
        return self.many(iter([key]))[0]

    def many(self, keys: Iterator[Any]) -> list[Any]:
        # All keys at once, and no sample is the one at hand: a copy is used up, so that the run stays at its start.
        samples: list[Any] = self.dataset.__getitems__(list(copy.copy(keys)))
        return samples  # mostly a list; a collate_fn of the user's own may get something else, as with torch


@dataclass
class SubsetFetch(MapFetch):
    """Samples of torch's `Subset` over a dataset without `__getitems__`: one by one, so that each knows its place."""

    def one(self, key: Any) -> Any:
        dataset = self.dataset
        while type(dataset) is type(self.dataset):  # a subset of a subset of …
            dataset, key = dataset.dataset, dataset.indices[key]
        return dataset[key]

    def many(self, keys: Iterator[Any]) -> list[Any]:
        return [self.one(key) for key in keys]


def fetch_for(dataset: Any, batched: bool = True) -> MapFetch:
    """The way to get samples from this dataset; with `batch_size=None` a key is handed to it as it is."""
    if not batched:
        return MapFetch(dataset)
    found = _arrays_of(dataset)
    if found is not None:
        arrays, bare = found
        return MapFetch(dataset, arrays, bare)
    if _is_plain_subset(dataset):
        return SubsetFetch(dataset)
    if getattr(dataset, "__getitems__", None) is not None:
        return RunFetch(dataset, by_runs=True)
    return MapFetch(dataset)


def _is_plain_subset(dataset: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or type(dataset) is not torch.utils.data.Subset:
        return False
    while type(dataset) is torch.utils.data.Subset:
        dataset = dataset.dataset
    return getattr(dataset, "__getitems__", None) is None


def is_async(dataset: Any) -> bool:
    """Whether samples can be awaited."""
    return inspect.iscoroutinefunction(getattr(type(dataset), "__agetitem__", None))


def has_own_getitem(dataset: Any) -> bool:
    """Whether samples can be asked for without awaiting; torch's `Dataset` only pretends to."""
    method = getattr(type(dataset), "__getitem__", None)
    return method is not None and getattr(method, "__qualname__", "") != "Dataset.__getitem__"


def _arrays_of(dataset: Any) -> tuple[list[Any], bool] | None:
    if type(dataset) in (np.ndarray, np.memmap) and dataset.ndim and dataset.dtype.kind in "biufc":
        return [dataset], True
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if type(dataset) is torch.Tensor and dataset.ndim and _gatherable(dataset):
        return [dataset], True
    if type(dataset) is torch.utils.data.TensorDataset and all(map(_gatherable, dataset.tensors)):
        return list(dataset.tensors), False
    return None


def _gatherable(tensor: Any) -> bool:
    return is_plain_tensor(tensor) and not tensor.requires_grad
