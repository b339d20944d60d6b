"""What goes wrong in PopTorch's names, as errors that say what to do.

    Error                (StokerError, RuntimeError)     PopTorch's own root
    ├── Misuse           (ValueError, AssertionError)    arguments that do not go together
    ├── OptionError      (AttributeError)                an option that is not there, or frozen
    ├── StartError                                       the first item could not be loaded
    ├── FetchError       (AssertionError)                a later item could not be loaded; the cause is attached
    ├── Terminated       (AssertionError)                iterated after `terminate()`
    ├── RecoverableError                                 names that scripts catch: nothing here raises them
    └── UnrecoverableError

Where PopTorch says `assert`, the class here is an `AssertionError` too, so that scripts which catch that go on working;
but it is raised, not asserted, so `python -O` does not lose it, and its text names the numbers and the way out.
"""

from __future__ import annotations

from stoker.errors import StokerError


class Error(StokerError, RuntimeError):
    """The root of the errors under `stoker.poptorch`."""


class Misuse(Error, ValueError, AssertionError):
    """Arguments or options that do not go together."""


class OptionError(Error, AttributeError):
    """An option that does not exist, or that can no longer be changed."""


class StartError(Error):
    """Nothing could be loaded at all: the dataset is empty, too small for a step, or its first item fails."""


class FetchError(Error, AssertionError):
    """An item could not be loaded; `__cause__` is the dataset's own error."""


class Terminated(Error, AssertionError):
    """The loader or accessor was ended by `terminate()`."""


class RecoverableError(Error):
    """An error of a device that a restart would cure. Torch devices have no such thing; scripts catch it."""


class UnrecoverableError(Error):
    """An error of a device that nothing cures. Torch devices have no such thing; scripts catch it."""


def in_short(error: BaseException) -> str:
    """Type and words of an error, without the traceback that a worker may have put around them: the cause has that."""
    words = str(error).strip()
    if "Traceback (most recent call last)" in words:
        return words.splitlines()[-1].strip()
    return f"{type(error).__name__}: {words}"
