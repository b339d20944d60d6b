"""Saved trials of a run: one JSON line each, appended as soon as it is measured.

    runs/faces/plan.json      what the run measures, and where it began
    runs/faces/trials.jsonl   one line a trial, in the order of measuring

A line is whole in itself: setting, raw series, machine, versions. So files of several runs may be concatenated, and a
program that knows nothing of Stoker can use them; what follows from the series (samples/s, quantiles) is written down
for it too, but when a line is read again, it is computed anew from the series, never believed.

A crash loses at most the line under way. A line that cannot be read is left out, with a message that names it; the next
line is written after it, on a line of its own. Of two lines for the same turn the later one counts: a turn that failed
is tried again when the run is continued.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stoker.bench.plan import TRIAL, Turn
from stoker.bench.settings import Setting
from stoker.bench.statistics import quantile
from stoker.bench.trial import Trial

SCHEMA = 1
TRIALS_FILE = "trials.jsonl"
QUANTILES = (0.5, 0.9, 0.99, 1.0)
_TRIFLE_S = 2e-6  # calling a model that does nothing takes less


@dataclass(frozen=True)
class Trouble:
    """Why a trial has no result; `place` is the line of the user's code where it was raised, if there was one."""

    type: str
    message: str
    place: str = ""
    traceback: str = ""

    def __str__(self) -> str:
        place = f" at {self.place}" if self.place else ""
        return f"{self.type}{place}: {self.message}"


@dataclass(frozen=True)
class Span:
    """Work of one worker: it loaded samples of `batch` from `start_s` to `end_s`, counted from the pass's beginning."""

    worker: int  # the process id
    batch: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class TrialRecord:
    """One turn and what became of it: a trial with what it cost, or a failure."""

    setting: Setting
    repeat: int
    kind: str = TRIAL
    trial: Trial | None = None
    failure: Trouble | None = None
    build_s: float = 0.0  # calling the loader's constructor
    warmup_s: float = 0.0
    peak_pss_bytes: int = 0
    memory_samples: int = 0  # how often memory was looked at
    cpu_s: float = 0.0
    spans: tuple[Span, ...] = ()
    measured_at: str = ""
    took_s: float = 0.0
    load_before: float = 0.0
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def turn(self) -> Turn:
        """The turn of the plan that this is the record of."""
        return Turn(self.setting, self.repeat, self.kind)

    @property
    def measured(self) -> Trial:
        """The trial; ValueError for a record of a failure."""
        if self.trial is None:
            raise ValueError(f"{self.setting.key} was not measured: {self.failure}")
        return self.trial

    @property
    def startup_s(self) -> float:
        """From calling the constructor to holding an iterator."""
        return self.build_s + self.measured.start_s

    @property
    def cpu_s_per_sample(self) -> float:
        """Seconds of processor, user and system, over all processes, for one sample."""
        return self.cpu_s / self.measured.samples if self.measured.samples else 0.0


class Run:
    """The folder of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / TRIALS_FILE

    def append(self, record: TrialRecord) -> None:
        """Write one line, on a line of its own even after one that was cut short."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            if file.tell() > 0:
                file.seek(-1, 2)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(to_line(record).encode() + b"\n")

    def load(self) -> tuple[list[TrialRecord], list[str]]:
        """The records, the later of two for the same turn, and a message for each line that cannot be read."""
        records: dict[tuple[str, int, str], TrialRecord] = {}
        problems: list[str] = []
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = from_line(line.decode())
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                problems.append(_problem(self.path, number, line, error))
                continue
            records.pop(record.turn.name, None)
            records[record.turn.name] = record
        return list(records.values()), problems


def load_runs(folders: Iterable[Path]) -> tuple[list[TrialRecord], list[str]]:
    """The records of several runs together; FileNotFoundError if a folder has none."""
    records: list[TrialRecord] = []
    problems: list[str] = []
    for folder in folders:
        run = Run(folder)
        if not run.path.exists():
            raise FileNotFoundError(f"no {TRIALS_FILE} in {folder}: `stoker bench TARGET --run {folder}` makes one")
        found, trouble = run.load()
        records += found
        problems += trouble
    return records, problems


def to_line(record: TrialRecord) -> str:
    """The record as one line of JSON."""
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": record.kind,
        "setting": asdict(record.setting),
        "repeat": record.repeat,
        "status": "ok" if record.trial is not None else "failed",
        "measured_at": record.measured_at,
        "took_s": _short(record.took_s),
        "load_before": record.load_before,
    }
    if record.trial is not None:
        fields |= {**_measured_fields(record), **_derived_fields(record)}
    if record.failure is not None:
        fields["error"] = asdict(record.failure)
    fields |= {"machine": dict(record.machine), "versions": dict(record.versions)}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _measured_fields(record: TrialRecord) -> dict[str, Any]:
    trial = record.measured
    models = trial.models_s if max(trial.models_s, default=0.0) > _TRIFLE_S else ()
    return {
        "samples": trial.samples,
        "size_bytes": trial.size_bytes,
        "warmup_s": _short(record.warmup_s),
        "build_s": _short(record.build_s),
        "start_s": _short(trial.start_s),
        "waits_s": [_short(value) for value in trial.waits_s],
        "models_s": [_short(value) for value in models],  # empty: no model
        "end_s": _short(trial.end_s),
        "peak_pss_bytes": record.peak_pss_bytes,
        "memory_samples": record.memory_samples,
        "cpu_s": _short(record.cpu_s),
        "spans": [[span.worker, span.batch, _short(span.start_s), _short(span.end_s)] for span in record.spans],
    }


def _derived_fields(record: TrialRecord) -> dict[str, Any]:
    trial = record.measured
    return {
        "seconds": _short(trial.seconds),
        "samples_per_s": _short(trial.samples_per_s),
        "startup_s": _short(record.startup_s),
        "first_batch_s": _short(trial.first_batch_s) if trial.waits_s else None,
        "wait_share": _short(trial.wait_share),
        "wait_quantiles_s": {f"{q:g}": _short(quantile(trial.waits_s, q)) for q in QUANTILES} if trial.waits_s else {},
        "cpu_s_per_sample": _short(record.cpu_s_per_sample),
    }


def from_line(line: str) -> TrialRecord:
    """A record from its line; ValueError, TypeError or KeyError if it is not one."""
    fields = json.loads(line)
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        found = fields.get("schema") if isinstance(fields, dict) else None
        raise ValueError(f"schema {found!r}, this code reads {SCHEMA}")
    ok = fields["status"] == "ok"
    return TrialRecord(
        setting=Setting(**fields["setting"]),
        trial=_trial(fields) if ok else None,
        failure=None if ok else Trouble(**fields["error"]),
        spans=tuple(Span(*values) for values in fields.get("spans", ())),
        **{name: fields[name] for name in ("kind", "repeat", "measured_at", "took_s", "load_before")},
        **{name: fields[name] for name in ("machine", "versions")},
        **({name: fields[name] for name in _COSTS} if ok else {}),
    )


_COSTS = ("build_s", "warmup_s", "peak_pss_bytes", "memory_samples", "cpu_s")


def _trial(fields: Mapping[str, Any]) -> Trial:
    waits, models = tuple(fields["waits_s"]), tuple(fields["models_s"])
    if models and len(models) != len(waits):
        raise ValueError(f"{len(waits)} waits but {len(models)} steps of the model")
    return Trial(
        samples=fields["samples"],
        size_bytes=fields["size_bytes"],
        start_s=fields["start_s"],
        waits_s=waits,
        models_s=models or (0.0,) * len(waits),
        end_s=fields["end_s"],
    )


def _short(value: float) -> float:
    """Five figures, at most to the microsecond's tenth: no clock here knows more, and lines stay short."""
    return round(float(f"{value:.5g}"), 7)


def _problem(path: Path, number: int, line: bytes, error: Exception) -> str:
    shown = line[:60].decode(errors="replace") + ("…" if len(line) > 60 else "")
    return f"{path}, line {number} was left out, it is no record ({type(error).__name__}: {error}): {shown}"
