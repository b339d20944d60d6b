"""How long an epoch will take with given workers, foretold from a few samples; and which workers are worth a look.

A crew of P processes × L lanes is held up by whichever of these is the tightest (a sample waits w, computes c with
copying it into its batch, and g of that holding its process's GIL):

    lanes   each has one sample at a time          P · L / (w + c)    samples/s
    cores   the computing of all of them           cores / c
    GIL     one in each process                    P / g

and before the first sample it has to be started. The model is coarse. It need not be right to the percent: for
`num_workers="auto"` it has to tell clear gains from losses, and for `stoker tune`, which measures, it says where to
begin. So both use this one, and nothing here loads or measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stoker.auto.probe import Probe
from stoker.options import Workers

INLINE = Workers()

# Starting a forked worker, until it has loaded something: measured as the first batch's delay (benchmarks/engine.py's
# machine, torch imported, 2 workers: 50 ms). It is paid one after the other, the training process being who forks.
_FORK_S = 0.025
_SPAWN_S = 2.5  # starting one that imports torch anew; they do so at the same time, as far as there are cores
_THREAD_S = 0.0005
# What a further core adds: cores share caches and memory, and two threads of one core count as two. Two busy processes
# were measured at 1.3 to 1.9 times the speed of one.
_FURTHER_CORE = 0.7
_HAND_OVER_S = 12e-6  # a row's own cost when another process or thread makes it; measured: benchmarks/engine.py
_MOST_PROCESSES = 16
_AS_GOOD = 1.05  # forecasts closer than this are the same: the one with fewer hands is taken


@dataclass(frozen=True)
class Forecast:
    """What is expected of a crew, in seconds: to start it, to load an epoch with it, and of the model meanwhile."""

    workers: Workers
    start_s: float
    load_s: float
    model_s: float = 0.0

    @property
    def epoch_s(self) -> float:
        """Inline, loading and model take turns; otherwise the slower of the two is seen."""
        if self.hands == (0, 1):
            return self.load_s + self.model_s
        return self.start_s + max(self.load_s, self.model_s)

    @property
    def hands(self) -> tuple[int, int]:
        """For order: fewer processes first, then fewer lanes."""
        return self.workers.processes, self.workers.lanes


def forecast(measured: Probe, workers: Workers, core_count: int, start_method: str, model_s: float = 0.0) -> Forecast:
    """What an epoch with these workers should take, beside a model that takes `model_s` for all of it."""
    started = start_s(workers, core_count, workers.start_method or start_method)
    return Forecast(workers, started, measured.length * sample_s(measured, workers, core_count), model_s)


def start_s(workers: Workers, core_count: int, start_method: str) -> float:
    """Until all hands are there."""
    threads_s = _THREAD_S * (workers.total_lanes if workers.lanes > 1 else 0)
    if start_method == "fork":
        return _FORK_S * workers.processes + threads_s
    return _SPAWN_S * -(-workers.processes // core_count) + threads_s


def sample_s(measured: Probe, workers: Workers, core_count: int) -> float:
    """From one sample to the next, when all hands are busy."""
    copying_s = measured.copy_s
    if workers.is_inline:
        return measured.seconds + copying_s
    busy_s = measured.seconds * (1 - measured.waiting)
    running = min(core_count, workers.total_lanes)
    by_lanes_s = (measured.seconds + copying_s + _HAND_OVER_S) / workers.total_lanes
    by_cores_s = (busy_s + copying_s + _HAND_OVER_S) / (1 + _FURTHER_CORE * (running - 1))
    by_gil_s = (measured.gil_held * busy_s + _HAND_OVER_S) / max(1, workers.processes) if workers.lanes > 1 else 0.0
    return max(by_lanes_s, by_cores_s, by_gil_s)


def ranked(forecasts: Iterable[Forecast]) -> list[Forecast]:
    """The quickest epoch first; of two that are as quick, the smaller crew first."""
    left = sorted(forecasts, key=lambda it: it.epoch_s)
    order = []
    while left:
        as_good = [one for one in left if one.epoch_s <= _AS_GOOD * left[0].epoch_s]
        best = min(as_good, key=lambda it: it.hands)
        left.remove(best)
        order.append(best)
    return order


def crews(core_count: int, lanes: Iterable[int], in_processes: bool = True, most_lanes: int = 32) -> Iterator[Workers]:
    """Every crew of up to a process per core, each with these numbers of lanes, `most_lanes` altogether."""
    for processes in process_counts(core_count) if in_processes else (0,):
        for count in lanes:
            crew = Workers.with_lanes(processes, count)
            if crew.total_lanes <= max(most_lanes, processes) and (processes or count > 1):
                yield crew


def process_counts(core_count: int) -> list[int]:
    """1, 2, 4, … and as many as there are cores, within reason."""
    most = min(core_count, _MOST_PROCESSES)
    return sorted({count for count in (1, 2, 4, 8, 16) if count < most} | {most})
