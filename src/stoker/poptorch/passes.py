"""One pass over a buffer of steps, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stoker.poptorch.errors import Error, FetchError, in_short


@dataclass
class Progress:
    """How far a pass has come; known also after the pass itself is gone."""

    taken: int = 0
    is_over: bool = False

    @property
    def is_under_way(self) -> bool:
        return self.taken > 0 and not self.is_over


class Pass:
    """An iterator over steps."""

    def __init__(self, steps: Iterator[Any]) -> None:
        self._steps: Iterator[Any] | None = steps
        self._left: Error | None = None
        self.progress = Progress()

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        if self._steps is None:
            raise self._left or StopIteration
        try:
            step = next(self._steps)
        except StopIteration:
            self.progress.is_over = True
            self._steps = None
            raise
        except Exception as error:
            raise FetchError(
                f"step {self.progress.taken} of this pass could not be loaded: {in_short(error)}. Load it in "
                'DataLoaderMode.Sync with num_workers=0 to look into it; on_error="skip" goes on without bad samples.'
            ) from error
        self.progress.taken += 1
        return step

    def leave(self, why: Error) -> None:
        """Let go of the buffer; whoever goes on with this pass is told why it is over."""
        if self._steps is not None:
            self._steps, self._left = None, why
