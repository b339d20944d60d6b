"""A look at something in a process of its own, so that looking changes nothing.

A dataset that is asked for samples may open files, fill a cache, or draw from generators. What a loader's workers do in
their processes does not show in the training process, so neither should a look into the dataset: it happens in a
forked child, as a worker's loading does, and only its result comes back. Where a child cannot be forked, the function
is called here instead.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from stoker.bench.blame import trouble_of
from stoker.bench.forked import forked
from stoker.bench.runs import Trouble

T = TypeVar("T")
_GRACE_S = 2.0


def aside(function: Callable[[Callable[[T], None]], T], timeout_s: float) -> T | Trouble:
    """What the function gives, or why it gave nothing; its result travels by pickle.

    It may give what it has so far to be kept, which counts if it is not finished in time.
    """
    if not hasattr(os, "fork"):
        return _attempt(lambda: function(lambda found: None))
    with forked(_main, function) as (process, pipe, _):
        until_s = time.monotonic() + timeout_s
        found: T | Trouble = _result(pipe, timeout_s)
        if not isinstance(found, Trouble) and time.monotonic() < until_s:
            process.join(_GRACE_S)  # let it go by itself: its loader's workers may hold what others wait for
        return found


def _result(pipe: Connection, timeout_s: float) -> Any:
    until_s = time.monotonic() + timeout_s
    kept: Any = None
    while pipe.poll(max(0.0, until_s - time.monotonic())):
        try:
            is_last, found = pipe.recv()
        except (EOFError, ConnectionResetError):
            return kept if kept is not None else Trouble("Ended", "the process that looked ended without a word")
        if is_last:
            # What raised in the end does not undo what was seen before.
            return kept if kept is not None and isinstance(found, Trouble) else found
        kept = found
    return kept if kept is not None else Trouble("TooLong", f"not finished after {timeout_s:.3g} s")


def _main(function: Callable[[Callable[[Any], None]], Any], pipe: Connection) -> None:
    pipe.send((True, _attempt(lambda: function(lambda found: pipe.send((False, found))))))


def _attempt(function: Callable[[], T]) -> T | Trouble:
    try:
        return function()
    except Exception as error:  # the user's dataset or collate_fn, which may raise anything
        return trouble_of(error)
