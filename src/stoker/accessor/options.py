"""What an accessor is asked for, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from stoker.contracts import START_METHODS
from stoker.whole_numbers import keep_whole

By = Literal["thread", "process"]
StartMethod = Literal["fork", "forkserver", "spawn"]


@dataclass(frozen=True)
class PrefetchOptions:
    """See `stoker.AsyncPrefetch`, whose arguments these are."""

    buffer_size: int = 3
    load_indefinitely: bool = True
    miss_sleep_time_ms: float | None = None
    max_bytes: int | None = None
    rebatch: int | None = None
    drop_last: bool = False
    by: By = "thread"
    start_method: StartMethod | None = None

    def __post_init__(self) -> None:
        keep_whole(self, "buffer_size", 1, "how many batches may be ready ahead")
        if self.max_bytes is not None:
            keep_whole(self, "max_bytes", 1, "how many bytes the batches ahead may take together")
        if self.rebatch is not None:
            keep_whole(self, "rebatch", 1, "how many rows a combined batch has")
        elif self.drop_last:
            raise ValueError("drop_last says what becomes of the last rows when batches are combined: give rebatch too")
        self._check_sleep()
        self._check_filler()

    def _check_sleep(self) -> None:
        ms = self.miss_sleep_time_ms
        if ms is None:
            return
        if isinstance(ms, bool) or not isinstance(ms, (int, float)):
            raise TypeError(f"miss_sleep_time_ms should be None or a number, but got {ms!r} ({type(ms).__name__})")
        if not (ms >= 0 and math.isfinite(ms)):
            raise ValueError(f"miss_sleep_time_ms should be None (block), 0 (spin) or a time, but got {ms}")

    def _check_filler(self) -> None:
        if self.by not in ("thread", "process"):
            raise ValueError(f'by should be "thread" or "process", but got {self.by!r}')
        if self.start_method is None:
            return
        if self.start_method not in START_METHODS:
            raise ValueError(f"start_method should be one of {START_METHODS}, but got {self.start_method!r}")
        if self.by == "thread":
            raise ValueError(
                f"start_method={self.start_method!r} says how a process is started: give "
                'by="process" too, or leave it out'
            )
