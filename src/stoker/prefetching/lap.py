"""One lap: one walk through the source, with its place known at every batch.

The place is what `Items` says of a source (a state of its own, or how many batches to walk past), and for combined
batches how many rows of the inner batch that comes next were handed out already: the place before that inner batch is
saved, and those rows are skipped when the lap is taken up again.
"""

from __future__ import annotations

from typing import Any

from stoker.batches import Items, check_told
from stoker.contracts import MapSlot
from stoker.errors import RemoteError
from stoker.prefetching.rebatch import Rows, combine

LapState = dict[str, Any]
THE_END = object()
"""What a lap gives when its source has ended; None may be a batch."""


def at_the_beginning(source_state: Any = None) -> LapState:
    """The state of a lap that has not begun."""
    items = {"batches": 0, "ended": False, "dataset": source_state, "iterator": None}
    return {"items": items, "rows": 0}


class Lap:
    """Walks `source` (see `walkable`) once, from `state` if there is one."""

    def __init__(self, source: Any, batch_size: int | None, drop_last: bool, state: LapState | None) -> None:
        self._batch_size, self._drop_last = batch_size, drop_last
        self._items = Items(source, None, False, pending=None if state is None else state["items"])
        self._skip = 0 if state is None else state["rows"]
        self._rest: Rows | None = None
        self._known: Any = None  # where the source stands, if that was asked since the last pull
        self._before_rest: Any = None  # where it stood before the batch that `_rest` is left of
        self.given = 0

    def next(self, slot: MapSlot) -> Any:
        """The next batch (a `Combined` where batches are combined), or THE_END."""
        batch = self._pull() if self._batch_size is None else self._combine(self._batch_size, slot)
        self.given += batch is not THE_END
        return batch

    def state(self) -> LapState | RemoteError:
        """Where the lap stands; a RemoteError where the source cannot say."""
        if self._rest is not None:
            return {"items": self._before_rest, "rows": self._rest.taken}
        try:
            return {"items": self._stand(), "rows": 0}
        except Exception as error:
            return RemoteError.capture(error, "while the source of stoker.prefetch was asked for its state")

    def end(self) -> LapState | RemoteError:
        """The state after the lap's end: the beginning of the next one."""
        self._known = None
        state = self.state()
        if isinstance(state, dict):
            state["items"] = {**state["items"], "finished": True}
            state["rows"] = 0
        return state

    @property
    def is_used_up(self) -> bool:
        """Nothing came, and nothing ever will: the source is its own iterator."""
        return self.given == 0 and self._items.is_own_iterator

    def _pull(self) -> Any:
        taken = self._items.take()
        self._known = None
        return THE_END if taken is None else taken[0]

    def _pull_rows(self) -> Rows | None:
        before = self._stand_or_none()
        batch = self._pull()
        if batch is THE_END:
            self._known = before  # the tail was made before anybody heard of the end
            return None
        rows, self._before_rest = Rows.of(batch), before
        rows.taken, self._skip = min(self._skip, rows.count), 0
        return rows

    def _combine(self, rows: int, slot: MapSlot) -> Any:
        combined, self._rest = combine(self._rest, self._pull_rows, rows, slot)
        if combined is None or (self._drop_last and combined.filled < rows):
            return THE_END
        return combined

    def _stand(self) -> Any:
        if self._known is None:
            state = self._items.state()
            check_told(state)
            self._known = state
        return self._known

    def _stand_or_none(self) -> Any:
        try:
            return self._stand()
        except Exception:  # `state` tells whoever asks
            return None
