"""Saved records: what was claimed, what was measured, the raw series, and the machine it was measured on.

A record is one JSON file, written again after every case (to a partial file, then renamed), so a crash or a Ctrl-C
loses only the case under way. Tables and pages are rendered from records, never from memory, so whatever stands in
the documentation can be traced to the series it came from.

    Record ── machine, versions
       └── cases: name ── CaseRecord ── settings, series (raw numbers), measured_at, load
                             └── findings: claim, bound, measured, passed

A case may be measured again alone; it then replaces its older self. That mixes runs, but never machines: a record
from another machine or other versions is not continued (`Record.continues`).
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from stoker.bench.whole_files import written_whole

SCHEMA = 1


@dataclass(frozen=True)
class Finding:
    """One claim with its bound and what was measured; `detail` is the two sides of a ratio, for a reader."""

    claim: str
    sense: Literal["at least", "at most"]
    bound: float
    measured: float
    unit: str
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether the measured value keeps the bound."""
        return self.measured >= self.bound if self.sense == "at least" else self.measured <= self.bound


@dataclass(frozen=True)
class CaseRecord:
    """What one case gave: its findings, and the raw numbers they were computed from."""

    title: str
    settings: str
    findings: tuple[Finding, ...]
    series: Mapping[str, tuple[float, ...]]
    measured_at: str = ""
    took_s: float = 0.0
    load_before: float = 0.0


@dataclass
class Record:
    """All cases measured on one machine with one set of versions."""

    machine: dict[str, Any]
    versions: dict[str, str]
    cases: dict[str, CaseRecord] = field(default_factory=dict)

    def continues(self, machine: Mapping[str, Any], versions: Mapping[str, str]) -> bool:
        """Whether a case measured here and now may stand beside the cases of this record."""
        return dict(machine) == self.machine and dict(versions) == self.versions


def save_record(record: Record, path: Path) -> None:
    """Write the record whole or not at all."""
    text = json.dumps({"schema": SCHEMA, **asdict(record)}, indent=1, ensure_ascii=False)
    with written_whole(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def load_record(path: Path) -> Record:
    """Read a saved record; ValueError if the file is of another schema."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    if fields.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {fields.get('schema')!r}, this code reads {SCHEMA}; measure it again")
    cases = {name: _case(case) for name, case in fields["cases"].items()}
    return Record(machine=fields["machine"], versions=fields["versions"], cases=cases)


def _case(fields: dict[str, Any]) -> CaseRecord:
    findings = tuple(Finding(**finding) for finding in fields.pop("findings"))
    series = {name: tuple(values) for name, values in fields.pop("series").items()}
    return CaseRecord(findings=findings, series=series, **fields)


def machine_facts() -> dict[str, Any]:
    """What a reader must know of the machine: cores this process may use, memory, system, processor."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
    }


def version_facts(packages: Iterable[str]) -> dict[str, str]:
    """The versions of Python and of these packages; what is not installed says so."""
    return {"python": platform.python_version(), **{package: _version(package) for package in packages}}


def load_average() -> float:
    """How many processes wanted a core in the last minute; 0 where the system cannot tell."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def now() -> str:
    """The present moment, to the second, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _memory_gib() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
