"""An exception of the source on its way to the consumer.

In the consumer's own process it is the very exception, traceback and all. From another process it comes as itself where
it can be pickled (type, arguments, attributes), with the filler's traceback as its cause; else as `RemoteError` makes
it: the type where that travels, and the traceback in the text.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from stoker.errors import RemoteError

WHERE = "in the process that loads ahead"


@dataclass(frozen=True)
class SourceError:
    """What a report of a failure carries."""

    remote: RemoteError | None
    pickled: bytes | None = None
    own: BaseException | None = None

    @classmethod
    def of(cls, error: BaseException, same_process: bool) -> SourceError:
        if same_process:
            return cls(None, own=error)
        return cls(RemoteError.capture(error, WHERE), pickled=_pickled(error))

    def to_exception(self) -> BaseException:
        """What to raise in the consumer."""
        if self.own is not None:
            return self.own
        assert self.remote is not None  # one of the two is there
        if self.pickled is None:
            return self.remote.to_exception()
        error: BaseException = pickle.loads(self.pickled)
        error.__cause__ = RuntimeError(f"Raised {WHERE}:\n\n{self.remote.text}")
        return error


def _pickled(error: BaseException) -> bytes | None:
    """The exception as bytes, if it comes back as what it was."""
    try:
        data = pickle.dumps(error)
        again = pickle.loads(data)
    except Exception:  # local classes, constructors that want something else: pickle raises many types
        return None
    return data if type(again) is type(error) and str(again) == str(error) else None
