"""Records as a run would have left them, with numbers that can be checked in the head."""

from __future__ import annotations

from stoker.bench.runs import Span, TrialRecord, Trouble
from stoker.bench.settings import Setting
from stoker.bench.trial import Trial

HOSTILE = "<img src=x onerror=alert(1)></script><b>evil</b> $x$ [red]"
MACHINE = {"cores": 2, "memory_gib": 24.0, "system": "Linux 6", "processor": "a processor"}
VERSIONS = {"stoker": "0.1.0", "torch": "2.13.0"}
SPEEDS = {"torch": 100.0, "stoker": 200.0}
BATCHES = 8


def record(setting: Setting, repeat: int, samples_per_s: float, **fields: object) -> TrialRecord:
    """A pass of eight batches; a third of the waiting is for the first."""
    samples = BATCHES * (setting.batch_size or 1)
    waiting_s = samples / samples_per_s
    later_s = waiting_s * 2 / 3 / (BATCHES - 1)
    trial = Trial(
        samples, samples * 10, 0.0, (waiting_s / 3, *[later_s] * (BATCHES - 1)), (setting.sleep_s,) * BATCHES, 0.0
    )
    costs = {"peak_pss_bytes": 250_000_000, "cpu_s": samples * 0.002, "memory_samples": 3}
    facts = {"machine": MACHINE, "versions": VERSIONS, "measured_at": "2026-01-01T00:00:00+00:00"}
    return TrialRecord(setting, repeat, trial=trial, **{**costs, **facts, **fields})  # type: ignore[arg-type]


def records(dataset: str = "photos", sleeps_s: tuple[float, ...] = (0.0, 0.5)) -> list[TrialRecord]:
    """Two loaders, two batch sizes, workers 0 to 2, three repeats of ±5 %; a timeline; one setting that failed."""
    made = []
    for repeat, factor in enumerate((0.95, 1.0, 1.05)):
        for sleep_s in sleeps_s:
            for size in (8, 16):
                for workers in (0, 1, 2):
                    for loader, speed in SPEEDS.items():
                        setting = Setting(dataset, loader, size, workers, sleep_s=sleep_s)
                        made.append(record(setting, repeat, speed * (workers + 1) * factor))
    noted = Setting(dataset, "stoker", 16, 2, sleep_s=sleeps_s[-1])
    spans = (Span(11, 0, 0.0, 0.1), Span(12, 0, 0.01, 0.1), Span(11, 1, 0.1, 0.2))
    made.append(record(noted, 0, 500.0, kind="timeline", spans=spans))
    failure = Trouble("KeyError", "'no label'", "data.py:12 in __getitem__", "Traceback of <it>")
    made.append(TrialRecord(Setting(dataset, "torch", 8, 4), 0, failure=failure, machine=MACHINE, versions=VERSIONS))
    return made
