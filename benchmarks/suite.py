"""Runs a suite of cases: options, rounds, the saved record, the rendered page, the verdict.

The record is saved after every case, so a crash loses nothing, and the page is rendered from it alone. A quick run
saves its record beside it and leaves the page: its numbers are not worth reading. Claims that fall short are told, and
the exit status is 1.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from engine_bench import Bench, Result
from render import figure, render, render_into, target
from rich.console import Console
from torch.utils.data import DataLoader as TorchLoader

import stoker
from stoker.bench import CaseRecord, Record, load_record, save_record
from stoker.bench.records import load_average, machine_facts, now, version_facts

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Suite:
    """Cases that are measured and shown together."""

    name: str  # of its record, benchmarks/results/NAME.json
    description: str
    cases: Mapping[str, Callable[[Bench], Result]]
    page: Path = HERE.parent / "docs" / "benchmarks.md"
    packages: tuple[str, ...] = ("torch", "numpy")
    table: Callable[[Record], str] = render

    @property
    def record(self) -> Path:
        return HERE / "results" / f"{self.name}.json"


def run(suite: Suite, arguments: list[str]) -> int:
    """Measure, save, render; 1 if a claim fell short."""
    options = _parse(suite, arguments)
    path = suite.record.with_name(f"{suite.name}-quick.json") if options.quick else suite.record
    if options.render:
        render_into(suite.page, load_record(path), suite.record.name, suite.table)
        return 0
    torch.set_num_threads(1)  # as in workers; why: stoker.cli.demo
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are meant
    record, console = _record(suite, path), Console()
    with (
        tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder,
        console.status("", refresh_per_second=1) as status,
    ):
        bench = Bench(TorchLoader, stoker.DataLoader, options.repeats, options.quick, Path(folder), status.update)
        measured = []
        for name in options.only or suite.cases:
            measured.append(_measure(suite, name, bench))
            record.cases[name] = measured[-1]
            record.cases = {known: record.cases[known] for known in suite.cases if known in record.cases}
            save_record(record, path)
            _print(name, measured[-1], console)
    if not options.quick:
        render_into(suite.page, record, suite.record.name, suite.table)
    return 0 if all(finding.passed for case in measured for finding in case.findings) else 1


def _parse(suite: Suite, arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=suite.description)
    parser.add_argument("--only", action="append", choices=list(suite.cases), help="measure this case only")
    parser.add_argument("--repeats", type=int, help="rounds of each case (3; with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--render", action="store_true", help="render the page from the saved record and leave")
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (1 if options.quick else 3)
    return options


def _record(suite: Suite, path: Path) -> Record:
    """The saved record if it can be continued here, otherwise a new one."""
    machine = machine_facts() | {"torch_threads": 1}
    versions = {"stoker": stoker.__version__, **version_facts(suite.packages)}
    if path.exists():
        saved = load_record(path)
        if saved.continues(machine, versions):
            return saved
    return Record(machine, versions)


def _measure(suite: Suite, name: str, bench: Bench) -> CaseRecord:
    load_before, begun_at = load_average(), time.monotonic()
    tell, case = bench.tell, suite.cases[name]
    result = case(replace(bench, tell=lambda text: tell(f"{name}: {text}")))
    took_s = round(time.monotonic() - begun_at, 1)
    series = {series: tuple(values) for series, values in result.series.items()}
    title = (case.__doc__ or name).strip()
    return CaseRecord(title, result.settings, result.findings, series, now(), took_s, load_before)


def _print(name: str, case: CaseRecord, console: Console) -> None:
    console.print(f"[bold]{name}[/bold] ({case.took_s:.0f} s; {case.settings})", highlight=False)
    for found in case.findings:
        verdict = "[green]pass[/green] " if found.passed else "[red]short[/red]"
        measured = f"{figure(found.measured)} {found.unit} (target {target(found)})"
        console.print(f"  {verdict} {found.claim}: [bold]{measured}[/bold]  {found.detail}", highlight=False)
