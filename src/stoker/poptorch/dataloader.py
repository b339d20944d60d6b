"""`poptorch.DataLoader`: the arguments are PopTorch's, the engine is `stoker.DataLoader`.

    options × batch_size ─► plan of a step ─► C rows a batch ─► engine ─► Sync: handed over as they come
                                                                   └────► Async: a buffer of steps in between

One item of the loader is one call of the model: C = batch_size × device iterations × accumulation × replicas rows, in
the order of the dataset. The engine's workers fill a step's rows together and work ahead in every mode; the
asynchronous ones add a buffer of whole steps that is filled between epochs too, and before the first if asked to.

Several host processes take contiguous blocks (`hosts`). An epoch that a host leaves early and begins again is the same
epoch, so that the hosts' parts stay disjoint whoever restarts; `set_epoch` chooses another.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stoker.arguments.asked import GivesWay
from stoker.contracts import Failure
from stoker.loader.dynamo import hide
from stoker.poptorch.accessor import AsynchronousDataAccessor
from stoker.poptorch.enums import DataLoaderMode
from stoker.poptorch.errors import Misuse
from stoker.poptorch.logs import log
from stoker.poptorch.options import Options
from stoker.poptorch.request import Request
from stoker.poptorch.steps import StepLoader
from stoker.watch.stats import Stats
from stoker.watch.trace import Trace


class DataLoader(StepLoader):
    """A loader whose batches are steps. Further arguments are torch's and Stoker's."""

    def __init__(
        self,
        options: Options,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: dict[str, Any] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: Iterable[Sequence[Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._accessor: AsynchronousDataAccessor | None = None
        request = Request(
            options,
            dataset,
            batch_size,
            bool(shuffle),
            drop_last,
            auto_distributed_partitioning,
            DataLoaderMode(mode),
            rebatched_worker_size,
            batch_sampler,
            {"num_workers": num_workers, **kwargs},
        )
        request.check()
        options.freeze()
        super().__init__(request, persistent_workers=_keeps_workers(persistent_workers, num_workers))
        if request.mode is not DataLoaderMode.Sync:
            self._accessor = _buffered(self, async_options or {})

    @property
    def combinedBatchSize(self) -> int | None:
        """Samples of one step; None where samples are not batched."""
        return self.request.combined

    @property
    def options(self) -> Options:
        """The options that were given, now frozen."""
        return self.request.options

    @property
    def loads_ahead(self) -> bool:
        """Whether the mode is an asynchronous one."""
        return self._accessor is not None

    def terminate(self) -> None:
        """Stop loading ahead in an asynchronous mode; in Sync there is nothing to stop."""
        if self._accessor is not None:
            self._accessor.terminate()

    def set_epoch(self, epoch: int) -> None:
        """Which epoch's order comes next, where the order follows from a seed."""
        if self._accessor is not None:
            self._accessor.set_epoch(epoch)
        super().set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self._accessor is not None:
            return iter(self._accessor)
        self._begin_again_if_left()
        return super().__iter__()

    def state_dict(self) -> dict[str, Any]:
        """The place in the data; of an asynchronous loader it can be loaded by an asynchronous one."""
        return super().state_dict() if self._accessor is None else self._accessor.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next pass go on where the state was saved."""
        if self._accessor is None:
            super().load_state_dict(state_dict)
        else:
            self._accessor.load_state_dict(state_dict)

    def stats(self, memory: bool = True) -> Stats:
        """Where the time went so far."""
        return super().stats(memory) if self._accessor is None else self._accessor.loader.stats(memory)

    def trace(self, path: str | os.PathLike[str]) -> Trace:
        """Write what the following passes do to a file for Perfetto."""
        return super().trace(path) if self._accessor is None else self._accessor.loader.trace(path)

    @GivesWay
    def failures(self) -> list[Failure]:
        """The samples that could not be loaded so far."""
        return super().failures if self._accessor is None else self._accessor.loader.failures

    def _begin_again_if_left(self) -> None:
        """The hosts' shuffled parts are disjoint within an epoch: one that was left early is begun again."""
        left = self._course.begin_again_if_left() if self.request.repeats_epochs else None
        if left is not None:
            log.info("epoch %d was left early, so it begins again in the same order: see set_epoch", left)


def _keeps_workers(asked: bool | None, num_workers: int | str) -> bool:
    """Workers stay from epoch to epoch unless somebody says no, or "auto" might do without."""
    return isinstance(num_workers, int) and num_workers > 0 if asked is None else asked


def _buffered(loader: DataLoader, options: dict[str, Any]) -> AsynchronousDataAccessor:
    if "rebatched_size" in options:
        raise Misuse(
            "rebatched_size in async_options is for the loader to set: use mode=poptorch.DataLoaderMode.AsyncRebatched"
        )
    request = loader.request
    return AsynchronousDataAccessor(loader, **options, rebatched_size=request.combined if request.rebatches else None)


hide(DataLoader, "__init__", "__iter__")
hide(StepLoader, "__iter__", "__len__", "set_epoch")
