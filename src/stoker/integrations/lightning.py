"""Lightning: datasets become loaders whose place stands in Lightning's checkpoints.

`stoker.DataLoader` needs nothing of this to be used in a Trainer: it is torch's loader to Lightning, which puts its
samplers in, calls `set_epoch`, and asks for the loader's state when it saves in the middle of an epoch. `DataModule`
adds what a plain loader cannot know:

- a seed by default, so that ranks share each step without a sampler of Lightning's, and the order resumes exactly;
- the place in checkpoints that Lightning writes between epochs as well: it does not restore a loader from those, so
  that generators, samplers and iterable datasets with a state of their own would begin again;
- iterable datasets without a length: Lightning takes one batch ahead, to know which one is the last, and the loader's
  own state would count it as used.

Importing this imports `lightning`, or `pytorch_lightning` where only that is there (or was imported first).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import Dataset, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from stoker.errors import ResumeMismatch
from stoker.integrations.lightning_package import lightning_package
from stoker.loader import DataLoader
from stoker.loader.dynamo import hide
from stoker.sampling.streams import length_or_none

log = logging.getLogger("stoker.lightning")
_Base: Any = lightning_package().LightningDataModule


class DataModule(_Base):  # type: ignore[misc]
    """Datasets for fit, validate, test and predict, loaded by `stoker.DataLoader`.

    train, val, test, predict   a dataset; a list or dict of several; or a function that makes it, called in each rank
    batch_size   samples in a batch of one rank
    seed         of the training order, which the ranks share; None leaves order and sharding to torch and Lightning
    shuffle      whether training samples are shuffled
    evaluation   options that differ for val, test and predict: `{"batch_size": 256}`
    options      any other argument of `stoker.DataLoader`, for all of them
    """

    def __init__(
        self,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        predict: Any = None,
        *,
        batch_size: int | None = 1,
        seed: int | None = 0,
        shuffle: bool = True,
        evaluation: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._given = {"train": train, "val": val, "test": test, "predict": predict}
        self._made: dict[str, Any] = {}
        self.batch_size = batch_size  # by this name Lightning's tuner finds it and changes it
        self._options = options
        self._order = {"seed": seed, "shuffle": shuffle}
        self._evaluation = dict(evaluation or {})
        self._loaders: list[TrainLoader] = []
        self._pending: list[Any] = []
        self._hide_what_has_no_dataset()

    def dataset(self, stage: str) -> Any:
        """The dataset, or several, of "train", "val", "test" or "predict"; made when it is first asked for."""
        if stage not in self._made:
            given = self._given[stage]
            self._made[stage] = given() if _makes_datasets(given) else given
        return self._made[stage]

    def train_dataloader(self) -> Any:
        self._loaders = []
        loaders = _each(self.dataset("train"), self._train_loader)
        pending, self._pending = self._pending, []
        for loader, state in zip(self._loaders, pending, strict=False):
            _restore(loader, state)
        return loaders

    def val_dataloader(self) -> Any:
        return _each(self.dataset("val"), self._evaluation_loader)

    def test_dataloader(self) -> Any:
        return _each(self.dataset("test"), self._evaluation_loader)

    def predict_dataloader(self) -> Any:
        return _each(self.dataset("predict"), self._evaluation_loader)

    def state_dict(self) -> dict[str, Any]:
        """What Lightning puts into every checkpoint: the places of the training loaders."""
        return {"train": [loader.state_dict() for loader in self._loaders]} if self._loaders else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the places until Lightning asks for the loaders."""
        self._pending = list(state_dict.get("train", []))

    def teardown(self, stage: str) -> None:
        """Let the training loaders go, and their workers with them."""
        self._loaders = []

    def _train_loader(self, dataset: Any) -> TrainLoader:
        order = {"seed": self._order["seed"]} if isinstance(dataset, IterableDataset) else self._order
        loader = TrainLoader(dataset, **{"batch_size": self.batch_size, **order, **self._options})
        loader._batches_ahead = self._batches_ahead
        self._loaders.append(loader)
        return loader

    def _evaluation_loader(self, dataset: Any) -> DataLoader[Any]:
        return DataLoader(dataset, **{"batch_size": self.batch_size, **self._options, **self._evaluation})

    def _batches_ahead(self) -> int:
        """Batches that Lightning has taken from its loaders but not given to the model yet."""
        fetcher = getattr(getattr(self.trainer, "fit_loop", None), "_data_fetcher", None)
        return len(getattr(fetcher, "batches", ()))

    def _hide_what_has_no_dataset(self) -> None:
        """Lightning looks for overridden methods, and would complain about a stage that is offered without data."""
        for stage, given in self._given.items():
            name = f"{stage}_dataloader"
            if given is None and getattr(type(self), name) is getattr(DataModule, name):
                setattr(self, name, getattr(super(), name))


class TrainLoader(DataLoader[Any]):
    """A loader whose state does not count a batch that Lightning has taken ahead of the training step."""

    _batches_ahead: Callable[[], int] = staticmethod(lambda: 0)  # how many those are, as the loader's module knows
    _state_before: dict[str, Any] | None = None  # without the last batch handed over

    def __iter__(self) -> Any:
        self._state_before = None
        has_length = length_or_none(self) is not None
        return super().__iter__() if has_length else _Remembering(self, super().__iter__())

    def _take(self, batches: Iterator[Any]) -> Any:
        before = super().state_dict()
        batch = next(batches)
        self._state_before = before
        return batch

    def state_dict(self) -> dict[str, Any]:
        before = self._state_before
        return before if before is not None and self._batches_ahead() else super().state_dict()


class _Remembering(_BaseDataLoaderIter):
    """A pass of such a loader; to Lightning one of torch's iterators, which it does not pickle."""

    def __init__(self, loader: TrainLoader, batches: Iterator[Any]) -> None:
        self._loader, self._batches = loader, batches

    def __next__(self) -> Any:
        return self._loader._take(self._batches)


hide(TrainLoader, "__iter__", "state_dict")
hide(_Remembering, "__next__")


def _makes_datasets(given: Any) -> bool:
    return callable(given) and not isinstance(given, Dataset) and not hasattr(given, "__getitem__")


def _each(datasets: Any, make: Callable[[Any], Any]) -> Any:
    """A loader for each dataset of a list or dict, or for the only one."""
    if isinstance(datasets, Mapping):
        return {name: make(dataset) for name, dataset in datasets.items()}
    if isinstance(datasets, list | tuple) and all(isinstance(one, Dataset) for one in datasets):
        return [make(dataset) for dataset in datasets]  # any other list is a dataset itself: a list of samples
    return make(datasets)


def _restore(loader: TrainLoader, state: Any) -> None:
    try:
        loader.load_state_dict(state)
    except ResumeMismatch as mismatch:
        # In the middle of an epoch Lightning restores the loader itself and raises; between epochs nothing is lost.
        log.warning("the training order begins anew, because the data or their order have changed: %s", mismatch)
