"""What watching costs: the statistics that are always on, and a trace.

    python benchmarks/overhead.py                 all cases; about a minute
    python benchmarks/overhead.py --only trace    one case (may be given several times)
    python benchmarks/overhead.py --quick         small sizes: does everything run?

"Bare" is the same loader with everything cut out of a step that is there for statistics: clocks, counts, chores. Bare
and watched iterators live side by side and take turns of a hundred batches, so that a machine that changes its mood
changes it for both. The loaders do next to nothing, because a difference of half a microsecond drowns in the noise of a
batch that takes a hundred; what is found is then told as a share of such a batch. What is timed is the processor time
of the training thread: a cost cannot hide there, and other programs disturb it little. The cost is the difference of
the quickest twentieth of the turns (neighbours only ever add); what happens more seldom than each step is timed by
itself and added. The record is benchmarks/results/overhead.json, and `docs/measuring.md` is rendered from it.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import engine_data as data
import torch
import torch.utils.data
from engine_bench import Bench, Result
from render import findings_table
from suite import Suite, run

import stoker
from stoker.bench import Finding, median, quantile
from stoker.watch.page import Page
from stoker.watch.tally import _LOOK_SHARE as LOOK_SHARE
from stoker.watch.tally import Memory, PassTally
from stoker.watch.watch import PassWatch

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measuring.md"
SETTINGS = "shares are of a batch that takes 100 µs: 10 000 batches/s"
BATCH_US, WORKED_BATCH_US = 100.0, 1000.0
TURN = 100  # batches
QUIET = 0.05  # of the turns, the quickest: neighbours only ever add
STEPS_SUMMED_UP = 4096


class Unwatched:
    """Stands in the place of a pass's watch, and counts nothing."""

    def __init__(self, watch: PassWatch) -> None:
        self.count = watch.count

    def __getattr__(self, name: str) -> Any:
        return self._nothing

    def _nothing(self, *_event: Any) -> None:
        pass

    asked = got = missed = heard = ready = taken = _nothing


def _bare(batches: Any) -> Any:
    """The pass with nobody watching."""
    batches._loop = batches._watch = Unwatched(batches._watch)
    return batches


def inline(bench: Bench) -> Result:
    """Statistics of an inline loader that gives 10 000 batches a second."""
    loader = _quick_loader()
    turns = _turns(_bare(iter(loader)), iter(loader), bench.sized(600, 5))
    chores = {"page": _page_us(bench), "look": _look_us(bench), "sum": _sum_us(bench)}
    page_us, look_us, sum_us = (median(values) for values in chores.values())
    step_us = _more_us(turns) + sum_us / STEPS_SUMMED_UP
    # By design: a page a second, and looks at memory for a thousandth of the time.
    share = 100 * step_us / BATCH_US
    with_chores = share + 100 * page_us / 1e6 + 100 / LOOK_SHARE
    a_step, a_page = f"{step_us:.2f} µs a batch", f"a page takes {page_us:,.0f} µs each second"
    a_look = f"a look {look_us / 1e3:,.1f} ms each {look_us * LOOK_SHARE / 1e6:,.0f} s"
    findings = (
        Finding("statistics, each step", "at most", 1.0, share, "%", a_step),
        Finding("the same, with pages and looks at memory", "at most", 1.0, with_chores, "%", f"{a_page}, {a_look}"),
    )
    series = {f"{name}, µs a batch": values for name, values in turns.items()}
    return Result(SETTINGS, findings, series | {f"{name}, µs": values for name, values in chores.items()})


def workers(bench: Bench) -> Result:
    """Statistics of a loader with two workers."""
    dataset = data.Nothing(10**6)
    bare, watched = (stoker.DataLoader(dataset, 8, num_workers=2) for _ in range(2))
    turns = _turns(_bare(iter(bare)), iter(watched), bench.sized(150, 3))
    share = 100 * _more_us(turns) / WORKED_BATCH_US
    detail = f"{_more_us(turns):.2f} µs of the training process a batch, two reports each"
    found = Finding("statistics, two workers, batches of 1 ms", "at most", 1.0, share, "%", detail)
    return Result("batches of 8 empty samples", (found,), {f"{name}, µs a batch": v for name, v in turns.items()})


def trace(bench: Bench) -> Result:
    """A trace, inline at 10 000 batches a second and with two workers."""
    loader, count = _quick_loader(), bench.sized(100, 3)
    bare = iter(loader)
    with loader.trace(bench.folder / "inline.json"):
        turns = _turns(bare, iter(loader), count)
    plain, traced = (stoker.DataLoader(data.Nothing(10**6), 8, num_workers=2) for _ in range(2))
    with traced.trace(bench.folder / "workers.json"):
        crewed = _turns(iter(plain), iter(traced), count)
    size_bytes = (bench.folder / "workers.json").stat().st_size / (TURN * (count + 1))
    share, crewed_share = 100 * _more_us(turns) / BATCH_US, 100 * _more_us(crewed) / WORKED_BATCH_US
    findings = (
        Finding("a trace, inline", "at most", 50.0, share, "%", f"{_more_us(turns):.0f} µs a batch"),
        Finding(
            "a trace, two workers, batches of 1 ms",
            "at most",
            50.0,
            crewed_share,
            "%",
            f"{_more_us(crewed):.0f} µs and {size_bytes:,.0f} bytes a batch",
        ),
    )
    series = {f"inline {name}, µs a batch": values for name, values in turns.items()}
    return Result(SETTINGS, findings, series | {f"workers {name}, µs a batch": v for name, v in crewed.items()})


def _quick_loader() -> stoker.DataLoader[Any]:
    return stoker.DataLoader(torch.utils.data.TensorDataset(torch.arange(2_000_000)), 8)


def _turns(bare: Iterator[Any], watched: Iterator[Any], count: int) -> dict[str, list[float]]:
    """What a batch takes in each turn, in microseconds of the training thread; the first turn of both warms up."""
    both, taken = {"bare": bare, "watched": watched}, {"bare": [0.0] * 0, "watched": [0.0] * 0}
    for number in range(count + 1):
        for name in ("bare", "watched") if number % 2 else ("watched", "bare"):
            taken[name].append(_turn_us(both[name]))
    return {name: values[1:] for name, values in taken.items()}


def _turn_us(batches: Iterator[Any]) -> float:
    begun_ns = time.thread_time_ns()
    for _ in range(TURN):
        next(batches)
    return (time.thread_time_ns() - begun_ns) / 1e3 / TURN


def _more_us(turns: dict[str, list[float]]) -> float:
    return quantile(turns["watched"], QUIET) - quantile(turns["bare"], QUIET)


def _sum_us(bench: Bench) -> list[float]:
    taken = []
    for _ in range(bench.sized(50, 3)):
        count = PassTally(0, 0, Unwatched, 0, deque(maxlen=STEPS_SUMMED_UP))
        for step in range(STEPS_SUMMED_UP):
            count.log.extend((step * 10**6, step * 10**6 + 500, 8, 64))
        taken.append(_timed_us(count.sum_up))
    return taken


def _page_us(bench: Bench) -> list[float]:
    page = Page({"dataset": "TensorDataset", "workers": 0})
    numbers = {"steps": 10**6, "samples": 10**7, "samples_per_s": 1e4, "wait_share": 0.5, "worker_pids": [1, 2]}
    taken = [_timed_us(lambda: page.write(numbers)) for _ in range(bench.sized(50, 3))]
    page.remove()
    return taken


def _look_us(bench: Bench) -> list[float]:
    memory = Memory()
    return [_timed_us(lambda: memory.look([])) for _ in range(bench.sized(20, 3))]


def _timed_us(do: Callable[[], object]) -> float:
    begun_ns = time.thread_time_ns()
    do()
    return (time.thread_time_ns() - begun_ns) / 1e3


CASES = {"inline": inline, "workers": workers, "trace": trace}
SUITE = Suite("overhead", "Measure what statistics and a trace cost.", CASES, PAGE, table=findings_table)

if __name__ == "__main__":
    sys.exit(run(SUITE, sys.argv[1:]))
