"""Does `diagnose` name the right cause, and does a change give what it promised? Thirty constructed cases.

    python benchmarks/diagnose.py                  all cases; about five minutes on a quiet machine
    python benchmarks/diagnose.py --only "huge"    those whose name holds the words (may be given several times)

A case is diagnosed; then the change that was promised most is made, and the loader before and after it is measured
anew, taking turns, for longer than the trial was. The change has kept its promise if it gave at least half of it: of 3
times as fast, 2 times. The record, with all that was measured, is benchmarks/results/diagnose.json; the quick test of
judging (tests/diagnosis/test_cases.py) judges these facts again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diagnose_cases import CASES, Case
from render import replace_between
from rich.console import Console

from stoker.bench.rebuild import close
from stoker.bench.records import load_average, machine_facts, now, version_facts
from stoker.diagnosis import Change, Diagnosis, TriedChange, diagnose, diagnosis_from_json
from stoker.diagnosis.ground import Ground
from stoker.diagnosis.pace import Bounds
from stoker.diagnosis.rig import Rig, rig_of

HERE = Path(__file__).resolve().parent
RECORD = HERE / "results" / "diagnose.json"
PAGE = HERE.parent / "docs" / "diagnose.md"
SECONDS = 7.0
_CHECK_S = 0.7


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    case: str
    expected: str
    diagnosis: Diagnosis
    given: float | None  # how many times as fast the promised change made it; None: nothing was promised
    took_s: float

    @property
    def is_right(self) -> bool:
        return self.diagnosis.cause.name == self.expected

    @property
    def best(self) -> TriedChange | None:
        return self.diagnosis.changes[0] if self.diagnosis.changes else None

    @property
    def is_kept(self) -> bool:
        """Whether at least half of the promised gain was given."""
        return self.best is None or self.given is None or self.given - 1 >= 0.5 * (self.best.promise - 1)


def run_case(case: Case) -> Outcome:
    """Diagnose a case, make the change, and measure what it gives."""
    begun_at = time.perf_counter()
    loader, step = case.make()
    found = diagnose(loader, step, device=case.device, seconds=SECONDS)
    given = None
    if found.changes:
        given = _given(rig_of(loader, step, case.device), found.changes[0])
    close(loader)
    return Outcome(case.name, case.cause.name, found, given, time.perf_counter() - begun_at)


def _given(rig: Rig, tried: TriedChange) -> float:
    """Seconds before over seconds after the change: before, after, after, before."""
    ground = Ground(rig.loader, rig.given, taken=(rig.given.batches or 0) // 2)  # where the diagnosis has not read
    took = {False: 0.0, True: 0.0}
    for after in (False, True, True, False):
        change = tried.change if after else Change({})
        took[after] += ground.pace(Bounds(_CHECK_S), change, rig.as_in_training).per_sample(rig.given.batches)
    return took[False] / took[True]


def main(words: list[str]) -> int:
    """Run the cases, print and save what was found."""
    options = _parser().parse_args(words)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are meant
    console = Console(width=150)
    outcomes = []
    for case in CASES:
        if not options.only or any(word in case.name for word in options.only):
            outcomes.append(run_case(case))
            _print(outcomes[-1], console)
            if not options.only:
                _save(outcomes)
    right = sum(found.is_right for found in outcomes)
    if not options.only:
        render_cases(json.loads(RECORD.read_text(encoding="utf-8")), PAGE)
    promised = [found for found in outcomes if found.best is not None]
    kept_promises = sum(found.is_kept for found in promised)
    console.print(f"{right} of {len(outcomes)} causes right, {kept_promises} of {len(promised)} promises kept")
    return 0 if right >= len(outcomes) - 1 and kept_promises == len(promised) else 1


def render_cases(record: dict[str, Any], page: Path) -> None:
    """Put the record's cases as a table into the page."""
    rows = ["| training loop | named | change | promised | gave |", "|---|---|---|--:|--:|"]
    for case in record["cases"]:
        found = diagnosis_from_json(json.dumps(case["diagnosis"]))
        named = found.cause.value if found.cause.name == case["expected"] else f"**{found.cause.value}**"
        best = f"`{found.changes[0].change}`" if found.changes else ""
        gains = (f"{case['promised']:.1f} ×", f"{case['given']:.1f} ×") if best else ("", "")
        rows.append(f"| {case['case']} | {named} | {best} | {gains[0]} | {gains[1]} |")
    machine = record["machine"]
    where = f"{machine['cores']} cores ({machine['processor']}), torch {record['versions']['torch']}."
    body = f"{where} Measured {record['measured_at']}.\n\n" + "\n".join(rows)
    page.write_text(replace_between(page.read_text(encoding="utf-8"), RECORD.name, body), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="part of a case's name")
    return parser


def _print(found: Outcome, console: Console) -> None:
    mark = "right" if found.is_right else f"WRONG, {found.expected}"
    line = f"{mark:7} {found.case}: {found.diagnosis.cause.name} ({found.took_s:.1f} s)"
    if found.best is not None:
        kept = "kept" if found.is_kept else "NOT KEPT"
        line += f"; {found.best.change}: promised {found.best.promise:.2f} ×, gave {found.given or 0:.2f} ×, {kept}"
    console.print(line, markup=False, highlight=False)


def _save(outcomes: list[Outcome]) -> None:
    cases = [
        {
            "case": found.case,
            "expected": found.expected,
            "promised": found.best.promise if found.best else None,
            "given": found.given,
            "took_s": round(found.took_s, 1),
            "diagnosis": json.loads(found.diagnosis.to_json()),
        }
        for found in outcomes
    ]
    facts = {"machine": machine_facts(), "versions": version_facts(("torch", "numpy")), "measured_at": now()}
    text = json.dumps({**facts, "load": load_average(), "cases": cases}, indent=1, ensure_ascii=False)
    partial = RECORD.with_name(RECORD.name + ".partial")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(RECORD)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
