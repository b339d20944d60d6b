"""`AsynchronousDataAccessor`: steps ahead of the consumer, on `stoker.prefetch`.

    a poptorch.DataLoader ─► a loader of its own, with at least one worker process ─► thread that keeps the buffer full
    any other iterable    ─► a process that walks it ────────────────────────────────► buffer

Every `iter()` begins a pass. What it gives is an iterator: `iter(it) is it`, and a loop over it after a `next` goes on
from there. There is one buffer, so a new pass ends the one before. Steps are the consumer's own: nothing is overwritten
while somebody still has it, and keeping many only costs memory.

The constructor returns when the first step is there, so that a dataset that cannot be loaded is refused at once, with
its own error as the cause. Dropping the accessor, or the loader around it, ends all that works for it; so does the end
of this process in whatever way.
"""

from __future__ import annotations

import functools
import traceback
import weakref
from collections.abc import Mapping
from typing import Any

from torch.utils.data import DataLoader as TorchLoader

from stoker.poptorch.enums import SharingStrategy
from stoker.poptorch.errors import Error, StartError, Terminated, in_short
from stoker.poptorch.logs import log
from stoker.poptorch.passes import Pass, Progress
from stoker.poptorch.request import Request
from stoker.poptorch.steps import StepLoader
from stoker.prefetching import prefetch
from stoker.prefetching.options import StartMethod
from stoker.whole_numbers import check_whole

_START_METHODS: dict[SharingStrategy, StartMethod] = {
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
}


class AsynchronousDataAccessor:
    """Goes over `dataset` (a loader in Sync mode, or any iterable) ahead of the consumer.

    buffer_size             steps made ahead at most
    miss_sleep_time_in_ms   waiting blocks and costs nothing, whatever the number; 0 spins, for the last microseconds
    load_indefinitely       at the end of a pass begin to prepare the next one
    early_preload           fill the buffer now; False: only the first step, the others when a pass begins
    sharing_strategy        how processes are started; None as Python does on this platform
    rebatched_size          cut what comes anew into batches of so many rows, with one tail for the whole
    """

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy | None = None,
        rebatched_size: int | None = None,
    ) -> None:
        self._progress: Progress | None = None
        self._latest: weakref.ref[Pass] | None = None
        self._is_terminated = False
        self._beginning: dict[str, Any] = {}
        self.rebatched_size = rebatched_size
        request = _request_of(dataset)
        start_method = None if sharing_strategy is None else _START_METHODS[SharingStrategy(sharing_strategy)]
        self._source = dataset if request is None else _own_loader(request, dataset, start_method)
        self._repeats_epochs = request is not None and request.repeats_epochs
        self._start = functools.partial(
            prefetch,
            self._source,
            ahead=check_whole("buffer_size", buffer_size, 1, "steps made ahead"),
            across_epochs=load_indefinitely,
            spin=not miss_sleep_time_in_ms,
            batch_size=rebatched_size,
            drop_last=rebatched_size is not None and (request is None or request.drop_last),
            by="process" if request is None else "thread",
            start_method=start_method if request is None else None,
        )
        self._prefetch = self._start(at_once=early_preload)
        self._load_first()

    def terminate(self) -> None:
        """Stop loading ahead, now. Steps that were handed over stay valid."""
        self._is_terminated = True
        self._leave_pass("it was ended by terminate()", Terminated)
        self._prefetch.terminate()
        if isinstance(self._source, StepLoader):
            self._source.close()

    def __len__(self) -> int:
        """Steps of a pass."""
        is_own = isinstance(self._source, StepLoader) and self._source.request.rebatches
        return len(self._source) if self.rebatched_size is None or is_own else len(self._prefetch)

    def __iter__(self) -> Pass:
        if self._is_terminated:
            raise Terminated("this was ended by terminate(): make a new loader or accessor to go over the data again")
        if self._leave_pass("another pass was begun, and there is one buffer for both") and self._repeats_epochs:
            self._prefetch.load_state_dict(self._beginning)
        steps = Pass(iter(self._prefetch))
        if self._repeats_epochs:
            self._beginning = self._prefetch.state_dict()
        self._progress, self._latest = steps.progress, weakref.ref(steps)
        return steps

    def __next__(self) -> Any:
        """The next step of the latest pass, or of a first one."""
        latest = self._latest() if self._latest is not None else None
        if latest is None:
            self._held = latest = iter(self)  # nobody else holds it
        return next(latest)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch's order the next pass has, where the order follows from a seed."""
        if not isinstance(self._source, StepLoader):
            return
        self._leave_pass("another epoch was set")
        self._progress = None
        self._prefetch.close()
        self._source.set_epoch(epoch)
        self._prefetch = self._start()

    def state_dict(self) -> dict[str, Any]:
        """The place of the latest pass: what was handed over, whatever lies ready beyond it."""
        return self._prefetch.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next pass go on where the state was saved."""
        self._leave_pass("a saved state was loaded")
        self._progress = None
        self._prefetch.load_state_dict(state_dict)

    @property
    def loader(self) -> StepLoader:
        """The loader that the buffer is filled from, for its statistics."""
        if not isinstance(self._source, StepLoader):
            raise Error(f"the buffer is filled from {_name(self._source)}, not from a loader")
        return self._source

    def _leave_pass(self, why: str, kind: type[Error] = Error) -> bool:
        """End the latest pass, whoever still has it; says whether it was in the middle."""
        latest = self._latest() if self._latest is not None else None
        if latest is not None:
            latest.leave(kind(f"this pass over the data is over: {why}"))
        return self._progress is not None and self._progress.is_under_way

    def _load_first(self) -> None:
        """Wait for the first step, so that what cannot be loaded is refused here."""
        try:
            is_empty = not self._prefetch.warm_up()
        except BaseException as error:
            self.terminate()
            if not isinstance(error, Exception):
                raise
            log.error("%s", "".join(traceback.format_exception(error)))  # as text: a log must not keep frames alive
            raise StartError(
                f"the worker thread failed to start: the first item of {_name(self._source)} could not be loaded: "
                f"{in_short(error)}. Load it in DataLoaderMode.Sync with num_workers=0 to look into it."
            ) from error
        if is_empty:
            self.terminate()
            raise StartError(f"the worker thread failed to start: {_name(self._source)} does not give a single step")
        for pid in self._pids():
            log.debug("AsynchronousDataAccessor worker process: %d", pid)

    def _pids(self) -> list[int]:
        if isinstance(self._source, StepLoader):
            return self._source.worker_pids()
        pid = self._prefetch.stats().filler_pid
        return [] if pid is None else [pid]


def _request_of(dataset: Any) -> Request | None:
    """What a poptorch loader was asked for; None for any other iterable."""
    if not isinstance(dataset, StepLoader):
        return None
    if dataset.loads_ahead:
        raise Error(
            f"this loader is in mode {dataset.request.mode.name} and loads ahead already: iterate over the loader "
            "itself, or make it with mode=poptorch.DataLoaderMode.Sync"
        )
    return dataset.request


def _own_loader(request: Request, like: TorchLoader[Any], start_method: StartMethod | None) -> StepLoader:
    """A loader for the buffer alone, with a worker process at least: loading in a thread would hold up the model."""
    settings: dict[str, Any] = {"persistent_workers": like.persistent_workers}
    if request.others.get("num_workers") == 0 and "workers" not in request.others:
        settings = {"num_workers": 1, "persistent_workers": True, "worker_init_fn": None}
    if start_method is not None:
        settings["multiprocessing_context"] = start_method
    return StepLoader(request, **settings)


def _name(source: Any) -> str:
    return type(source.dataset if isinstance(source, TorchLoader) else source).__name__
