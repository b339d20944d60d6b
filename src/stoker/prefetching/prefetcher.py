"""`stoker.prefetch`: batches of any iterable, made ready in the background.

    batches = stoker.prefetch(loader, ahead=4, at_once=True)
    for batch in batches: ...          # the next pass is being prepared when this one ends

Every `iter(batches)` begins a pass from the source's first batch, whatever became of the pass before; the iterators it
gives are iterators (`iter(it) is it`) and independent of each other. One ring serves pass after pass. It is handed on
when its iterator has come to the end or is gone; if an iterator is still in the middle of its pass when another one is
asked for, the new one gets a ring and a filler of its own.

What may go wrong: a source that gives the same iterator to everybody (a loader with persistent workers) cannot serve
two threads' walks at once, with or without Stoker.
"""

from __future__ import annotations

import copy
import functools
import os
import sys
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from stoker.batches import has_state
from stoker.errors import StateError
from stoker.prefetching.crew_of_one import interrupted, was_closed
from stoker.prefetching.lap import LapState, at_the_beginning
from stoker.prefetching.options import By, PrefetchOptions, StartMethod
from stoker.prefetching.ring import Ring
from stoker.prefetching.stats import PrefetchStats, PrefetchTally
from stoker.prefetching.walking import check_rows, length_of, walkable

_VERSION = 1


class PrefetchIterator:
    """One pass. May be shared by threads: each batch goes to one of them."""

    def __init__(self, ring: Ring, is_spare: bool = False) -> None:
        self._ring = ring
        self.is_over = False
        self._was_interrupted = False
        self.closes_ring = is_spare  # nobody else will go on with the ring

    def __iter__(self) -> PrefetchIterator:
        return self

    def __next__(self) -> Any:
        ring = self._ring
        ring.check_owner()
        with ring.lock:
            if self._was_interrupted:
                raise interrupted()
            if self.is_over:
                raise StopIteration
            try:
                return ring.take()
            finally:
                self._was_interrupted = ring.was_interrupted
                self.is_over = ring.is_over or self._was_interrupted
                if self.is_over and self.closes_ring:
                    ring.close()

    def __getstate__(self) -> Any:
        raise TypeError("an iterator of stoker.prefetch cannot be pickled: its batches are made for this process")


def prefetch(
    iterable: Any,
    *,
    by: By = "thread",
    ahead: int = 3,
    max_bytes: int | None = None,
    batch_size: int | None = None,
    drop_last: bool = False,
    at_once: bool = False,
    across_epochs: bool = True,
    spin: bool = False,
    start_method: StartMethod | None = None,
) -> Prefetcher:
    """Go over `iterable` (a loader, any iterable, or a function that makes an iterator) ahead of the training loop.

    by             "thread", which hands batches over as they are, or "process", which leaves the interpreter lock of
                   the training process alone; batches then are views of shared memory
    ahead          batches made ahead at most
    max_bytes      memory that the batches ahead may take; one is always allowed
    batch_size     combine the rows of all batches anew, to batches of so many rows
    drop_last      leave out the last combined batch if it is short; one for the whole pass
    at_once        begin now; False: with the first `iter()`. Either way nobody waits for a batch here
    across_epochs  at the end of a pass begin to prepare the next one
    spin           look for the next batch all the time instead of blocking: a whole core, for some microseconds
    start_method   of the process: "fork", "forkserver" or "spawn"; None takes the platform's default
    """
    options = PrefetchOptions(by, start_method, ahead, max_bytes, batch_size, drop_last, across_epochs, spin)
    return Prefetcher(iterable, options, at_once)


class Prefetcher:
    """What `stoker.prefetch` gives: an iterable like its source, whose batches are made ready ahead."""

    def __init__(self, source: Any, options: PrefetchOptions, at_once: bool = False) -> None:
        self.options = options
        if "torch" in sys.modules:
            _hide_from_compiling()
        check_rows(source, options.batch_size)
        self.source = source
        self._walkable = walkable(source)
        self._tally = PrefetchTally()
        self._state: LapState | None = None  # loaded, for the next pass
        self._is_closed = False
        self._ring: Ring | None = None  # what the next pass goes on with
        self._latest: weakref.ref[PrefetchIterator] | None = None
        self._forget()
        if at_once:
            self._ring = self._new_ring()

    def __iter__(self) -> PrefetchIterator:
        self._check_open()
        with self._lock:
            self._check_open()
            latest = self._latest() if self._latest is not None else None
            ring, in_use = self._ring, latest is not None and not latest.is_over
            if ring is None or ring.is_closed or in_use or self._state is not None:
                self._let_be(ring, latest if in_use else None)
                ring = self._ring = self._new_ring()
            ring.begin()
            iterator = PrefetchIterator(ring)
            self._latest = weakref.ref(iterator)
            return iterator

    def warm_up(self) -> bool:
        """Wait for the first batch, and say whether there is one; what the source raises is raised here.

        Unless loading has begun before, no more than this batch is made until a pass begins.
        """
        self._check_open()
        with self._lock:
            if self._ring is None:
                self._ring = self._new_ring(ahead=1)
            return self._ring.has_first()

    def __len__(self) -> int:
        """Batches of a pass. With `batch_size` the source has to be a loader that knows its samples."""
        return length_of(self.source, self.options.batch_size, self.options.drop_last)

    def state_dict(self) -> dict[str, Any]:
        """The place of the latest pass in the source: what was handed over, whatever has been prefetched since."""
        self._check_open()
        with self._lock:
            state, ring = self._state, self._ring
        if state is None and ring is not None:
            state = ring.state()  # may wait for the first batch
        if state is None:
            own = self.source.state_dict() if has_state(self.source) else None
            state = at_the_beginning(own)
        return {"version": _VERSION, **copy.deepcopy(state)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next pass go on where the state was saved."""
        self._check_open()
        state = _read_state(state_dict, self.options.batch_size)
        with self._lock:
            latest = self._latest() if self._latest is not None else None
            self._let_be(self._ring, latest if latest is not None and not latest.is_over else None)
            self._ring, self._state = None, state

    def stats(self) -> PrefetchStats:
        """Who waited for whom so far; `print(batches.stats())` is a readable block."""
        ring = self._ring if os.getpid() == self._owner_pid else None
        ready, pid = (ring.ready, ring.pid) if ring is not None else (0, None)
        return self._tally.stats(ready, self.options.ahead, pid)

    def close(self) -> None:
        """Let every filler go, and wait until it is gone. Batches that were handed over stay valid."""
        self._close(now=False)

    def terminate(self) -> None:
        """Like `close`, without letting a process finish the batch it is making."""
        self._close(now=True)

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> Any:
        raise TypeError("what stoker.prefetch gives cannot be pickled: make it in the process that uses it")

    def _new_ring(self, ahead: int | None = None) -> Ring:
        check_rows(self.source, self.options.batch_size)  # again: ranks may be known only by now
        state, self._state = self._state, None
        ring = Ring(self._walkable, self.options, state, self._tally, ahead)
        self._rings.add(ring)
        return ring

    def _let_be(self, ring: Ring | None, user: PrefetchIterator | None) -> None:
        """The prefetcher goes on with another ring: this one ends with the iterator that uses it, or now."""
        if user is not None:
            user.closes_ring = True
        elif ring is not None:
            ring.close()

    def _close(self, now: bool) -> None:
        if os.getpid() != self._owner_pid:
            return
        with self._lock:
            self._is_closed = True
            rings = list(self._rings)
        for ring in rings:
            ring.close(now)

    def _check_open(self) -> None:
        if self._is_closed:
            raise was_closed()
        if os.getpid() != self._owner_pid:  # forked: the parent's fillers are not ours, nor whoever held the lock
            self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may close
        self._owner_pid = os.getpid()
        self._ring, self._latest = None, None
        self._rings: weakref.WeakSet[Ring] = weakref.WeakSet()


def _read_state(state: Mapping[str, Any], batch_size: int | None) -> LapState:
    if not isinstance(state, Mapping) or not {"version", "items", "rows"} <= set(state):
        raise StateError(
            "this is no state of stoker.prefetch: it should be what its state_dict() gave, with 'version', 'items' and "
            f"'rows', but it is {sorted(state) if isinstance(state, Mapping) else type(state).__name__}"
        )
    if state["version"] != _VERSION:
        raise StateError(f"this state has version {state['version']}, and this Stoker reads version {_VERSION}")
    if state["rows"] and batch_size is None:
        raise StateError(
            f"this state is {state['rows']} rows into a batch of the source, because batches were combined when it was "
            "saved. Give batch_size, the same or another, to go on from there."
        )
    return {"items": copy.deepcopy(state["items"]), "rows": state["rows"]}


@functools.cache
def _hide_from_compiling() -> None:
    from stoker.loader.dynamo import hide

    hide(Prefetcher, "__iter__", "__len__", "close")
    hide(PrefetchIterator, "__iter__", "__next__")
