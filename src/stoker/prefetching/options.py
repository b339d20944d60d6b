"""What `stoker.prefetch` is asked for, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stoker.options import START_METHODS
from stoker.whole_numbers import keep_whole

By = Literal["thread", "process"]
StartMethod = Literal["fork", "forkserver", "spawn"]


@dataclass(frozen=True)
class PrefetchOptions:
    """See `stoker.prefetch`, whose arguments these are."""

    by: By = "thread"
    start_method: StartMethod | None = None
    ahead: int = 3
    max_bytes: int | None = None
    batch_size: int | None = None
    drop_last: bool = False
    across_epochs: bool = True
    spin: bool = False

    def __post_init__(self) -> None:
        keep_whole(self, "ahead", 1, "how many batches may be ready ahead")
        if self.max_bytes is not None:
            keep_whole(self, "max_bytes", 1, "how many bytes the batches ahead may take together")
        if self.batch_size is not None:
            keep_whole(self, "batch_size", 1, "how many rows a combined batch has")
        elif self.drop_last:
            raise ValueError("drop_last is for the last rows where batches are combined: give batch_size too")
        self._check_filler()

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
