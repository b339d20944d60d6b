"""What "auto" comes to while a model trains: against a grid of fixed settings, and against torch's best.

    python benchmarks/auto.py                           36 cases, the changes in mid-run, ten steady minutes: 45 minutes
    python benchmarks/auto.py --only rows/none          one case (may be given several times)
    python benchmarks/auto.py --quick                   does everything run?

A case is a dataset and a model. First every setting of the grid for a moment; then "auto" for 22 s, from its
constructor on; then the grid's best again, and torch's loader with 0, 1 and 2 workers. What "auto" gives after 20 s is
compared with what the best setting gives right afterwards, since the quickest of several noisy measurements looks
quicker than it is; its total from the first second on with what the best setting would have made in that time.

The record is benchmarks/results/auto.json, and docs/auto.md is rendered from it.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from auto_data import DATASETS, MODELS, Many, computing_model
from engine_bench import Bench, Result, per_s
from render import case_table
from suite import Suite, run

import stoker
from stoker.bench import Finding, Record, median

PAGE = Path(__file__).resolve().parents[1] / "docs" / "auto.md"
GRID = {
    "none": stoker.Workers(),
    "1": stoker.Workers(1),
    "2": stoker.Workers(2),
    "2×4": stoker.Workers(2, 4),
    "1×32": stoker.Workers(1, 32),
    "2×32": stoker.Workers(2, 32),
}
Model = Callable[[Any], None]


@dataclass(frozen=True)
class Pace:
    """How a loop went: samples that had been taken at each moment."""

    at_s: list[float]
    taken: list[int]

    def rate(self, begin_s: float, end_s: float) -> float:
        """Samples per second between two moments."""
        begin, end = (self._at(moment) for moment in (begin_s, min(end_s, self.at_s[-1])))
        return (end - begin) / max(1e-9, min(end_s, self.at_s[-1]) - begin_s)

    def _at(self, moment_s: float) -> float:
        return float(np.interp(moment_s, [0.0, *self.at_s], [0, *self.taken]))


def train(
    make: Callable[[], Iterable[Any]], batch_size: int, model: Model, seconds: float, begun_s: float = 0.0
) -> Pace:
    """Train for so long, epoch after epoch, the making of the loader included."""
    begun_s = begun_s or time.perf_counter()
    loader, pace, taken = make(), Pace([], []), 0
    for batch in _for_ever(loader):
        model(batch)
        taken += batch_size
        pace.at_s.append(time.perf_counter() - begun_s)
        pace.taken.append(taken)
        if pace.at_s[-1] >= seconds:
            break
    return pace


def _for_ever(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def against_grid(dataset: str, model: str, bench: Bench) -> Result:
    """“auto” against the best of a grid and against torch."""
    case, long_s, trial_s = DATASETS[dataset], 3.0 if bench.quick else 22.0, 0.3 if bench.quick else 1.6
    data = case.make(bench.folder)
    go = functools.partial(train, batch_size=case.batch_size, model=MODELS[model])
    options: dict[str, Any] = {"batch_size": case.batch_size, "shuffle": False, **case.options}

    def fixed(workers: stoker.Workers) -> float:
        pace = go(lambda: stoker.DataLoader(data, workers=workers, **options), seconds=1.4 * trial_s)
        return pace.rate(0.4 * trial_s, 1.4 * trial_s)

    def torchs(workers: int) -> float:
        pace = go(lambda: bench.torch(data, num_workers=workers, **options), seconds=1.4 * trial_s)
        return pace.rate(0.4 * trial_s, 1.4 * trial_s)

    grid = {}
    for name, workers in GRID.items():
        bench.tell(f"fixed, {name}")
        grid[name] = fixed(workers)
    best = max(grid, key=grid.__getitem__)
    bench.tell("auto")
    loaders: list[Any] = []

    def auto() -> Any:
        loaders.append(stoker.DataLoader(data, num_workers="auto", **options))
        return loaders[-1]

    pace = go(auto, seconds=long_s)
    stats = loaders.pop().stats(memory=False)
    bench.tell("the best once more, and torch")
    again = fixed(GRID[best])
    torch_best = max(torchs(workers) for workers in (0, 1, 2))
    after = pace.rate(long_s - 4 if long_s > 8 else 0.6 * long_s, long_s)
    known = min(again, grid[best])
    size = stats.fixed if stats.fixed is not None else stoker.Workers()
    detail = (
        f"{per_s(after)} with {size.processes} × {size.lanes} after {stats.changes} changes; best fixed: {best}, "
        f"{per_s(again)}; torch {per_s(torch_best)}"
    )
    findings = (
        Finding(f"{dataset}/{model}: after 20 s", "at least", 0.9, after / again, "× best fixed", detail),
        Finding(
            f"{dataset}/{model}: from the first second on",
            "at least",
            0.85,
            pace.rate(0, long_s) / known,
            "× best fixed",
            "",
        ),
        Finding(f"{dataset}/{model}: against torch's best", "at least", 1.0, after / torch_best, "× torch", ""),
        Finding(
            f"{dataset}/{model}: at its pace after", "at most", 20.0, _converged_s(pace, 0.9 * after, long_s), "s", ""
        ),
    )
    return Result(
        f"{case.title}, batch {case.batch_size}, model {model}",
        findings,
        {
            "grid, samples/s": list(grid.values()),
            "auto, samples/s": [pace.rate(s, s + 1) for s in range(int(long_s) - 1)],
        },
    )


def _converged_s(pace: Pace, rate: float, seconds: float) -> float:
    """When the loop first had, for two seconds, the rate that it ends with."""
    for half in range(int(2 * seconds) - 4):
        if pace.rate(half / 2, half / 2 + 2) >= rate:
            return half / 2
    return seconds


class Slowed(Many):
    """Waits for as long as a number in a file says: storage that becomes slower in the midst of a run."""

    def __init__(self, path: Path, delay_s: float) -> None:
        self.delay = np.memmap(path, np.float64, "w+", shape=1)
        self.delay[0] = delay_s

    def __getitem__(self, index: int) -> Any:
        time.sleep(float(self.delay[0]))
        return np.full(16, index % 1000, np.float32)


class Python1(Many):
    """1 ms of Python."""

    def __getitem__(self, index: int) -> Any:
        until_s = time.thread_time() + 0.001
        while time.thread_time() < until_s:
            pass
        return np.full(16, index % 1000, np.float32)


def change(bench: Bench, dataset: Any, model: Model, happen: Callable[[], Any], title: str) -> Result:
    """Train, let something happen after 20 s, and compare 11 to 15 s later with what is then best."""
    before_s, after_s = (2.0, 3.0) if bench.quick else (20.0, 15.0)
    options: dict[str, Any] = {"batch_size": 32}
    begun_s, undo, happened = time.perf_counter(), [], []

    def step(batch: Any) -> None:
        model(batch)
        if not happened and time.perf_counter() - begun_s > before_s:
            happened.append(True)
            undo.append(happen())

    loaders: list[Any] = []

    def auto() -> Any:
        loaders.append(stoker.DataLoader(dataset, num_workers="auto", **options))
        return loaders[-1]

    pace = train(auto, 32, step, before_s + after_s, begun_s)
    stats = loaders.pop().stats(memory=False)
    now = {}
    for name, workers in GRID.items():
        trial_s = 0.5 if bench.quick else 3.5
        found = train(lambda: stoker.DataLoader(dataset, workers=workers, **options), 32, model, trial_s)  # noqa: B023
        now[name] = found.rate(0.3 * trial_s, trial_s)
    if undo and undo[0] is not None:
        undo[0]()
    best = max(now, key=now.__getitem__)
    reached = pace.rate(before_s + after_s - 4, before_s + after_s)
    detail = f"{per_s(reached)}; best fixed then: {best}, {per_s(now[best])}; {stats.changes} changes in all"
    found = Finding(f"{title}: 15 s later", "at least", 0.9, reached / now[best], "× best fixed", detail)
    series = {"auto, samples/s": [pace.rate(s, s + 1) for s in range(int(before_s + after_s) - 1)]}
    return Result(title, (found,), series)


def slower_storage(bench: Bench) -> Result:
    """Storage becomes ten times slower."""
    dataset = Slowed(bench.folder / "delay", 0.002)

    def happen() -> None:
        dataset.delay[0] = 0.02

    return change(bench, dataset, MODELS["none"], happen, "2 ms of waiting a sample, then 20 ms")


def quicker_model(bench: Bench) -> Result:
    """The model becomes five times faster."""
    step_s = [0.05]

    def model(batch: Any) -> None:
        time.sleep(step_s[0])

    def happen() -> None:
        step_s[0] = 0.01

    return change(bench, Python1(), model, happen, "1 ms of Python a sample; steps of 50 ms, then 10 ms")


def taken_core(bench: Bench) -> Result:
    """Another process takes a core."""

    def happen() -> Callable[[], None]:
        other = multiprocessing.get_context("fork").Process(target=_spin, daemon=True)
        other.start()

        def undo() -> None:
            other.kill()
            other.join()

        return undo

    return change(bench, Python1(), MODELS["none"], happen, "1 ms of Python a sample, beside a process that computes")


def _spin() -> None:
    while True:
        computing_model(None)


def two_ranks(bench: Bench) -> Result:
    """Two ranks start on the host, each with a loader of its own."""
    os.environ["LOCAL_WORLD_SIZE"] = "2"
    try:
        return _two_ranks(bench)
    finally:
        del os.environ["LOCAL_WORLD_SIZE"]


def _two_ranks(bench: Bench) -> Result:
    seconds = 2.0 if bench.quick else 15.0
    rates = {}
    for name, workers in {"auto": None, "1": GRID["1"], "2": GRID["2"], "none": GRID["none"]}.items():
        context = multiprocessing.get_context("fork")
        results = context.SimpleQueue()
        ranks = [context.Process(target=_rank, args=(workers, seconds, results)) for _ in range(2)]
        for rank in ranks:
            rank.start()
        rates[name] = results.get() + results.get()
        for rank in ranks:
            rank.join()
    best = max((name for name in rates if name != "auto"), key=rates.__getitem__)
    detail = f"both ranks: {per_s(rates['auto'])}; best fixed: {best}, {per_s(rates[best])}"
    found = Finding(
        "two ranks on two cores: after 15 s", "at least", 0.9, rates["auto"] / rates[best], "× best fixed", detail
    )
    return Result("1 ms of Python a sample, two ranks on two cores", (found,), {})


def _rank(workers: stoker.Workers | None, seconds: float, results: Any) -> None:
    who: dict[str, Any] = {"num_workers": "auto"} if workers is None else {"workers": workers}
    pace = train(lambda: stoker.DataLoader(Python1(), batch_size=32, **who), 32, MODELS["none"], seconds)
    results.put(pace.rate(0.7 * seconds, seconds))


def steady(bench: Bench) -> Result:
    """Ten minutes of steady training: how often it changes its mind, and what it costs."""
    seconds, turns = (4.0, 2) if bench.quick else (600.0, 8)
    dataset, options = Python1(), {"batch_size": 32, "persistent_workers": True}
    auto = stoker.DataLoader(dataset, num_workers="auto", **options)
    batches = _for_ever(auto)
    _during(batches, min(20.0, seconds))
    before = auto.stats(memory=False)
    fixed = _for_ever(stoker.DataLoader(dataset, workers=before.fixed, **options))
    pairs = []
    for _ in range(turns):  # the other one's workers are idle meanwhile
        pairs.append(_during(batches, seconds / 40) / _during(fixed, seconds / 40))
    _during(batches, max(0.0, seconds - seconds / 20 * turns))
    changes = auto.stats(memory=False).changes - before.changes
    findings = (
        Finding("against the same fixed setting", "at least", 0.99, median(pairs), "× fixed", "median of pairs"),
        Finding("changes in ten minutes", "at most", 3, float(changes), "", ""),
    )
    return Result("1 ms of Python a sample, batch 32", findings, {"auto over fixed, pairs": pairs})


def _during(batches: Iterator[Any], seconds: float) -> float:
    """Batches per second."""
    count, begun_s = 0, time.perf_counter()
    while (passed_s := time.perf_counter() - begun_s) < seconds:
        next(batches)
        count += 1
    return count / max(1e-9, passed_s)


def _case(dataset: str, model: str) -> Callable[[Bench], Result]:
    def case(bench: Bench) -> Result:
        return against_grid(dataset, model, bench)

    case.__doc__ = f"{DATASETS[dataset].title}, {(MODELS[model].__doc__ or '').rstrip('.').lower()}."
    return case


COLUMNS = {
    "after 20 s": "after 20 s, × best fixed (≥ 0.9)",
    "from the first second on": "in all (≥ 0.85)",
    "torch's best": "× torch's best (≥ 1)",
    "at its pace after": "at its pace after, s",
    "15 s later": "15 s after the change (≥ 0.9)",
    "after 15 s": "two ranks (≥ 0.9)",
}


def _table(record: Record) -> str:
    """A row a case; the changes and the steady run in tables of their own."""
    grid, changes, steadily = ({**record.cases}, {}, {})
    for name in list(grid):
        if name in CHANGES:
            (steadily if name == "steady" else changes)[name] = grid.pop(name)
    shown = list(COLUMNS.items())
    parts = [case_table(replace(record, cases=grid), dict(shown[:4]))]
    if changes:
        parts.append(case_table(replace(record, cases=changes), dict(shown[4:])))
    if steadily:
        columns = {"fixed setting": "× the same fixed setting (≥ 0.99)", "minutes": "changes in ten minutes (≤ 3)"}
        parts.append(case_table(replace(record, cases=steadily), columns))
    return "\n\n".join(parts)


CASES = {f"{dataset}/{model}": _case(dataset, model) for dataset in DATASETS for model in MODELS}
CHANGES = {"storage": slower_storage, "model": quicker_model, "core": taken_core, "ranks": two_ranks, "steady": steady}
SUITE = Suite("auto", "What auto comes to while a model trains.", {**CASES, **CHANGES}, PAGE, table=_table)

if __name__ == "__main__":
    sys.exit(run(SUITE, sys.argv[1:]))
