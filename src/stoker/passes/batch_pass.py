"""What every pass over a loader has in common, whoever loads.

The generators are drawn from in torch's order: first whatever making the sampler's iterator draws, then the base seed
of the workers, then the samples' order with the first batch. So the same generator gives the same order as torch's
loader.
"""

from __future__ import annotations

import copy
import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from stoker.batches import Delivery, InlineBatches
from stoker.contracts import EpochNote
from stoker.device import Pinning
from stoker.errors import PassInterrupted, StokerError
from stoker.passes.assemble import Assembly
from stoker.passes.steps import steps_for
from stoker.resume.cursor import Progress
from stoker.sampling.reserves import reserves_for
from stoker.sampling.streams import KeyStream
from stoker.watch.chores import Chores
from stoker.watch.loop_clock import LoopClock
from stoker.watch.stats import Stats
from stoker.watch.tally import PassTally
from stoker.watch.trace import PassTrace

if TYPE_CHECKING:
    from stoker.loader.dataloader import DataLoader

    TorchIterator = object
else:  # for `isinstance` only: Lightning leaves torch's iterators out when it pickles a loader under way
    from torch.utils.data.dataloader import _BaseDataLoaderIter as TorchIterator


class BatchIterator(TorchIterator):
    """Iterates once over a loader; with persistent workers, again after each `_reset`."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._lock = threading.Lock()
        self._tally, self._clock = loader._tally, loader._tally.clock
        begun_ns = self._clock()
        self._failures = loader._failures
        self._pinning = Pinning(loader.pin_memory, loader.pin_memory_device)
        self._assembly = Assembly(loader)
        self._pool = self._assembly.pool()
        self._owner_pid = os.getpid()
        self._base_seed: int | None = None
        self._loader = weakref.ref(loader)  # which may hold this iterator
        # What moves the place on when the batches taken since the last step are handed over: nothing moves it before,
        # so that a state is exact whatever comes out of `next()`.
        self._behind: list[Callable[[], None]] = []
        # What is said by a pass that was ended in the middle of a step. Never the exception itself: its traceback holds
        # frames that hold the pass, or whoever waits for it in another thread.
        self._broken: StokerError | None = None
        self._may_go_on = False  # the error at hand is a sample's, or of waiting: the pass stands where it should
        self._begin(loader)
        self._start()
        self._begun()
        self._chores = Chores(loader._listeners)
        self._begin_count(begun_ns, loader)

    def __iter__(self) -> BatchIterator:
        return self

    def __len__(self) -> int:
        batches = len(self._index_sampler)
        return batches if self._planned is None else self._planned.steps_of(batches)

    def __next__(self) -> Any:
        if torch._C._autograd._profiler_enabled():
            with torch.autograd.profiler.record_function(f"enumerate(DataLoader)#{type(self).__name__}.__next__"):
                return self._step()
        return self._step()

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")

    def close(self) -> None:
        """Let go whoever loads. Batches that were handed over stay valid."""
        self._count.closed = True
        self._chores.end()

    def leave(self) -> None:
        """Nobody waits for the batch any more that another thread is asking for: let that thread stop waiting."""

    def read_ahead(self) -> LoopClock:
        """Somebody takes batches ahead of the training loop, and will tell this clock when the loop itself waited."""
        self._is_read_ahead = True
        return LoopClock(self)

    @property
    def wants_callers_thread(self) -> bool:
        """Whether loading in a thread beside the training loop would disturb it."""
        return False

    def stats(self, latest_steps: int) -> Stats:
        """The loader's statistics now, without a look at memory."""
        lanes, pool = max(1, self._assembly.workers.lanes), self._pool
        slots = {"slots": pool.made, "slots_in_use": pool.in_use, "slots_leased": pool.leased}
        return self._tally.stats(lanes, latest_steps, failures=len(self._failures.listed), **slots)

    def facts(self) -> dict[str, Any] | None:
        """What `stoker top` shows of this loader, beside its numbers; None where it should not be shown."""
        if torch.utils.data.get_worker_info() is not None:
            return None
        of = self._assembly
        made_of = {"dataset": type(of.dataset).__name__, "batch_size": of.batch_size}
        return {"loader": self._tally.number, **made_of, "workers": of.workers.processes, "lanes": of.workers.lanes}

    def pids(self) -> list[int]:
        """The processes that load for this one."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    _maker: InlineBatches | Delivery  # of the batches, set where a pass starts
    _count: PassTally
    _trace: PassTrace | None
    _is_read_ahead: bool  # somebody else tells when the training loop waits

    # Names that code written for torch's iterators knows.
    _workers: Any = ()

    @property
    def _num_yielded(self) -> int:
        return self._progress.place.batches

    def _shutdown_workers(self) -> None:
        self.close()

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """Start the next epoch with the same workers."""
        begun_ns = self._clock()
        with self._lock:
            if self._broken is not None:
                self.close()
            self._begin(loader)
            self._restart()
            self._broken = None
            self._begun()
            self._begin_count(begun_ns, loader)

    def _begin_count(self, begun_ns: int, loader: DataLoader[Any]) -> None:
        workers = 0 if self._assembly.is_inline else max(1, self._assembly.workers.processes)
        self._count = self._tally.begin_pass(begun_ns, self, workers)
        self._tally.memory.begin(begun_ns, 1 + self._assembly.workers.processes)
        self._due_ns, self._due_step = self._chores.begin(self)
        open_trace = loader._trace if loader._trace is not None and not loader._trace.closed else None
        self._trace = open_trace.begin_pass(self._count) if open_trace is not None else None
        self._is_read_ahead = False
        self._contents: deque[tuple[int, int]] = deque()  # samples and bytes of batches that were read ahead

    def _begin(self, loader: DataLoader[Any]) -> None:
        place = loader._next_place()
        self._assembly.states(place)  # refused before anything is drawn or forgotten
        shared_seed = self._assembly.shared_seed()
        self._index_sampler = loader._index_sampler
        self._keys: KeyStream | None = self._assembly.keys(place.start())
        if self._base_seed is None:  # persistent workers keep the seeds they were started with
            self._base_seed = place.base_seed if place.base_seed is not None else loader._draw_base_seed()
        place.base_seed = self._base_seed
        seed = self._assembly.seed_for(self._base_seed)
        self._epoch_note = EpochNote(seed, place.epoch, shared_seed, self._assembly.spread)
        self._reserves = reserves_for(loader, self._keys, self._epoch_note)
        self._progress = loader._progress = Progress(
            place,
            self._assembly.workers.processes,
            self._assembly.keeps_workers,
            self._assembly.has_states,
        )
        self._planned = loader._planned
        self._steps = steps_for(self._planned, loader.sampler, place)
        if self._planned is not None and self._planned.is_stream:
            self._progress.full_rows = self._planned.plan.combined_batch
        self._yielded = 0
        self._behind.clear()
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
        # What is here for statistics is written out instead of called: it is to cost less than a hundredth of a batch.
        with self._lock:
            ahead, count, begin_ns = self._is_read_ahead, self._count, 0
            if not ahead:
                begin_ns = count.asked_ns = self._clock()
                if begin_ns >= self._due_ns or self._yielded >= self._due_step:
                    self._do_chores(begin_ns)
            try:
                if self._broken is not None:
                    raise copy.copy(self._broken)
                if not self._yielded:
                    self._heed_news()
                batch = self._next() if self._steps is None else self._steps.step(self._next)
                if self._pinning.active:
                    batch = self._pinning(batch)
                self._yielded += 1
                if self._length_told is not None and self._assembly.is_iterable:
                    self._warn_if_longer(self._length_told)
                self._move_on()
            except BaseException as error:
                self._broke_off(begin_ns, error)
                raise
            made = self._maker
            if ahead:
                self._contents.append((made.samples, made.size_bytes))
            else:
                end_ns = self._clock()
                log = count.log
                log += (begin_ns, end_ns, made.samples, made.size_bytes)
                if self._trace is not None:
                    self._trace.wait(begin_ns, end_ns, {"batch": self._yielded - 1, "samples": made.samples})
        return batch

    def _move_on(self) -> None:
        while self._behind:
            self._behind.pop(0)()

    def _broken_by(self, error: BaseException) -> StokerError:
        """What a pass that was broken says whenever it is asked for more."""
        if isinstance(error, StokerError):
            return copy.copy(error)
        return PassInterrupted(
            f"this pass was interrupted by {type(error).__name__} in the middle of next(), after {self._yielded} "
            "batches were handed over, and cannot go on. To go on after the last of them: "
            "loader.load_state_dict(loader.state_dict()), and iterate again."
        )

    def begin_step(self) -> int:
        """The training loop asks whoever reads ahead for a batch: does chores that are due, gives when it asked."""
        begin_ns = self._count.asked_ns = self._clock()
        if begin_ns >= self._due_ns or self._yielded >= self._due_step:
            self._do_chores(begin_ns)
        return begin_ns

    def end_step(self, begin_ns: int, error: BaseException) -> None:
        """The training loop got none: an error, or the end."""
        end_ns = self._clock()
        self._count.waited(begin_ns, end_ns)
        if self._trace is not None and not self._count.over:
            self._trace.end(begin_ns, end_ns, error)
        self._count.over |= isinstance(error, StopIteration)

    def _do_chores(self, now_ns: int) -> None:
        """Do what is due. The training loop waits meanwhile: the time is a part of its wait for the batch."""
        try:
            self._chores.do(self, self._yielded, now_ns)
        except BaseException:  # a listener's: the loop does not wait any more
            self._count.waited(now_ns, self._clock())
            raise
        finally:
            self.plan()

    def plan(self) -> None:
        """Find out when there are chores again."""
        self._due_ns, self._due_step = self._chores.due(self, self._yielded)

    def _broke_off(self, begin_ns: int, error: BaseException) -> None:
        """There was no batch: an error, or the end."""
        try:
            if isinstance(error, StopIteration):
                if not self._count.closed:  # else it was left early: its place is where it was left
                    self._move_on()
                    self._progress.finished = True
                    self._failures.check_epoch(self._yielded)
                self._over()
                self._chores.end()
            elif self._broken is None and not self._may_go_on:
                self._broken = self._broken_by(error)
            self._may_go_on = False
        finally:
            if not self._is_read_ahead:
                self.end_step(begin_ns, error)

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
