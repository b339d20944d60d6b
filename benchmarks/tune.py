"""Measures whether `stoker tune` finds what a full grid finds, in a quarter of the grid's time.

    python benchmarks/tune.py                     all six datasets, about five minutes on two cores
    python benchmarks/tune.py --only waiting      one of them (may be given several times)
    python benchmarks/tune.py --render            no measuring: render the page from the saved record

For each dataset: the grid, every setting once, with trials of the length that the search uses; then the search, which
gets a quarter of the time that the grid took; then a duel. The quickest of seventy noisy measurements looks quicker
than it is, so the grid's first three and the search's choice are measured again, in turns, and their medians compared.

The record (benchmarks/results/tune.json) is saved after every dataset, with every trial's samples/s, and the table in
docs/tuning.md is rendered from it. Claims that fall short are told, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from render import figure, render_into, target
from rich.console import Console
from tune_data import CASES, Case

import stoker
from stoker.bench import CaseRecord, Finding, Record, load_record, median, save_record
from stoker.bench.records import load_average, machine_facts, now, version_facts
from stoker.bench.settings import Setting
from stoker.bench.sweep import preload
from stoker.bench.targets import Target, judge
from stoker.tuning import Aim, tune
from stoker.tuning.trials import Trials
from stoker.tuning.tuner import space_of

HERE = Path(__file__).resolve().parent
RECORD = HERE / "results" / "tune.json"
PAGE = HERE.parent / "docs" / "tuning.md"
TRIAL_S = 0.25
DUEL_S, DUEL_ROUNDS, DUELLISTS = 0.5, 5, 3
QUARTER = 0.25
LAST_TRIAL = 0.94  # a search ends with the trial under way when its time is up, so it is given a little less


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of a run."""
    parser = argparse.ArgumentParser(description="Measure stoker tune against a full grid.")
    parser.add_argument("--only", action="append", choices=list(CASES), help="this dataset only")
    parser.add_argument("--render", action="store_true", help="render the page from the saved record and leave")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure, save, render; 1 if a claim fell short."""
    options = parse(arguments)
    if options.render:
        render_into(PAGE, load_record(RECORD), RECORD.name)
        return 0
    torch.set_num_threads(1)  # as in workers
    preload()
    record, console = _record(), Console()
    with tempfile.TemporaryDirectory(prefix="stoker-tune-") as folder:
        measured = [_measure(name, Path(folder), record, console) for name in options.only or CASES]
    render_into(PAGE, record, RECORD.name)
    return 0 if all(finding.passed for case in measured for finding in case.findings) else 1


def _record() -> Record:
    machine = machine_facts() | {"torch_threads": 1}
    versions = {"stoker": stoker.__version__, **version_facts(("torch", "numpy"))}
    if RECORD.exists() and (saved := load_record(RECORD)).continues(machine, versions):
        return saved
    return Record(machine, versions)


def _measure(name: str, folder: Path, record: Record, console: Console) -> CaseRecord:
    load_before, begun_at = load_average(), time.monotonic()
    found = Contest(CASES[name], folder).run()
    took_s = round(time.monotonic() - begun_at, 1)
    case = CaseRecord(CASES[name].title, *found, now(), took_s, load_before)
    record.cases[name] = case
    record.cases = {known: record.cases[known] for known in CASES if known in record.cases}
    save_record(record, RECORD)
    _print(name, case, console)
    return case


@dataclass
class Contest:
    """The grid, the search and the duel on one dataset."""

    case: Case
    folder: Path

    def run(self) -> tuple[str, tuple[Finding, ...], dict[str, tuple[float, ...]]]:
        """The settings in words, the findings, the series."""
        target, aim = judge("dataset", self.case.make(self.folder)), Aim(batch_sizes=(self.case.batch_size,))
        grid, grid_s = _grid(target, aim)
        tuning = tune(target, Aim(batch_sizes=aim.batch_sizes, budget_s=QUARTER * LAST_TRIAL * grid_s))
        first = sorted(grid, key=lambda setting: grid[setting])[:DUELLISTS]
        speeds = _duel(target, aim, list(dict.fromkeys([*first, tuning.best.setting])))
        best = max(first, key=lambda setting: median(speeds[setting]))
        trials = sum(len(one.group.records) for one in tuning.tried)
        findings = (
            _quality(self.case, speeds[tuning.best.setting], speeds[best], tuning.best.setting, best),
            Finding(
                f"{self.case.title}: time of the search",
                "at most",
                QUARTER,
                tuning.took_s / grid_s,
                "× grid",
                f"{trials} trials in {tuning.took_s:.1f} s, {len(grid)} in {grid_s:.1f} s",
            ),
        )
        series = {
            "grid, samples/s": tuple(1 / cost for cost in grid.values()),
            "search, samples/s": tuple(one.samples_per_s for one in tuning.tried if not one.trouble),
            "duel, the search's, samples/s": tuple(speeds[tuning.best.setting]),
            "duel, the grid's best, samples/s": tuple(speeds[best]),
        }
        return f"{len(grid)} settings, batches of {self.case.batch_size}", findings, series


def _grid(target: Target, aim: Aim) -> tuple[dict[Setting, float], float]:
    """What a sample costs with every setting, and the time that finding out took."""
    begun_at, trials = time.monotonic(), Trials(target, aim, TRIAL_S)
    costs = {setting: trials.cost(setting) for setting in space_of(target, aim, target.thing).settings()}
    return costs, time.monotonic() - begun_at


def _duel(target: Target, aim: Aim, duellists: list[Setting]) -> dict[Setting, list[float]]:
    """Samples/s of these settings, in turns, every second round backwards."""
    trials = Trials(target, aim, DUEL_S)
    speeds: dict[Setting, list[float]] = {setting: [] for setting in duellists}
    for number in range(DUEL_ROUNDS):
        for setting in duellists if number % 2 else duellists[::-1]:
            speeds[setting].append(1 / trials.cost(setting))
    return speeds


def _quality(case: Case, ours: list[float], theirs: list[float], chosen: Setting, best: Setting) -> Finding:
    detail = f"{_short(chosen)} {median(ours):,.0f}/s, {_short(best)} {median(theirs):,.0f}/s"
    ratio = median(ours) / median(theirs)
    return Finding(f"{case.title}: speed of what was found", "at least", 0.9, ratio, "× the grid's best", detail)


def _short(setting: Setting) -> str:
    return f"{setting.workers}×{setting.lanes}" + (f" prefetch {setting.prefetch}" if setting.prefetch else "")


def _print(name: str, case: CaseRecord, console: Console) -> None:
    console.print(f"[bold]{name}[/bold] ({case.took_s:.0f} s; {case.settings})", highlight=False)
    for found in case.findings:
        verdict = "[green]pass[/green] " if found.passed else "[red]short[/red]"
        measured = f"{figure(found.measured)} {found.unit} (target {target(found)})"
        console.print(f"  {verdict} {found.claim}: [bold]{measured}[/bold]  {found.detail}", highlight=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
