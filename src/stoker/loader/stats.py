"""Always-on statistics of a loader: where the time went, at a cost that cannot be seen.

A step costs two looks at a clock and a few additions. Everything that takes longer, like asking the kernel for memory,
happens when somebody asks for the numbers.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from stoker.loader.trace import Trace

_KEPT_WAITS = 4096  # quantiles are those of the latest steps


@dataclass(frozen=True)
class Stats:
    """What a loader has seen so far. Times in seconds; waits are what the training loop waited for batches."""

    steps: int
    samples: int
    size_bytes: int
    seconds: float  # from the beginning of the first pass to now, or to the end of the last pass
    wait_s: float
    wait_quantiles_s: dict[str, float]  # median, p90, p99 and the longest of the latest steps
    start_up_s: float  # until whoever loads was started, in the latest pass
    first_batch_s: float  # from then to the first batch
    busy: tuple[float, ...]  # share of the time that each worker's lanes were loading
    slots: int
    slots_leased: int
    ready: int  # batches finished and not yet taken
    failures: int
    restarts: int
    peak_bytes: int  # proportional set size over all processes, the largest of all looks

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_per_s(self) -> float:
        return self.size_bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def wait_share(self) -> float:
        return self.wait_s / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        quantiles = ", ".join(f"{name} {duration(value)}" for name, value in self.wait_quantiles_s.items())
        busy = ", ".join(f"{share:.0%}" for share in self.busy) or "inline"
        return "\n".join(
            (
                f"steps        {self.steps:,} ({self.samples:,} samples, {self.size_bytes / 1e6:,.1f} MB)",
                f"throughput   {self.samples_per_s:,.0f} samples/s, {self.bytes_per_s / 1e6:,.1f} MB/s",
                f"waiting      {self.wait_s:.3f} s of {self.seconds:.3f} s ({self.wait_share:.0%}); {quantiles}",
                f"first batch  {duration(self.start_up_s)} starting + {duration(self.first_batch_s)} loading",
                f"workers      busy {busy}; {self.restarts} restarts, {self.failures} failed samples",
                f"memory       {self.slots} slots, {self.slots_leased} held by batches, {self.ready} ready; "
                f"peak {self.peak_bytes / 1e6:,.1f} MB",
            )
        )


@dataclass
class Tally:
    """Counts as a loader goes along; one for all its passes."""

    steps: int = 0
    samples: int = 0
    size_bytes: int = 0
    wait_ns: int = 0
    waits_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_KEPT_WAITS))
    busy_ns: dict[int, int] = field(default_factory=dict)
    begun_ns: int = 0
    ended_ns: int = 0
    start_up_ns: int = 0
    first_batch_ns: int = 0
    peak_bytes: int = 0

    def begin_pass(self, begun_ns: int) -> None:
        """A pass begins; the time until it can load is its start-up."""
        now = time.perf_counter_ns()
        self.begun_ns = self.begun_ns or begun_ns
        self.start_up_ns, self.first_batch_ns, self.ended_ns = now - begun_ns, 0, 0

    def step(self, begin_ns: int, end_ns: int) -> None:
        """The training loop asked for a batch, and got it."""
        wait = end_ns - begin_ns
        self.steps += 1
        self.wait_ns += wait
        self.waits_ns.append(wait)
        if not self.first_batch_ns:
            self.first_batch_ns = wait

    def loaded(self, samples: int, size_bytes: int) -> None:
        self.samples += samples
        self.size_bytes += size_bytes

    def busy(self, worker: int, busy_ns: int) -> None:
        self.busy_ns[worker] = self.busy_ns.get(worker, 0) + busy_ns

    def stats(self, crew: Any, lanes: int, **more: int) -> Stats:
        """The numbers now."""
        seconds = ((self.ended_ns or time.perf_counter_ns()) - self.begun_ns) / 1e9 if self.begun_ns else 0.0
        self.peak_bytes = max(self.peak_bytes, _proportional_bytes([worker.pid for worker in crew]))
        return Stats(
            steps=self.steps,
            samples=self.samples,
            size_bytes=self.size_bytes,
            seconds=seconds,
            wait_s=self.wait_ns / 1e9,
            wait_quantiles_s=_quantiles(sorted(self.waits_ns)),
            start_up_s=self.start_up_ns / 1e9,
            first_batch_s=self.first_batch_ns / 1e9,
            busy=tuple(self.busy_ns[worker] / 1e9 / seconds / max(1, lanes) for worker in sorted(self.busy_ns)),
            peak_bytes=self.peak_bytes,
            **more,
        )


@dataclass
class LoopClock:
    """Told when the training loop waited: by a pass, or by whoever takes batches from it ahead of the loop."""

    tally: Tally
    trace: Trace | None
    batches: int = 0

    def waited(self, begin_ns: int, end_ns: int) -> None:
        """The loop asked for a batch, and got it."""
        self.tally.step(begin_ns, end_ns)
        if self.trace is not None:
            self.trace.wait(begin_ns, end_ns, self.batches)
        self.batches += 1

    def ended(self) -> None:
        """The loop asked for a batch, and there was none left."""
        self.tally.ended_ns = time.perf_counter_ns()


def _quantiles(ordered: list[int]) -> dict[str, float]:
    if not ordered:
        return {}
    places = {"median": 0.5, "p90": 0.9, "p99": 0.99, "longest": 1.0}
    return {name: ordered[round(share * (len(ordered) - 1))] / 1e9 for name, share in places.items()}


def _proportional_bytes(pids: list[int]) -> int:
    """Memory of this process and its workers, pages that several share counted once in all."""
    import psutil

    total = 0
    for pid in (None, *pids):
        try:
            info = psutil.Process(pid).memory_full_info()
        except psutil.Error:
            continue  # it has ended meanwhile
        total += getattr(info, "pss", info.rss)
    return total


def duration(seconds: float) -> str:
    """A time as a person would say it."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"
