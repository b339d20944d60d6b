"""The statistics of a loader, as it hands them out: numbers, what follows from them, and a block to read.

The training loop's time has two parts: waiting (for workers to start, for each batch, for the pass to end) and
everything else, which is the model. `wait_share` is the first of the two over both; what the loader does in the
background costs nothing until it shows there. Times count only while a pass is under way: what happens between two
epochs is nobody's wait.

Counts and times are those of all passes so far; `later.since(earlier)` is what happened between two looks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stoker.options import Workers


@dataclass(frozen=True)
class Stats:
    """What a loader has seen so far. Times in seconds."""

    steps: int
    samples: int
    size_bytes: int  # of the tensors and arrays in the batches
    seconds: float  # all passes together, each from `iter(loader)` to its end, its last batch if it was left, or now
    wait_s: float  # what the training loop waited: starts of passes, batches, ends of passes
    wait_quantiles_s: dict[str, float]  # median, p90, p99 and the longest wait for a batch, of the latest 4096 steps
    start_up_s: float  # of the wait for the latest pass's first batch: until somebody began to load it
    first_batch_s: float  # the rest of that wait
    busy_s: tuple[float, ...]  # for each worker, the seconds its lanes were loading, added up
    lanes: int  # of each worker
    slots: int  # that exist now
    slots_in_use: int  # being filled, waiting to be taken, or held by batches
    slots_leased: int  # held by batches that the training loop still has
    ready: int  # queue depth: batches that were finished when the training loop last asked for one
    failures: int  # samples that could not be loaded
    retries: int  # tries of a sample beyond its first
    restarts: int  # workers that were started in the place of others
    peak_bytes: int  # proportional set size of all processes, the largest of all looks
    fixed: Workers | None = None  # where the loader finds out how many should load: what to write down to have it so
    changes: int = 0  # of how many load
    decisions: tuple[str, ...] = ()  # the latest of these changes, with reasons

    @property
    def samples_per_s(self) -> float:
        return self._per_s(self.samples)

    @property
    def bytes_per_s(self) -> float:
        return self._per_s(self.size_bytes)

    @property
    def wait_share(self) -> float:
        """The share of the time that the training loop waited, 0 to 1."""
        return self._per_s(self.wait_s)

    @property
    def busy(self) -> tuple[float, ...]:
        """For each worker, the share of the time that its lanes were loading; empty where batches are made inline."""
        return tuple(self._per_s(seconds) / self.lanes for seconds in self.busy_s)

    def _per_s(self, amount: float) -> float:
        return amount / self.seconds if self.seconds > 0 else 0.0

    def since(self, earlier: Stats) -> Stats:
        """What happened after `earlier`; what is no count or sum (quantiles, slots, the peak) stays as it is now."""
        before = (*earlier.busy_s, *[0.0] * len(self.busy_s))
        return replace(
            self,
            **{name: getattr(self, name) - getattr(earlier, name) for name in _SUMS},
            busy_s=tuple(now - then for now, then in zip(self.busy_s, before, strict=False)),
        )

    def as_dict(self, prefix: str = "stoker/") -> dict[str, float]:
        """Names to numbers, flat, the way loggers take them."""
        values: dict[str, float] = {name: getattr(self, name) for name in _LOGGED}
        values |= {f"wait_{name}_s": value for name, value in self.wait_quantiles_s.items()}
        values |= {f"busy_worker_{number}": share for number, share in enumerate(self.busy)}
        return {prefix + name: value for name, value in values.items()}

    def __str__(self) -> str:
        quantiles = ", ".join(f"{name} {duration(value)}" for name, value in self.wait_quantiles_s.items())
        busy = ", ".join(f"{share:.0%}" for share in self.busy)
        rows = {
            "steps": f"{self.steps:,} ({self.samples:,} samples, {self.size_bytes / 1e6:,.1f} MB)",
            "throughput": f"{self.samples_per_s:,.0f} samples/s, {self.bytes_per_s / 1e6:,.1f} MB/s",
            "waiting": f"{self.wait_s:.3f} s of {self.seconds:.3f} s ({self.wait_share:.0%})",
            "per batch": quantiles or "no batch yet",
            "first batch": f"{duration(self.start_up_s)} starting + {duration(self.first_batch_s)} loading",
            "workers": (f"busy {busy}" if busy else "none, inline") + f"; {self.restarts} restarts",
            "faults": f"{self.failures} samples failed, {self.retries} retries",
            "slots": f"{self.slots}, {self.slots_in_use} in use, {self.slots_leased} held by batches; "
            f"{self.ready} batches ready",
            "memory": f"peak {self.peak_bytes / 1e6:,.1f} MB",
        }
        if self.fixed is not None:
            now = f"processes={self.fixed.processes}, threads={self.fixed.threads}"
            rows["auto"] = f"Workers({now}) now, after {self.changes} changes" + "".join(
                f"\n{'':<12} {decision}" for decision in self.decisions
            )
        return "\n".join(f"{name:<12} {text}" for name, text in rows.items())


_SUMS = ("steps", "samples", "size_bytes", "seconds", "wait_s", "failures", "retries", "restarts", "changes")
_LOGGED = (
    "steps",
    "samples",
    "size_bytes",
    "seconds",
    "samples_per_s",
    "bytes_per_s",
    "wait_s",
    "wait_share",
    "start_up_s",
    "first_batch_s",
    "slots",
    "slots_in_use",
    "slots_leased",
    "ready",
    "failures",
    "retries",
    "restarts",
    "changes",
    "peak_bytes",
)


def duration(seconds: float) -> str:
    """A time as a person would say it."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"
