"""Who waited for whom: the two sides of a ring, counted as it goes along."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PrefetchStats:
    """Where the time went so far, over all passes of one prefetcher.

    A filler that waits is ahead of the training loop; a training loop that waits is ahead of the filler. `ready_mean`
    is how many batches the loop found ready when it came for one: near `ahead` the ring could be smaller, near 0
    it could not help.
    """

    steps: int  # batches handed over
    passes: int  # passes that were ended
    size_bytes: int  # of the batches handed over
    misses: int  # times the training loop came and found nothing ready
    consumer_wait_s: float
    filler_wait_s: float  # the ring was full, or nobody had asked yet
    filler_busy_s: float
    ready: int  # batches in the ring now
    ready_mean: float
    ahead: int
    filler_pid: int | None  # None: a thread, or not started

    def __str__(self) -> str:
        return "\n".join(
            (
                f"steps     {self.steps:,} in {self.passes:,} ended passes ({self.size_bytes / 1e6:,.1f} MB)",
                f"consumer  waited {self.consumer_wait_s:.3f} s, {self.misses:,} times for an empty ring",
                f"filler    waited {self.filler_wait_s:.3f} s, busy {self.filler_busy_s:.3f} s",
                f"ring      {self.ready} of {self.ahead} ready, {self.ready_mean:.1f} on average",
            )
        )


@dataclass
class PrefetchTally:
    """Counts as a prefetcher goes along; one for all its rings."""

    steps: int = 0
    passes: int = 0
    size_bytes: int = 0
    misses: int = 0
    consumer_wait_ns: int = 0
    filler_wait_ns: int = 0
    filler_busy_ns: int = 0
    found_ready: int = 0  # summed over all visits of the training loop
    visits: int = 0

    def visit(self, ready: int) -> None:
        """The training loop has come for a batch."""
        self.visits += 1
        self.found_ready += ready
        self.misses += not ready

    def stats(self, ready: int, ahead: int, filler_pid: int | None) -> PrefetchStats:
        """The numbers now."""
        return PrefetchStats(
            steps=self.steps,
            passes=self.passes,
            size_bytes=self.size_bytes,
            misses=self.misses,
            consumer_wait_s=self.consumer_wait_ns / 1e9,
            filler_wait_s=self.filler_wait_ns / 1e9,
            filler_busy_s=self.filler_busy_ns / 1e9,
            ready=ready,
            ready_mean=self.found_ready / self.visits if self.visits else 0.0,
            ahead=ahead,
            filler_pid=filler_pid,
        )
