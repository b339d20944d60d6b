"""One trial in a process of its own, watched from outside.

A trial that runs where the last one ran inherits its memory, its threads and its warm allocator, and a trial that is
killed takes the sweep with it. So each is forked from the measuring process, which holds the dataset and never loads:

    measuring process            trial's process
         fork ──────────────────► warm up: a few batches of a loader of its own
         look at both ◄─ begin ──
              └──── go ─────────► build the loader, iterate, note every wait
         look at memory …
         look at both ◄── end ───  (the iterator and the last batch are still held)
              └──── go ─────────► let go of the loader
                     ◄── result ─

What goes wrong comes back as a Trouble: an exception with the line of the user's code that raised it, a signal's name,
or the time that was not enough. Processes of a trial that was killed are ended too.

In the trial torch computes with one thread, as it does in workers: after a fork its pool of threads is not to be
trusted, and with more threads than idle cores torch's own loader was measured several times slower.
"""

from __future__ import annotations

import gc
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from stoker.bench.blame import trouble_of
from stoker.bench.forked import forked
from stoker.bench.process_tree import ProcessTree
from stoker.bench.runs import Span, Trouble
from stoker.bench.trial import Trial, measure

Model = Callable[[Any], object]
Prepare = Callable[[Path | None], "tuple[Iterable[Any], Model | None]"]
"""Builds the loader, and gives the model. The folder is where spans are noted, or None."""
Tick = Callable[[], object]

_TICK_S = 0.2
_BEGIN, _END = "begin", "end"


@dataclass(frozen=True)
class Outcome:
    """What became of one trial: a trial or a failure, and what it cost."""

    trial: Trial | None = None
    failure: Trouble | None = None
    build_s: float = 0.0
    warmup_s: float = 0.0
    spans: tuple[Span, ...] = ()
    peak_pss_bytes: int = 0
    memory_samples: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Length:
    """How long a trial is: `batches` to time (None: the whole epoch), after `warmup` others."""

    batches: int | None = None
    warmup: int = 0
    timeout_s: float = 600.0


def run_isolated(prepare: Prepare, length: Length, *, note_spans: bool = False, tick: Tick | None = None) -> Outcome:
    """Fork, time one pass, and give what was found; `tick` is called several times a second meanwhile."""
    with forked(_trial_main, prepare, length, note_spans) as (process, pipe, tree):
        return _attend(process, pipe, tree, length.timeout_s, tick or (lambda: None))


def _attend(process: BaseProcess, pipe: Connection, tree: ProcessTree, timeout_s: float, tick: Tick) -> Outcome:
    deadline = time.monotonic() + timeout_s
    look_at = float("inf")
    before_s = used_s = 0.0
    while True:
        tick()
        now = time.monotonic()
        if now > deadline:
            return Outcome(failure=_too_long(timeout_s))
        if now >= look_at:
            tree.glance()
            look_at = time.monotonic() + tree.pause_s
        message = _next_message(process, pipe, min(_TICK_S, max(0.0, look_at - now)))
        if message == _BEGIN:
            tree.look()
            before_s, look_at = tree.cpu_s(), time.monotonic() + tree.pause_s
        elif message == _END:
            tree.look()
            used_s, look_at = tree.cpu_s() - before_s, float("inf")
        elif isinstance(message, Trouble):
            return Outcome(failure=message)
        elif isinstance(message, Outcome):
            peak_bytes, looks = tree.peak_bytes, tree.looks
            return replace(message, peak_pss_bytes=peak_bytes, memory_samples=looks, cpu_s=max(0.0, used_s))
        if message is not None:
            pipe.send("go")


def _next_message(process: BaseProcess, pipe: Connection, timeout_s: float) -> Any:
    """What the trial says within the time, None if nothing, a Trouble if it has ended without a word."""
    try:
        if pipe.poll(timeout_s):
            return pipe.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        return _ended(process.exitcode or 0)
    # Its workers may hold the pipe open after the trial's process has ended, so its end is asked for as well.
    if process.exitcode is not None and not pipe.poll(0):
        return _ended(process.exitcode)
    return None


def _trial_main(prepare: Prepare, length: Length, note_spans: bool, pipe: Connection) -> None:
    """What the trial's process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the measuring process, which then ends this one
    # torch warns of more workers than cores, in every trial; a sweep goes there on purpose, and the records show it.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    answer: Outcome | Trouble
    try:
        with tempfile.TemporaryDirectory(prefix="stoker-spans-") as folder:
            answer = _time(prepare, length, Path(folder) if note_spans else None, pipe)
        if answer.trial is None or not answer.trial.batches:
            answer = Trouble("NoBatch", "the loader gave no batch at all: is the dataset empty?")
    except BaseException as error:
        answer = trouble_of(error)
    pipe.send(answer)


def _time(prepare: Prepare, length: Length, folder: Path | None, pipe: Connection) -> Outcome:
    warmup_s = 0.0
    if length.warmup:
        warmup_s = measure(prepare(None)[0], limit=length.warmup).seconds
        gc.collect()
    _ask(pipe, _BEGIN)
    begun_at = time.perf_counter()
    loader, model = prepare(folder)
    build_s = time.perf_counter() - begun_at
    passed_at = time.perf_counter()
    trial = measure(loader, model=model, limit=length.batches, ending=lambda: _ask(pipe, _END))
    del loader
    gc.collect()  # workers end, and their notes are complete
    return Outcome(trial, None, build_s, warmup_s, _spans(folder, passed_at))


def _spans(folder: Path | None, since_s: float) -> tuple[Span, ...]:
    from stoker.bench.spans import read_spans

    return read_spans(folder, since_s) if folder is not None else ()


def _ask(pipe: Connection, word: str) -> None:
    pipe.send(word)
    pipe.recv()


def _ended(code: int) -> Trouble:
    if code >= 0:
        return Trouble("Ended", f"the trial's process left with status {code} without a result")
    name = signal.Signals(-code).name
    hint = "usually the kernel's out-of-memory killer: try fewer workers, or smaller batches" if code == -9 else ""
    return Trouble("Killed", f"the trial's process was killed by {name}" + (f"; {hint}" if hint else ""))


def _too_long(timeout_s: float) -> Trouble:
    return Trouble("TooLong", f"not finished after {timeout_s:g} s: try fewer --batches, or a longer --timeout")
