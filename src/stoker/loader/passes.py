"""What every pass over a loader has in common, whoever loads.

The generators are drawn from in torch's order: first whatever making the sampler's iterator draws, then the base seed
of the workers, then the samples' order with the first batch. So the same generator gives the same order as torch's
loader.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import torch

from stoker.contracts import EpochNote
from stoker.device import Pinning
from stoker.loader.assemble import Assembly
from stoker.loader.keys import KeyStream
from stoker.loader.progress import Progress
from stoker.loader.stats import LoopClock

if TYPE_CHECKING:
    from stoker.loader.dataloader import DataLoader


class BatchIterator:
    """Iterates once over a loader; with persistent workers, again after each `_reset`."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        begun_ns = time.perf_counter_ns()
        self._lock = threading.Lock()
        self._tally, self._trace = loader._tally, loader._trace
        self._failures = loader._failures
        self._pinning = Pinning(loader.pin_memory, loader.pin_memory_device)
        self._assembly = Assembly(loader)
        self._pool = self._assembly.pool()
        self._owner_pid = os.getpid()
        self._base_seed: int | None = None
        self._loader = weakref.ref(loader)  # which may hold this iterator
        self._clock: LoopClock | None = None  # None where somebody reads ahead of the training loop, and tells it
        self._begin(loader)
        self._start()
        self._begun()
        self._tally.begin_pass(begun_ns)

    def __iter__(self) -> BatchIterator:
        return self

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __next__(self) -> Any:
        if torch._C._autograd._profiler_enabled():
            with torch.autograd.profiler.record_function(f"enumerate(DataLoader)#{type(self).__name__}.__next__"):
                return self._step()
        return self._step()

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")

    def close(self) -> None:
        """Let go whoever loads. Batches that were handed over stay valid."""

    def read_ahead(self) -> LoopClock:
        """Somebody takes batches ahead of the training loop, and will tell this clock when the loop itself waited."""
        clock, self._clock = self._clock, None
        assert clock is not None
        return clock

    @property
    def wants_callers_thread(self) -> bool:
        """Whether loading in a thread beside the training loop would disturb it."""
        return False

    def shape(self) -> dict[str, int]:
        """Slots and batches as they are now, for the statistics."""
        return {"slots": self._pool.made, "slots_leased": self._pool.leased, "ready": 0, "restarts": 0}

    # Names that code written for torch's iterators knows.
    _workers: Any = ()

    def _shutdown_workers(self) -> None:
        self.close()

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """Start the next epoch with the same workers."""
        begun_ns = time.perf_counter_ns()
        with self._lock:
            self._trace = loader._trace
            self._begin(loader)
            self._restart()
            self._begun()
            self._tally.begin_pass(begun_ns)

    def _begin(self, loader: DataLoader[Any]) -> None:
        place = loader._next_place()
        self._assembly.states(place)  # refused before anything is drawn or forgotten
        shared_seed = self._assembly.shared_seed()
        self._index_sampler = loader._index_sampler
        self._keys: KeyStream | None = self._assembly.keys(place.start())
        if self._base_seed is None:  # persistent workers keep the seeds they were started with
            self._base_seed = place.base_seed if place.base_seed is not None else loader._draw_base_seed()
        place.base_seed = self._base_seed
        self._epoch_note = EpochNote(self._assembly.seed_for(self._base_seed), place.epoch, shared_seed)
        self._progress = loader._progress = Progress(
            place,
            self._assembly.workers.processes,
            self._assembly.keeps_workers,
            self._assembly.has_states,
        )
        self._yielded = 0
        self._clock = LoopClock(self._tally, self._trace)
        self._failures.begin_epoch()
        self._length_told = loader._IterableDataset_len_called

    def _heed_news(self) -> None:
        """Before the first batch: a trainer may have said since `iter()` which epoch it is in (see `epochs`)."""
        loader = self._loader()
        place, keys = self._progress.place, self._keys
        told = loader._epochs.heed() if loader is not None else None
        moved = keys.epoch_moved_to() if keys is not None else None
        news = moved if told is None else told
        if loader is None or news is None:
            return
        if moved is None and place.is_in(news):
            place.told = news
        elif place.batches or (keys is not None and keys.changes_with_epoch):
            self._begin_instead(loader, news)
        else:
            place.epoch = place.told = news

    def _begin_instead(self, loader: DataLoader[Any], epoch: int) -> None:
        """Leave the epoch, of which nothing was taken here, for another one."""
        if self._progress.place.batches:  # it was resumed, and the trainer has done with it
            if self._keys is not None:
                self._keys.leave()
            if not self._assembly.keeps_workers:
                self._base_seed = None
        clock = self._clock
        loader._go_to(self._progress.beginning_of(loader._described(epoch), self._keys))
        self._begin(loader)
        self._clock = clock
        self._restart()

    def _begun(self) -> None:
        if self._keys is not None:
            self._keys.begun()

    def _start(self) -> None:
        raise NotImplementedError("each kind of pass starts those who load for it")

    def _restart(self) -> None:
        raise NotImplementedError("each kind of pass begins an epoch again in its own way")

    def _over(self) -> None:
        """The epoch has ended."""

    def _next(self) -> Any:
        raise NotImplementedError("each kind of pass makes its batches")

    def _step(self) -> Any:
        with self._lock:
            begin_ns = time.perf_counter_ns()
            try:
                if not self._yielded:
                    self._heed_news()
                batch = self._next()
            except StopIteration:
                self._progress.finished = True
                self._failures.check_epoch(self._yielded)
                if self._clock is not None:
                    self._clock.ended()
                self._over()
                raise
            if self._clock is not None:
                self._clock.waited(begin_ns, time.perf_counter_ns())
            self._yielded += 1
            if self._length_told is not None and self._assembly.is_iterable:
                self._warn_if_longer(self._length_told)
        return self._pinning(batch) if self._pinning.active else batch

    def _warn_if_longer(self, told: int) -> None:
        if self._yielded <= told:
            return
        text = (
            f"Length of IterableDataset {self._assembly.dataset} was reported to be {told}"
            f"(when accessing len(dataloader)), but {self._yielded} samples have been fetched. "
        )
        if self._assembly.workers.processes > 0:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the "
                "IterableDataset replica at each worker. Please see "
                "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
            )
        warnings.warn(text, stacklevel=4)
