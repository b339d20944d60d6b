"""Batches on the device when the step asks: a thread that reads ahead of the training loop.

    loader ──next()──► thread ──copies.start()──► belt, at most `depth` batches ──copies.hand_over()──► training loop

The first batch is taken in the training loop's own thread, before the reading thread starts: samplers draw an epoch's
order from torch's generators with their first batch, and must draw at the same moment as without reading ahead.

What may go wrong, and what is promised:

- A state must tell what the loop was given, not what was read ahead. The loader is asked for its state after every
  batch that is read, and the answer travels with the batch.
- An error of the loader is raised where its batch would have come, and the loop may go on after it, as it may with
  the loader itself.
- Whoever leaves a pass early, by `break`, `close`, or dropping it, ends the thread: it holds nothing of the pass, and
  is waited for. A loader that waits for its workers is told to stop waiting; a thread that is itself in the middle of
  a sample is waited for a second, and ends after it. The same happens when the interpreter exits.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from stoker.contracts import ReadAhead, TellsOfLoop
from stoker.device.copies import Copied, Copies
from stoker.errors import PassInterrupted
from stoker.interrupts import interrupts_kept

_PATIENCE_S = 1.0  # for a thread in the middle of a sample, which nothing can stop


@dataclass
class LatestState:
    """The state after the batch that was handed over last: written by a pass, read by whoever is asked for a state."""

    state: Any = None
    error: Exception | None = None  # why the loader had no state to tell
    is_over: bool = False


@dataclass
class _Item:
    """What reading one batch gave: the batch, or an error, or neither at the end; and the loader's state after it."""

    copied: Copied | None = None
    error: BaseException | None = None
    state: Any = None
    no_state: Exception | None = None

    @property
    def is_last(self) -> bool:
        return self.copied is None and not isinstance(self.error, Exception)


@dataclass
class AheadReader:
    """Takes batches from a loader's iterator and begins to copy them."""

    batches: Iterator[Any]
    copies: Copies
    state: Callable[[], Any] | None  # the loader's `state_dict`, if it has one

    def read(self) -> _Item:
        item = _Item()
        try:
            batch = next(self.batches)
        except StopIteration:
            return item
        except Exception as error:
            item.error = error
        self._ask_state(item)
        if item.error is None:
            try:
                item.copied = self.copies.start(batch)
            except Exception as error:
                item.error = error
        return item

    def _ask_state(self, item: _Item) -> None:
        try:
            item.state = self.state() if self.state is not None else None
        except Exception as error:  # no reason to stop, as long as nobody asks
            item.no_state = error.with_traceback(None)


@dataclass
class _Belt:
    """What the reading thread and the pass share; neither holds the other."""

    depth: int
    ready: deque[_Item] = field(default_factory=deque)
    changed: threading.Condition = field(default_factory=threading.Condition)
    is_stopped: bool = False
    thread: threading.Thread | None = None
    leave: Callable[[], None] | None = None  # tells the loader that nobody waits for its batch any more

    def wait_for_room(self) -> bool:
        """Block until there is room for one more; False when nobody wants any."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_stopped or len(self.ready) < self.depth)
            return not self.is_stopped

    def put(self, item: _Item) -> None:
        with self.changed:
            self.ready.append(item)
            self.changed.notify_all()

    def take(self) -> _Item | None:
        """The next one; None if the pass was closed meanwhile."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_stopped or self.ready)
            item = self.ready.popleft() if self.ready else None
            self.changed.notify_all()
            return item

    def stop(self) -> None:
        with self.changed:
            self.is_stopped = True
            self.changed.notify_all()


class _Unknowing:
    """In the place of an iterator of somebody else's, which need not know that it is read ahead."""

    wants_callers_thread = False

    def read_ahead(self) -> TellsOfLoop:
        return self

    def leave(self) -> None:
        """Nobody can be told."""

    def asked(self) -> None: ...

    def got(self) -> None: ...

    def missed(self, error: BaseException) -> None: ...


class DevicePass:
    """One pass over a loader, its batches on the device."""

    def __init__(self, reader: AheadReader, depth: int, handed: LatestState) -> None:
        self._reader: AheadReader | None = reader
        self._copies, self._handed = reader.copies, handed
        knows = reader.batches if isinstance(reader.batches, ReadAhead) else _Unknowing()
        self._loop = knows.read_ahead()
        # Some loaders set the global generators while they load: never beside a training loop that draws from them.
        self._is_threaded = depth > 0 and not knows.wants_callers_thread
        self._belt = _Belt(max(1, depth))
        self._lock = threading.Lock()
        self._broken: str | None = None  # what has ended the pass in the middle of a step
        self._close = weakref.finalize(self, _stop, os.getpid(), self._belt, self._copies)

    def __iter__(self) -> DevicePass:
        return self

    def __next__(self) -> Any:
        with self._lock:
            self._loop.asked()
            try:
                batch = self._next_batch()
            except BaseException as error:
                self._loop.missed(error)
                raise
            self._loop.got()
            return batch

    def _next_batch(self) -> Any:
        if self._broken is not None:
            raise PassInterrupted(
                f"this pass was interrupted by {self._broken} in the middle of next(), and cannot go on. To go on "
                "after the last batch that was handed over: loader.load_state_dict(loader.state_dict()), and iterate "
                "again."
            )
        try:
            item = self._next_item()
            batch = self._copies.hand_over(item.copied) if item is not None and item.copied is not None else None
        except BaseException as error:  # a signal's: an item may be between the belt and the loop
            self._broken = type(error).__name__
            raise
        if item is None:
            raise StopIteration
        if item.is_last:
            self._handed.is_over = item.error is None
            self.close()
        if item.copied is None:
            raise StopIteration if item.error is None else _taken(item)
        self._handed.state, self._handed.error = item.state, item.no_state
        return batch

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")

    def close(self) -> None:
        """End reading ahead. Batches that were handed over stay valid."""
        self._close()
        self._reader = None  # lets the loader's iterator go

    def _next_item(self) -> _Item | None:
        if self._reader is None:
            return None
        if self._belt.thread is not None:
            item = self._belt.take()
        else:
            item = self._reader.read()
            if self._is_threaded and not item.is_last:
                self._start(self._reader)
        return item

    def _start(self, reader: AheadReader) -> None:
        self._belt.leave = reader.batches.leave if isinstance(reader.batches, ReadAhead) else None
        thread = threading.Thread(target=_read_ahead, args=(reader, self._belt), name="stoker-device", daemon=True)
        self._belt.thread = thread
        thread.start()


def _read_ahead(reader: AheadReader, belt: _Belt) -> None:
    """What the thread does."""
    try:
        while belt.wait_for_room():
            try:
                item = reader.read()
            except BaseException as error:  # not an Exception: the loop is told, and it is the last thing it gets
                item = _Item(error=error)
            is_last = item.is_last
            belt.put(item)
            if is_last:
                return
            del item  # or the thread would hold a batch while it waits
    finally:
        reader.copies.close()


def _stop(owner_pid: int, belt: _Belt, copies: Copies) -> None:
    """End the thread, and hold host memory until the device has read it."""
    if os.getpid() != owner_pid:
        return  # a forked child: the thread is not there, and the device is not its own
    with interrupts_kept():
        belt.stop()
        if belt.thread is threading.current_thread():  # the last reference was dropped in it: it ends with this
            return
        leave, belt.leave = belt.leave, None
        if belt.thread is not None:
            if leave is not None and belt.thread.is_alive():
                leave()
            del leave  # or this frame would hold the loader's pass
            belt.thread.join(_PATIENCE_S)
        belt.ready.clear()
        copies.close()


def _taken(item: _Item) -> BaseException:
    """The item's error, no longer held by the item: an error that is raised holds the frames that hold it."""
    error, item.error = item.error, None
    assert error is not None
    return error
