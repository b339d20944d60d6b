"""Measures what order, state and randomness cost, with torch's and torchdata's way beside it.

    python benchmarks/order.py                        all cases; RandomSampler with 10^8 samples takes some GB
    python benchmarks/order.py --only indices         one case (may be given several times)
    python benchmarks/order.py --quick                small sizes: does everything run?
    python benchmarks/order.py --render               no measuring: render the page from the saved record

The record (benchmarks/results/order.json) is saved after every case, and the section on order in docs/benchmarks.md is
rendered from it. A quick run saves its record beside it and leaves the page alone. Claims that fall short are told, and
the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import order_epoch
import torch
from order_cases import CASES, Sizes
from render import figure, render_into, target

import stoker
from stoker.bench import CaseRecord, Record, load_record, save_record
from stoker.bench.records import load_average, machine_facts, now, version_facts

HERE = Path(__file__).resolve().parent
RECORD = HERE / "results" / "order.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"
PACKAGES = ("torch", "numpy", "torchdata")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of a run."""
    parser = argparse.ArgumentParser(description="Measure Stoker's order, state and randomness.")
    parser.add_argument("--only", action="append", choices=list(CASES), help="measure this case only")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--render", action="store_true", help="render the page from the saved record and leave")
    parser.add_argument("--epoch-of", choices=order_epoch.EPOCHS, help=argparse.SUPPRESS)
    parser.add_argument("--samples", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure, save, render; 1 if a claim fell short."""
    options = parse(arguments)
    if options.epoch_of:  # a child that measures one epoch, because peak memory never falls
        print(order_epoch.measure_here(options.epoch_of, options.samples))
        return 0
    path = RECORD.with_name("order-quick.json") if options.quick else RECORD
    if options.render:
        render_into(PAGE, load_record(path), RECORD.name)
        return 0
    torch.set_num_threads(1)
    record, sizes = _record(path), Sizes.quick() if options.quick else Sizes()
    measured = [_measure(name, sizes, record, path) for name in options.only or CASES]
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


def _measure(name: str, sizes: Sizes, record: Record, path: Path) -> CaseRecord:
    load_before, begun_at = load_average(), time.monotonic()
    result = CASES[name](sizes)
    took_s = round(time.monotonic() - begun_at, 1)
    series = {series: tuple(values) for series, values in result.series.items()}
    title = (CASES[name].__doc__ or name).strip()
    case = CaseRecord(title, result.settings, result.findings, series, now(), took_s, load_before)
    record.cases[name] = case
    record.cases = {known: record.cases[known] for known in CASES if known in record.cases}
    save_record(record, path)
    _print(name, case)
    return case


def _print(name: str, case: CaseRecord) -> None:
    print(f"{name} ({case.took_s:.0f} s; {case.settings})")
    for found in case.findings:
        measured = f"{figure(found.measured)} {found.unit} (target {target(found)})"
        print(f"  {'pass ' if found.passed else 'SHORT'} {found.claim}: {measured}  {found.detail}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
