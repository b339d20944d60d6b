"""What the asynchronous accessor costs while nobody moves, and how fast it hands batches over.

    python benchmarks/accessor.py                    all cases, about a minute; renders docs/async.md
    python benchmarks/accessor.py --only full_ring   one case (may be given several times)
    python benchmarks/accessor.py --quick            small sizes: does everything run?

Idle costs are processor seconds of this process and its children, by psutil, over some seconds in which a full ring
waits for a consumer, or a consumer for a filler. Handing over is compared with torch's loader doing the same: one
worker process, whole batches. The record is benchmarks/results/accessor.json.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from engine_bench import Bench, Result, per_s
from suite import Suite, run
from torch.utils.data import DataLoader

from stoker import prefetch
from stoker.bench import Finding, median

PAGE = Path(__file__).resolve().parents[1] / "docs" / "async.md"
BYS: tuple[Literal["thread", "process"], ...] = ("thread", "process")
MOST_IDLE = 2.0  # percent of a core


class Batches:
    """Copies of a batch, as a map-style dataset and as an iterable: new memory each, as from any source."""

    def __init__(self, rows: int, count: int) -> None:
        self.batch, self.count = torch.rand(rows, 1, 128, 128), count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.batch.clone()

    def __iter__(self) -> Iterator[torch.Tensor]:
        return map(self.__getitem__, range(self.count))


class Silent:
    """One batch, then nothing until the descriptor is written to."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield torch.zeros(1)
        os.read(self.descriptor, 1)


def full_ring(bench: Bench) -> Result:
    """A full ring, and nobody comes."""
    series, findings = {}, []
    for by in BYS:
        with prefetch(Batches(8, 1000), at_once=True, by=by) as accessor:
            while accessor.stats().ready < 3:
                time.sleep(0.01)
            series[f"{by}, % of a core"] = idle = _idle_percent(bench)
        findings.append(Finding(f"full ring, filled by a {by}", "at most", MOST_IDLE, max(idle), "% of a core"))
    return Result("ring of 3 batches, full", tuple(findings), series)


def waiting_consumer(bench: Bench) -> Result:
    """A consumer waits for a filler whose source gives nothing."""
    series, findings = {}, []
    for by in BYS:
        reader, writer = os.pipe()
        with prefetch(Silent(reader), by=by) as accessor:
            batches = iter(accessor)
            next(batches)
            waiter = threading.Thread(target=next, args=(batches, None))
            waiter.start()
            series[f"{by}, % of a core"] = idle = _idle_percent(bench)
            os.write(writer, b"x")
            waiter.join()
        os.close(reader)
        os.close(writer)
        findings.append(Finding(f"consumer waiting for a {by}", "at most", MOST_IDLE, max(idle), "% of a core"))
    return Result("a source that gives nothing", tuple(findings), series)


def _idle_percent(bench: Bench) -> list[float]:
    """Processor time of this process and its children, as a share of a core, over each of some seconds."""
    time.sleep(0.5)  # what was just started settles
    shares = []
    for _ in range(bench.sized(5, 2)):
        begun, used = time.perf_counter(), _processor_s()
        time.sleep(2.0 if not bench.quick else 0.5)
        shares.append(100 * (_processor_s() - used) / (time.perf_counter() - begun))
    return shares


def _processor_s() -> float:
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def large(bench: Bench) -> Result:
    """Batches of 52 MB from a process, against torch's loader with one worker."""
    dataset = Batches(800, bench.sized(40, 5))
    makers: dict[str, Callable[[], Iterable[Any]]] = {
        "prefetch, process": lambda: prefetch(dataset, by="process"),
        "torch, 1 worker": lambda: DataLoader(dataset, batch_size=None, num_workers=1, persistent_workers=True),
    }
    rates = _rates(makers, bench.sized(5, 1), dataset.batch.nbytes / 1e9)
    ours, theirs = median(rates["prefetch, process"]), median(rates["torch, 1 worker"])
    detail = f"{ours:.2f} GB/s, torch {theirs:.2f} GB/s"
    claim = "batches of 800 × 1×128×128 float32 from a process"
    found = Finding(claim, "at least", 1.0, ours / theirs, "× torch", detail)
    return Result("800 rows a batch, consumer keeps nothing", (found,), _named(rates, "GB/s"))


def small(bench: Bench) -> Result:
    """Batches of four bytes: what handing over costs by itself, against torch's loader with one worker."""
    batches = [torch.zeros(1)] * bench.sized(5000, 200)
    makers: dict[str, Callable[[], Iterable[Any]]] = {
        "prefetch, thread": lambda: prefetch(batches, ahead=16, by="thread"),
        "prefetch, process": lambda: prefetch(batches, ahead=16, by="process"),
        "torch, 1 worker": lambda: DataLoader(batches, batch_size=None, num_workers=1, persistent_workers=True),
    }
    rates = _rates(makers, bench.sized(5, 1), 1.0)
    theirs = median(rates["torch, 1 worker"])
    findings = tuple(
        Finding(
            f"steps of one number, from a {by}",
            "at least",
            1.0,
            median(rates[f"prefetch, {by}"]) / theirs,
            "× torch",
            f"{per_s(median(rates[f'prefetch, {by}']))}, torch {per_s(theirs)}",
        )
        for by in BYS
    )
    return Result("ring of 16", findings, _named(rates, "steps/s"))


def rebatching(bench: Bench) -> Result:
    """Batches of 100 rows combined to 800 in a thread: against torch.cat in the same place."""
    dataset = Batches(100, bench.sized(320, 40))
    makers: dict[str, Callable[[], Iterable[Any]]] = {
        "prefetch, batch_size=800": lambda: prefetch(dataset, batch_size=800),
        "prefetch around torch.cat": lambda: prefetch(lambda: _concatenated(dataset, 8)),
    }
    rates = _rates(makers, bench.sized(5, 1), dataset.batch.nbytes * 8 / 1e9)
    ours, theirs = (median(series) for series in rates.values())
    detail = f"{ours:.2f} GB/s, torch.cat {theirs:.2f} GB/s"
    found = Finding("100 rows combined to 800, in a thread", "at least", 1.0, ours / theirs, "× torch.cat", detail)
    return Result("1×128×128 float32 rows, consumer keeps nothing", (found,), _named(rates, "GB/s"))


def _concatenated(batches: Iterable[torch.Tensor], count: int) -> Iterator[torch.Tensor]:
    held = []
    for batch in batches:
        held.append(batch)
        if len(held) == count:
            yield torch.cat(held)
            held.clear()


def _rates(makers: dict[str, Callable[[], Iterable[Any]]], rounds: int, unit: float) -> dict[str, list[float]]:
    """Steps a second × `unit`, pass by pass, by turns; each one's first pass starts processes and touches memory."""
    sources = {name: make() for name, make in makers.items()}
    rates: dict[str, list[float]] = {name: [] for name in makers}
    for number in range(rounds + 1):
        for name in list(makers) if number % 2 else list(makers)[::-1]:
            iterator = iter(sources[name])
            next(iterator)  # a ring that was filled ahead does not count
            begun = time.perf_counter()
            steps = sum(1 for _ in iterator)
            rates[name].append(steps * unit / (time.perf_counter() - begun))
    for source in sources.values():
        if isinstance(source, prefetch):
            source.close()
    return {name: values[1:] for name, values in rates.items()}


def _named(rates: dict[str, list[float]], unit: str) -> dict[str, list[float]]:
    return {f"{name}, {unit}": values for name, values in rates.items()}


CASES = {
    "full_ring": full_ring,
    "waiting_consumer": waiting_consumer,
    "large": large,
    "small": small,
    "rebatching": rebatching,
}
SUITE = Suite("accessor", "Measure the asynchronous accessor.", CASES, PAGE)

if __name__ == "__main__":
    sys.exit(run(SUITE, sys.argv[1:]))
