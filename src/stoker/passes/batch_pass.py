"""What every pass over the data has in common, whoever loads.

A pass has its setup, which does not change, and the loader's course, which outlives it; it never sees the loader.

The generators are drawn from in torch's order: first whatever making the sampler's iterator draws, then the base seed
of the workers, then the samples' order with the first batch. So the same generator gives the same order as torch's
loader.
"""

from __future__ import annotations

import copy
import functools
import os
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from stoker.batches import DROPPED, Delivery, InlineBatches
from stoker.device import Pinning
from stoker.errors import PassInterrupted, StokerError, TooManyFailures
from stoker.passes.assemble import Assembly
from stoker.passes.course import Course
from stoker.passes.here import Here
from stoker.passes.steps import steps_for
from stoker.resume.cursor import Cursor
from stoker.sampling.streams import Draw, KeyStream, draw_seed
from stoker.watch.loop_clock import Contents, LoopClock, LoopEvents
from stoker.watch.watch import PassWatch

if TYPE_CHECKING:
    TorchIterator = object
else:  # for `isinstance` only: Lightning leaves torch's iterators out when it pickles a loader under way
    from torch.utils.data.dataloader import _BaseDataLoaderIter as TorchIterator


class BatchPass(TorchIterator):
    """Iterates once over the data; with persistent workers, again after each `_reset`."""

    _maker: InlineBatches | Delivery  # of the batches, set where a pass starts
    _loop: LoopEvents  # told when somebody asks for a batch, and what came of it

    def __init__(self, assembly: Assembly, course: Course) -> None:
        begun_ns = course.watch.clock()
        self._lock = threading.Lock()
        self._assembly, self._setup = assembly, assembly.setup
        self._course, self._failures = course, course.failures
        self._pinning = Pinning(self._setup.pin_memory, self._setup.pin_memory_device)
        self._pool = self._assembly.first_pool()
        self._owner_pid = os.getpid()
        self._base_seed: int | None = None
        # What moves the place on when the batches taken since the last step are handed over: nothing moves it before,
        # so that a state is exact whatever comes out of `next()`.
        self._behind: list[Callable[[], None]] = []
        # What is said by a pass that was ended in the middle of a step. Never the exception itself: its traceback holds
        # frames that hold the pass, or whoever waits for it in another thread.
        self._broken: StokerError | None = None
        self._may_go_on = False  # the error at hand is a sample's, or of waiting: the pass stands where it should
        self._begin()
        self._start()
        self._begun(begun_ns)

    def __iter__(self) -> BatchPass:
        return self

    def __len__(self) -> int:
        batches = len(self._setup.data.index_sampler)
        return batches if self._setup.planned is None else self._setup.planned.steps_of(batches)

    def __next__(self) -> Any:
        if torch._C._autograd._profiler_enabled():
            with torch.autograd.profiler.record_function(f"enumerate(DataLoader)#{type(self).__name__}.__next__"):
                return self._step()
        return self._step()

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")

    def close(self) -> None:
        """Let go whoever loads. Batches that were handed over stay valid."""
        self._watch.let_go()

    # For whoever takes batches ahead of the training loop (see `stoker.contracts.ReadAhead`).

    def leave(self) -> None:
        """Nobody waits for the batch any more that another thread is asking for: let that thread stop waiting."""

    def read_ahead(self) -> LoopClock:
        """Somebody takes batches ahead of the training loop, and will tell this clock when the loop itself waited."""
        contents = Contents()
        self._loop = contents
        return LoopClock(self._watch, contents)

    @property
    def wants_callers_thread(self) -> bool:
        """Whether loading in a thread beside the training loop would disturb it."""
        return False

    # For the watch.

    def gauges(self) -> dict[str, int]:
        """Those of the statistics that are read off and not counted."""
        pool = self._pool
        slots = {"slots": pool.made, "slots_in_use": pool.in_use, "slots_leased": pool.leased}
        return {**slots, "lanes": self._assembly.workers.lanes, "failures": len(self._failures.listed)}

    def facts(self) -> dict[str, Any] | None:
        """What `stoker top` shows of this loader, beside its numbers; None where it should not be shown."""
        if torch.utils.data.get_worker_info() is not None:
            return None
        of = self._assembly
        made_of = {"dataset": type(of.dataset).__name__, "batch_size": of.batch_size}
        number = self._course.watch.tally.number
        return {"loader": number, **made_of, "workers": of.workers.processes, "lanes": of.workers.lanes}

    def pids(self) -> list[int]:
        """The processes that load for this one."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    # Names that code written for torch's iterators knows.

    _workers: Any = ()

    @property
    def _num_yielded(self) -> int:
        return self._cursor.place.batches

    def _shutdown_workers(self) -> None:
        self.close()

    def _reset(self, loader: object, first_iter: bool = False) -> None:
        """Start the next epoch with the same workers."""
        begun_ns = self._course.watch.clock()
        with self._lock:
            if self._broken is not None:
                self.close()
            self._watch.end()  # of a pass that was left
            self._begin()
            self._restart()
            self._broken = None
            self._begun(begun_ns)

    # A pass begins.

    def _begin(self) -> None:
        place = self._course.next_place()
        self._assembly.states(place)  # refused before anything is drawn or forgotten
        shared_seed = self._assembly.shared_seed()
        self._keys: KeyStream | None = self._assembly.keys(place.start())
        if self._base_seed is None:  # persistent workers keep the seeds they were started with
            drawn = place.base_seed
            self._base_seed = draw_seed(self._setup.generator) if drawn is None else drawn
        place.base_seed = self._base_seed
        self._epoch_note = self._assembly.note(place, self._base_seed, shared_seed)
        self._reserves = self._assembly.reserves(self._keys, self._epoch_note)
        self._cursor: Cursor = self._assembly.cursor(place)
        self._steps = steps_for(self._setup.planned, self._setup.data.sampler, place)
        self._asked_for = place.batches  # batches of this epoch, so far
        self._given_before = set(place.ahead)  # out of turn, before the run was resumed
        self._yielded = 0
        self._behind.clear()
        self._length_told = self._course.length_told
        self._course.begun(self._cursor)

    def _begun(self, begun_ns: int) -> None:
        """Whoever loads is loading."""
        if self._keys is not None:
            self._keys.begun()
        processes = self._assembly.workers.processes
        workers = 0 if self._assembly.is_inline else max(1, self._assembly.most_processes)
        self._watch: PassWatch = self._course.watch.begin_pass(self, begun_ns, workers, processes)
        self._loop = self._watch

    def _heed_news(self) -> None:
        """Before the first batch: a trainer may have said since `iter()` which epoch it is in (see `epochs`)."""
        place, keys = self._cursor.place, self._keys
        told = self._course.epochs.heed()
        moved = keys.epoch_moved_to() if keys is not None else None
        news = moved if told is None else told
        if news is None:
            return
        if moved is None and place.is_in(news):
            place.told = news
        elif place.batches or (keys is not None and keys.changes_with_epoch):
            self._begin_instead(news)
        else:
            place.epoch = place.told = news

    def _begin_instead(self, epoch: int) -> None:
        """Leave the epoch, of which nothing was taken here, for another one."""
        if self._cursor.place.batches:  # it was resumed, and the trainer has done with it
            if self._keys is not None:
                self._keys.leave()
            if not self._assembly.keeps_workers:
                self._base_seed = None
        self._course.go_to(self._cursor.beginning_of(self._course.data.beginning(epoch), self._keys))
        self._begin()
        self._restart()

    def _start(self) -> None:
        raise NotImplementedError("each kind of pass starts those who load for it")

    def _restart(self) -> None:
        raise NotImplementedError("each kind of pass begins an epoch again in its own way")

    def _over(self) -> None:
        """The epoch has ended."""

    def _next(self) -> Any:
        raise NotImplementedError("each kind of pass makes its batches")

    def _draw(self) -> Draw | None:
        """The keys of the next batch that was not handed over before; None at the end of the stream."""
        assert self._keys is not None  # iterable datasets have none
        while True:
            draw = next(self._keys, None)
            self._asked_for += 1
            if draw is None or self._asked_for - 1 not in self._given_before:
                return draw
            self._cursor.passed_in_stream(self._asked_for - 1, draw.end, draw.state)

    def _draw_here(self) -> Draw | None:
        """The same for a batch that is made at once: when it is handed over, the place moves past it."""
        draw = self._draw()
        if draw is not None:
            past = functools.partial(self._cursor.passed_in_stream, self._asked_for - 1, draw.end, draw.state)
            self._behind.append(past)
        return draw

    def _make_here(self, here: Here, draw: Draw, number: int) -> Any:
        """A batch made in this thread, the epoch's `number`-th; DROPPED if nothing is left of it."""
        try:
            batch = here.make(draw, self._watch)
        except TooManyFailures:
            raise
        except Exception:  # of a sample: as with torch's loader, the next batch may be asked for
            self._may_go_on = True
            raise
        if batch is not DROPPED:
            if self._steps is not None:
                self._steps.told(number, len(draw.keys), None, here.lost)
            self._failures.seen += len(draw.keys)
        return batch

    # A step.

    def _step(self) -> Any:
        with self._lock:
            self._loop.asked()
            try:
                if self._broken is not None:
                    raise copy.copy(self._broken)
                if not self._yielded:
                    self._heed_news()
                batch = self._next() if self._steps is None else self._steps.step(self._next)
                if self._pinning.active:
                    batch = self._pinning(batch)
                self._yielded += 1
                if self._length_told is not None:
                    self._warn_if_longer(self._length_told)
                self._move_on()
            except BaseException as error:
                self._broke_off(error)
                raise
            self._loop.got(self._maker.samples, self._maker.size_bytes)
        return batch

    def _move_on(self) -> None:
        behind = self._behind
        while behind:
            behind.pop(0)()

    def _broke_off(self, error: BaseException) -> None:
        """There was no batch: an error, or the end."""
        try:
            if isinstance(error, StopIteration):
                if not self._watch.count.closed:  # else it was left early: its place is where it was left
                    self._move_on()
                    self._cursor.finished = True
                    self._failures.check_epoch(self._yielded)
                self._over()
                self._watch.end()
            elif self._broken is None and not self._may_go_on:
                self._broken = self._broken_by(error)
            self._may_go_on = False
        finally:
            self._loop.missed(error)

    def _broken_by(self, error: BaseException) -> StokerError:
        """What a pass that was broken says whenever it is asked for more."""
        if isinstance(error, StokerError):
            return copy.copy(error)
        return PassInterrupted(
            f"this pass was interrupted by {type(error).__name__} in the middle of next(), after {self._yielded} "
            "batches were handed over, and cannot go on. To go on after the last of them: "
            "loader.load_state_dict(loader.state_dict()), and iterate again."
        )

    def _warn_if_longer(self, told: int) -> None:
        if self._yielded <= told or not self._assembly.is_iterable:
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
