"""What surviving faults costs: while nothing happens, and when a worker dies every 500 samples.

    python benchmarks/faults.py                  both cases without faults, and recovery; about two minutes
    python benchmarks/faults.py --only recovery  one case (may be given several times)
    python benchmarks/faults.py --quick          small sizes: does everything run?

"Armed" is a loader with on_error="skip" and Workers(on_death="restart"); "plain" has neither. Both live side by side
with persistent workers and take turns epoch by epoch, so that a machine that changes its mood changes it for both; a
pair of epochs gives one ratio, and the verdict is the median of them. The record is benchmarks/results/faults.json, and
docs/faults.md is rendered from it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import engine_data as data
from engine_bench import Bench, Result, ms, per_s
from render import findings_table
from suite import Suite, run

import stoker
from stoker.bench import Finding, measure, median

PAGE = Path(__file__).resolve().parents[1] / "docs" / "faults.md"
ARMED = {"on_error": "skip", "workers": stoker.Workers(processes=2, on_death="restart", max_restarts=10**6)}
PLAIN = {"workers": stoker.Workers(processes=2)}
SAMPLES_PER_DEATH = 500


def computing(bench: Bench) -> Result:
    """Armed against plain: samples that compute for half a millisecond."""
    dataset = data.Computing(bench.sized(4_000, 400), busy_s=0.0005)
    return _armed(dataset, "no faults, 0.5 ms a sample, batch 32", 32, bench.sized(15, 3))


def copying(bench: Bench) -> Result:
    """Armed against plain: large samples that are only copied."""
    dataset = data.make_preprocessed(bench.folder / "preprocessed.f32", bench.sized(1792, 512))
    # An epoch takes 70 ms, and one differs from the next by a fifth: only many say something.
    return _armed(dataset, "no faults, preprocessed 3×224×224, batch 64", 64, bench.sized(101, 3))


def _armed(dataset: Any, claim: str, batch_size: int, pairs: int) -> Result:
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": True, "seed": 1, "persistent_workers": True}
    loaders = {
        "plain": stoker.DataLoader(dataset, **options, **PLAIN),
        "armed": stoker.DataLoader(dataset, **options, **ARMED),
    }
    speeds: dict[str, list[float]] = {"plain": [], "armed": []}
    for pair in range(1 + pairs):
        for name in ("plain", "armed") if pair % 2 else ("armed", "plain"):
            speeds[name].append(measure(loaders[name]).samples_per_s)
    del loaders
    speeds = {name: values[1:] for name, values in speeds.items()}  # the first epoch starts workers and touches memory
    ratios = [armed / plain for armed, plain in zip(speeds["armed"], speeds["plain"], strict=True)]
    detail = f"armed {per_s(median(speeds['armed']))}, plain {per_s(median(speeds['plain']))}"
    found = Finding(claim, "at least", 0.98, median(ratios), "× plain", detail)
    series = {f"{name}, samples/s": values for name, values in speeds.items()} | {"armed over plain, pairs": ratios}
    return Result(f"{len(dataset)} samples, shuffled, 2 persistent workers, epochs by turns", (found,), series)


@dataclass
class Pass:
    """One epoch, with workers killed on the way or not."""

    seconds: float
    waits_s: list[float]
    waits_after_death_s: list[float]
    restarts: int
    starting_s: float  # what the training process spent on starting new workers


def recovery(bench: Bench) -> Result:
    """A worker is killed every 500 samples: how much of the fault-free throughput is left?"""
    dataset, batch_size = data.Computing(bench.sized(8_000, 2_000), busy_s=0.0005), 50
    calm, dying = [], []
    for _ in range(bench.sized(5, 1)):
        calm.append(_epoch(dataset, batch_size, None))
        dying.append(_epoch(dataset, batch_size, SAMPLES_PER_DEATH))
    starts_s = [one.starting_s / max(1, one.restarts) for one in dying]
    # Of two workers one is missing meanwhile: half of the work of that time is what starting costs.
    without = [one.seconds - one.starting_s / 2 for one in dying]
    kept = median([one.seconds for one in calm]) / median(without)
    with_start = median([one.seconds for one in calm]) / median([one.seconds for one in dying])
    waits = [wait_s for one in dying for wait_s in one.waits_after_death_s]
    usual = median([wait_s for one in calm for wait_s in one.waits_s])
    found = Finding(
        f"a death every {SAMPLES_PER_DEATH} samples, 0.5 ms a sample",
        "at least",
        0.8,
        kept,
        "× without deaths",
        f"{with_start:.2f} with process start-up ({ms(median(starts_s))} each, {dying[0].restarts} a pass); "
        f"wait for the batch concerned {ms(median(waits))}, usually {ms(usual)}",
    )
    series = {
        "without deaths, s": [one.seconds for one in calm],
        "with deaths, s": [one.seconds for one in dying],
        "start-up of a worker, s": starts_s,
        "wait for the batch concerned, s": waits,
    }
    return Result(f"{len(dataset)} samples, batch {batch_size}, 2 workers, forked", (found,), series)


def _epoch(dataset: Any, batch_size: int, every: int | None) -> Pass:
    """An epoch of an armed loader; the first batch, with the start of all workers, is left out of the time."""
    loader: Any = stoker.DataLoader(dataset, batch_size, shuffle=True, seed=1, **ARMED)
    batches = iter(loader)
    crew = batches._crew
    starting = _watch_starts(crew)
    next(batches)
    result, begun = Pass(0.0, [], [], 0, 0.0), time.perf_counter()
    seen, since_death = batch_size, 10**6
    while True:
        if every is not None and seen % every == 0:
            os.kill(crew.workers[seen // every % 2].pid, signal.SIGKILL)
            result.restarts, since_death = result.restarts + 1, 0
        asked = time.perf_counter()
        if next(batches, None) is None:
            break
        wait_s = time.perf_counter() - asked
        result.waits_s.append(wait_s)
        # The dead worker's part belongs to one of the batches under way: the longest wait among the next few.
        if since_death == 0:
            result.waits_after_death_s.append(wait_s)
        elif since_death < 4:
            result.waits_after_death_s[-1] = max(result.waits_after_death_s[-1], wait_s)
        seen, since_death = seen + batch_size, since_death + 1
    result.seconds, result.starting_s = time.perf_counter() - begun, sum(starting)
    return result


def _watch_starts(crew: Any) -> list[float]:
    """Time each start of a worker in the training process, where it holds everything up."""
    taken_s: list[float] = []
    start: Callable[[int], Any] = crew._start

    def timed(number: int) -> Any:
        begun = time.perf_counter()
        worker = start(number)
        taken_s.append(time.perf_counter() - begun)
        return worker

    crew._start = timed
    return taken_s


CASES = {"computing": computing, "copying": copying, "recovery": recovery}
SUITE = Suite("faults", "Measure what surviving faults costs.", CASES, PAGE, table=findings_table)

if __name__ == "__main__":
    sys.exit(run(SUITE, sys.argv[1:]))
