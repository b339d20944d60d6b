"""What a user sees of each fault, under each policy, and from torch's loader: run, written down, rendered.

    python -m tests.faults.outcomes             run all, save the record, render the table into docs/faults.md
    python -m tests.faults.outcomes --render    render the saved record only

Each cell of the table is a run in a process of its own, 64 samples in batches of 8 with two forked workers, of which
sample 21 is bad. What it tells is read off the batches and the exception, never assumed; a run that has not ended after
some seconds is ended, and the cell says so. The table is a part of the torture run's record.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing import connection
from pathlib import Path
from typing import Any

from tests.faults.poison import FAULTS, Tortured
from tests.faults.torture import RECORD, ROOT

PAGE = ROOT / "docs" / "faults.md"
MARKS = "<!-- rendered from torture.json: begin -->", "<!-- rendered from torture.json: end -->"
SAMPLES, BATCH, BAD = 64, 8, 21
WAITS_S = 20.0  # torch looks after its workers every five seconds: long enough that it would have noticed
NAMES = {
    "raise": "raises an error",
    "flaky": "raises an error once, then works",
    "truncated": "truncated JPEG bytes",
    "allocate": "asks for 4 GiB that are not there, and aborts",
    "segv": "crashes its worker (SIGSEGV)",
    "kill": "its worker is killed (SIGKILL)",
    "chance": "its worker is killed once, by chance",
    "hang": "never ends",
}
POLICIES: dict[str, Callable[[], dict[str, Any]]] = {
    "torch's loader": dict,
    "Stoker, nothing set": dict,
    'on_error="retry"': lambda: _armed("retry"),
    'on_error="skip"': lambda: _armed("skip"),
    'on_error="drop"': lambda: _armed("drop"),
}
"""All but the first two with Workers(on_death="restart", sample_timeout_s=1)."""


class Faulty(Tortured):
    """Beside the poison: faults that happen once only, remembered in a file."""

    def __getitem__(self, index: int) -> Any:
        kind = self.faults.get(index)
        if kind in ("flaky", "chance"):
            try:
                os.close(os.open(f"{self.deaths}-once", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return Tortured(self.samples)[index]
            FAULTS["raise" if kind == "flaky" else "kill"](Tortured(self.samples), index)
        return super().__getitem__(index)


def _armed(on_error: str) -> dict[str, Any]:
    import stoker

    workers = stoker.Workers(2, start_method="fork", on_death="restart", sample_timeout_s=1.0)
    return {"on_error": on_error, "workers": workers}


def _loader(policy: str, dataset: Any) -> Any:
    import torch

    import stoker

    if policy.startswith("torch"):
        return torch.utils.data.DataLoader(dataset, BATCH, num_workers=2, multiprocessing_context="fork")
    options = POLICIES[policy]() or {"workers": stoker.Workers(2, start_method="fork")}
    return stoker.DataLoader(dataset, BATCH, seed=1, **options)


def _run(policy: str, fault: str, folder: str) -> str:
    """What one run shows to the user, in words."""
    loader = _loader(policy, Faulty(SAMPLES, {BAD: fault}, f"{folder}/{time.monotonic_ns()}"))
    seen: list[list[int]] = []
    try:
        for batch in loader:
            seen.append([int(index) for index in batch[:, 0]])
    except Exception as error:
        return f"`{type(error).__name__}` at step {len(seen)}: {_gist(error)}"
    return _describe(seen, getattr(loader, "failures", []))


def _gist(error: Exception) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines()]
    last = lines[-1] if "Traceback" in str(error) or lines[0].startswith("Caught") else lines[0]
    last = re.sub(r" \(pid(\(s\))? [\d, ]+\)", "", last).removeprefix("Original ")  # another one in every run
    return last if len(last) <= 120 else last[:119] + "…"


def _describe(seen: list[list[int]], failures: list[Any]) -> str:
    told = f"; failure listed: {failures[0].error.split(':')[0]}" if failures else ""
    wanted = [list(range(start, start + BATCH)) for start in range(0, SAMPLES, BATCH)]
    odd = [(got, own) for got, own in zip(seen, wanted, strict=True) if got != own]
    if not odd:
        return f"all {len(seen)} batches, nothing changed{told}"
    ((got, own),) = odd
    if len(got) < len(own):
        return f"all {len(seen)} batches, one has {len(got)} samples{told}"
    return f"all {len(seen)} batches, sample {got[own.index(BAD)]} in its place{told}"


def outcome_of(policy: str, fault: str, folder: str) -> str:
    """Run it in a process group of its own; whatever is left of it after `WAITS_S` is ended."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(writer, _run(policy, fault, folder).encode())
        os.close(writer)
        os._exit(0)
    os.close(writer)
    ended = connection.wait([reader], WAITS_S)
    said = os.read(reader, 10_000).decode() if ended else f"still waiting after {WAITS_S:.0f} s, ended from outside"
    os.close(reader)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return said


def measure_table(folder: str) -> dict[str, dict[str, str]]:
    """{fault: {policy: what the user sees}}."""
    import stoker

    list(stoker.DataLoader(Tortured(8), 4))  # everything is imported before anything is forked
    return {name: {policy: outcome_of(policy, fault, folder) for policy in POLICIES} for fault, name in NAMES.items()}


def render(record: dict[str, Any]) -> str:
    """The runs and the table of a record, as a page shows them."""
    parts = []
    if "runs" in record:
        heads = (
            "start",
            "samples × epochs",
            "workers",
            "bad an epoch",
            "deaths",
            "failures listed",
            "seconds",
            "wrong",
        )
        rows = [_run_row(name, run) for name, run in record["runs"].items()]
        parts.append(_table(heads, rows))
    if "table" in record:
        rows = [(fault, *cells.values()) for fault, cells in record["table"].items()]
        parts.append(_table(("a sample …", *POLICIES), rows))
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    machine = record["machine"]
    return "\n\n".join([*parts, f"{machine['cores']} cores ({machine['processor']}), {machine['system']}; {versions}."])


def _run_row(name: str, run: dict[str, Any]) -> tuple[str, ...]:
    setup = run["setup"]
    counts = (sum(run["injected"].values()), sum(run["deaths"].values()), run["failures"])
    size = f"{setup['samples']:,} × {setup['epochs']}"
    return name, size, str(setup["processes"]), *map(str, counts), f"{run['seconds']:.0f}", str(len(run["wrong"]))


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = (heads, tuple("---" for _ in heads), *rows)
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def render_into(page: Path, record: dict[str, Any]) -> None:
    """Put the tables between the page's markers."""
    text = page.read_text(encoding="utf-8")
    if any(text.count(mark) != 1 for mark in MARKS):
        raise ValueError(f"{page} needs one line {MARKS[0]!r} and after it one line {MARKS[1]!r}")
    before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
    page.write_text(f"{before}{MARKS[0]}\n\n{render(record)}\n\n{MARKS[1]}{after}", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Run the table unless only rendering is asked for; render."""
    import tempfile

    from stoker.bench.records import machine_facts, version_facts

    warnings.filterwarnings("ignore", message="This DataLoader will create")
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"schema": 1}
    if "--render" not in arguments:
        record |= {"machine": machine_facts(), "versions": version_facts(("torch", "numpy", "pillow"))}
        with tempfile.TemporaryDirectory(prefix="stoker-outcomes-") as folder:
            record["table"] = measure_table(folder)
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        partial = RECORD.with_name(RECORD.name + ".partial")
        partial.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(RECORD)
    render_into(PAGE, record)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
