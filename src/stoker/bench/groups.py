"""Repeats of one setting put together: means, standard deviations, and whether they can be believed.

    records ──► groups   one a setting, in the order of first measuring
                  └── metric(name) ──► Summary over the repeats

Every table, plot and page shows groups, so a number is computed in one place. A metric is a name, a unit and a
function of a record; the list METRICS is what can be shown.

A group is unstable when its repeats lie further apart than a fifth of their median. `advice` then says what to try,
from what the records know: too short a pass, a slow first repeat, a machine with other things to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stoker.bench.plan import TIMELINE, TRIAL
from stoker.bench.runs import TrialRecord, Trouble
from stoker.bench.settings import Setting
from stoker.bench.statistics import Summary, quantile, summarise

_SHORT_PASS_S = 1.0  # shorter than this, a single hiccup of the system can be a fifth of it: a guess
_SLOW_FIRST = 1.2


@dataclass(frozen=True)
class Metric:
    """One number of a trial that can be shown."""

    name: str
    title: str
    unit: str
    of: Callable[[TrialRecord], float]


def _later_ms(record: TrialRecord) -> float:
    trial = record.measured
    return 1e3 * (trial.later_step_s if trial.batches > 1 else trial.seconds)


def _wait_ms(record: TrialRecord) -> float:
    trial = record.measured
    return 1e3 * sum(trial.waits_s) / trial.batches


METRICS = {
    metric.name: metric
    for metric in (
        Metric("samples_per_s", "throughput", "samples/s", lambda record: record.measured.samples_per_s),
        Metric("seconds", "time of the pass", "s", lambda record: record.measured.seconds),
        Metric("wait_ms", "loading time a batch", "ms", _wait_ms),
        Metric("step_ms", "time of a step after the first", "ms", _later_ms),
        Metric("wait_share", "share of the pass spent waiting", "%", lambda record: 1e2 * record.measured.wait_share),
        Metric("p50_ms", "median wait", "ms", lambda record: 1e3 * quantile(record.measured.waits_s, 0.5)),
        Metric("p99_ms", "wait, 99th percentile", "ms", lambda record: 1e3 * quantile(record.measured.waits_s, 0.99)),
        Metric("first_batch_ms", "time to the first batch", "ms", lambda record: 1e3 * record.measured.first_batch_s),
        Metric("startup_ms", "start-up", "ms", lambda record: 1e3 * record.startup_s),
        Metric("memory_mb", "peak memory, all processes", "MB", lambda record: record.peak_pss_bytes / 1e6),
        Metric("cpu_ms", "processor time a sample", "ms", lambda record: 1e3 * record.cpu_s_per_sample),
    )
}


@dataclass(frozen=True)
class Group:
    """The measured repeats of a setting, and its failure if it has one."""

    setting: Setting
    records: tuple[TrialRecord, ...]
    failure: Trouble | None = None

    def metric(self, name: str) -> Summary:
        """A metric over the repeats; ValueError if nothing was measured."""
        return summarise([METRICS[name].of(record) for record in self.records])

    @property
    def typical(self) -> TrialRecord:
        """The repeat in the middle by time: a pass that happened."""
        return sorted(self.records, key=lambda record: record.measured.seconds)[(len(self.records) - 1) // 2]

    @property
    def is_stable(self) -> bool:
        """Whether the times of the repeats lie close enough together."""
        return not self.records or self.metric("seconds").is_steady

    @property
    def advice(self) -> str:
        """What to try about an unstable result; empty if it is stable."""
        if self.is_stable:
            return ""
        times = [record.measured.seconds for record in sorted(self.records, key=lambda record: record.repeat)]
        if min(times) < _SHORT_PASS_S:
            return f"a pass took only {min(times):.2g} s: more --batches"
        if len(times) > 2 and times[0] > _SLOW_FIRST * max(times[1:]):
            return "the first repeat was the slowest: more --warmup"
        cores = self.records[0].machine.get("cores") or 1
        load = max(record.load_before for record in self.records)
        if load > cores:
            return f"up to {load:g} processes wanted {cores} cores: a quieter machine"
        return "more --repeats, or a quieter machine"


def group(records: Iterable[TrialRecord]) -> list[Group]:
    """Trials by setting; timelines are left out."""
    by_setting: dict[Setting, list[TrialRecord]] = {}
    for record in records:
        if record.kind == TRIAL:
            by_setting.setdefault(record.setting, []).append(record)
    return [_group(setting, found) for setting, found in by_setting.items()]


def timelines(records: Iterable[TrialRecord], groups: Iterable[Group] = ()) -> list[TrialRecord]:
    """The trials that noted who loaded what when; where there are none, a typical one of each group."""
    noted = [record for record in records if record.kind == TIMELINE and record.trial is not None]
    return noted or [found.typical for found in groups if found.records]


def _group(setting: Setting, records: list[TrialRecord]) -> Group:
    measured = tuple(record for record in records if record.trial is not None)
    failures = [record.failure for record in records if record.failure is not None]
    return Group(setting, measured, failures[-1] if failures else None)
