"""Every exception Stoker raises of its own, and how a worker's exception becomes one of the training process.

    StokerError
    ├── WorkerDied        (RuntimeError)   a worker process ended without being asked to
    ├── WorkerTimeout     (RuntimeError)   no batch came within `timeout`
    ├── SlotMemoryError   (MemoryError)    no memory for a slot
    ├── TooManyFailures   (RuntimeError)   more samples failed than the budget allows
    ├── PassInterrupted   (RuntimeError)   an exception in the middle of `next()` has ended the pass
    ├── UnevenBatch       (ValueError)     batches whose rows cannot be combined
    ├── StateError        (ValueError)     a saved state that cannot be read
    ├── TunedError        (ValueError)     a file of tuned settings that cannot be used
    ├── MissingExtra      (ImportError)    a package that one of Stoker's extras brings is not installed
    └── ResumeMismatch    (ValueError)     a saved state of other data, or another order
        └── WorkersMismatch  (AssertionError)   of another number of workers, where each has a state of its own

An error of the user's own code (a dataset, a `collate_fn`) is not wrapped: it is raised again with its own type, as
torch's loader does, and carries the worker's traceback in its text. Errors keep their data as attributes and survive
pickling: `__init__` takes those data by keyword and `__reduce__` hands them on.
"""

from __future__ import annotations

import functools
import pickle
import signal
import traceback
from dataclasses import dataclass
from typing import Any


class StokerError(Exception):
    """The root of Stoker's own errors."""

    def __init__(self, text: str, **data: Any) -> None:
        super().__init__(text)
        self.data = data
        for name, value in data.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), **self.data), (self.args[0],)


class WorkerDied(StokerError, RuntimeError):
    """A worker process ended without being asked to; the text names it, its signal and the samples it held."""


class WorkerTimeout(StokerError, RuntimeError):
    """No batch arrived within the loader's `timeout`."""


class SlotMemoryError(StokerError, MemoryError):
    """The operating system had no memory for a slot."""


class TooManyFailures(StokerError, RuntimeError):
    """More samples could not be loaded than `OnError.budget` allows; `failures` lists them."""


class PassInterrupted(StokerError, RuntimeError):
    """A pass that was left by an exception in the middle of `next()` is asked for more."""


class UnevenBatch(StokerError, ValueError):
    """A batch whose parts do not share their rows, or differ from those of the batch before."""


class StateError(StokerError, ValueError):
    """A saved state that is damaged, newer than this Stoker, or not a loader's state at all."""


class TunedError(StokerError, ValueError):
    """A file of tuned settings that cannot be read, or that contradicts the loader's arguments."""


class MissingExtra(StokerError, ImportError):
    """A package that one of Stoker's extras brings is not installed; the text says which extra to install."""


class ResumeMismatch(StokerError, ValueError):
    """A saved state that this loader cannot continue; `differences` lists (what, saved, now)."""


class WorkersMismatch(ResumeMismatch, AssertionError):
    """Worker states for another number of workers. Also an AssertionError, which is what torchdata's loader raises."""


def describe_exit(exit_code: int | None) -> str:
    """What a process's exit code says: a signal by its name, or a status."""
    if exit_code is None:
        return "ended"
    if exit_code >= 0:
        return f"exited unexpectedly with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"is killed by signal: {name}"


def likely_cause(exit_code: int | None) -> str:
    """The usual reason behind a way of dying, and what to try, as one sentence."""
    if exit_code == -signal.SIGKILL:
        return (
            "A kill without a traceback is usually the kernel's out-of-memory killer. Try fewer workers, smaller "
            "batches, a smaller prefetch_factor, or keep large lists in stoker.SharedList."
        )
    if exit_code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT):
        return (
            "A crash in native code (a decoder, a library that does not survive fork). Load the samples named above "
            'with num_workers=0 to see it, or try multiprocessing_context="spawn".'
        )
    return (
        "Something in the worker ended the process (sys.exit, os._exit, a signal). "
        "Load those samples with num_workers=0 to see it."
    )


@dataclass(frozen=True)
class RemoteError:
    """A worker's exception on its way to the training process.

    The type travels when it can be pickled; the traceback always travels, as text.
    """

    kind: type[BaseException] | None
    name: str
    text: str
    where: str
    original: BaseException | None = None  # of the training process's own: nothing has to travel

    @classmethod
    def capture(cls, error: BaseException, where: str, keep: bool = False) -> RemoteError:
        """Describe `error`, which is being handled now, without keeping its frames alive unless `keep`."""
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return cls(_shippable(type(error)), type(error).__name__, text, where, error if keep else None)

    def to_exception(self) -> BaseException:
        """The exception to raise in the training process: the same type where it takes one text, else RuntimeError."""
        if self.original is not None:
            return self.original
        message = f"Caught {self.name} {self.where}.\nOriginal {self.text}"
        if self.kind is KeyError:
            return KeyError(_PlainRepr(message))
        try:
            error = self.kind(message) if self.kind is not None else None
        except Exception:  # a type whose constructor wants something else than a text
            error = None
        return error if error is not None else RuntimeError(message)


class _PlainRepr(str):
    """A text whose repr is itself, because KeyError shows the repr of its argument and a traceback needs its lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _shippable(kind: type[BaseException]) -> type[BaseException] | None:
    try:
        same = pickle.loads(pickle.dumps(kind)) is kind
    except Exception:  # local classes, classes of modules that cannot be imported: pickle raises many types
        return None
    return kind if same else None
