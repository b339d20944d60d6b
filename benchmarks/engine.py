"""Measures the engine against torch's DataLoader and writes what it finds.

    python benchmarks/engine.py                      all cases, about five minutes on two cores
    python benchmarks/engine.py --only tiny          one case (may be given several times)
    python benchmarks/engine.py --quick              small sizes, one round: does everything run?
    python benchmarks/engine.py --repeats 5          more rounds
    python benchmarks/engine.py --render             no measuring: render the page from the saved record

The record (benchmarks/results/engine.json) is saved after every case, and docs/benchmarks.md is rendered from it. A
quick run saves its record beside it and leaves the page alone: its numbers are not worth reading. Claims that fall
short are told, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import torch
from engine_bench import Bench
from engine_cases import CASES
from render import figure, render_into, target
from rich.console import Console
from torch.utils.data import DataLoader as TorchLoader

import stoker
from stoker.measure import CaseRecord, Record, load_record, save_record
from stoker.measure.records import load_average, machine_facts, now, version_facts

HERE = Path(__file__).resolve().parent
RECORD = HERE / "results" / "engine.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"
PACKAGES = ("torch", "numpy", "pillow")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of a run."""
    parser = argparse.ArgumentParser(description="Measure Stoker's engine against torch's DataLoader.")
    parser.add_argument("--only", action="append", choices=list(CASES), help="measure this case only")
    parser.add_argument("--repeats", type=int, help="rounds of each case (3; with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--render", action="store_true", help="render the page from the saved record and leave")
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (1 if options.quick else 3)
    return options


def main(arguments: list[str]) -> int:
    """Measure, save, render; 1 if a claim fell short."""
    options = parse(arguments)
    path = RECORD.with_name("engine-quick.json") if options.quick else RECORD
    if options.render:
        render_into(PAGE, load_record(path), RECORD.name)
        return 0
    torch.set_num_threads(1)  # as in workers; why: stoker.cli.demo
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are meant
    record = _record(path)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder, console.status("") as status:
        bench = Bench(TorchLoader, stoker.DataLoader, options.repeats, options.quick, Path(folder), status.update)
        measured = [_measure(name, bench, record, path, console) for name in options.only or CASES]
    if not options.quick:
        render_into(PAGE, record, RECORD.name)
    return 0 if all(finding.passed for case in measured for finding in case.findings) else 1


def _record(path: Path) -> Record:
    """The saved record if it can be continued here, otherwise a new one."""
    machine = machine_facts() | {"torch_threads": 1}
    versions = {"stoker": stoker.__version__, **version_facts(PACKAGES)}
    if path.exists():
        saved = load_record(path)
        if saved.continues(machine, versions):
            return saved
    return Record(machine, versions)


def _measure(name: str, bench: Bench, record: Record, path: Path, console: Console) -> CaseRecord:
    load_before, begun_at = load_average(), time.monotonic()
    tell = bench.tell
    result = CASES[name](replace(bench, tell=lambda text: tell(f"{name}: {text}")))
    took_s = round(time.monotonic() - begun_at, 1)
    series = {series: tuple(values) for series, values in result.series.items()}
    title = (CASES[name].__doc__ or name).strip()
    case = CaseRecord(title, result.settings, result.findings, series, now(), took_s, load_before)
    record.cases[name] = case
    record.cases = {known: record.cases[known] for known in CASES if known in record.cases}
    save_record(record, path)
    _print(name, case, console)
    return case


def _print(name: str, case: CaseRecord, console: Console) -> None:
    console.print(f"[bold]{name}[/bold] ({case.took_s:.0f} s; {case.settings})", highlight=False)
    for found in case.findings:
        verdict = "[green]pass[/green] " if found.passed else "[red]short[/red]"
        measured = f"{figure(found.measured)} {found.unit} (target {target(found)})"
        console.print(f"  {verdict} {found.claim}: [bold]{measured}[/bold]  {found.detail}", highlight=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
