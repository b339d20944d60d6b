"""The torture run: a dataset in which one sample of many is poison, and a run that must not notice.

    python -m tests.faults.torture                                 100 000 samples, two epochs, every start method
    python -m tests.faults.torture --samples 2000 --start fork     one short run

The run is compared, row by row, with a twin of the dataset that has no faults and is loaded inline: every good sample
stands in its place with the draw that belongs to its position, a bad one's row holds some good sample, and the failures
listed are those injected, no more and no fewer. Deaths are counted by those who die, and not by the loader that is
judged (see `tests.faults.poison`). What the run gave is saved, and docs/faults.md is rendered from it.

Spawned workers import this module when it is run as a script, so it imports nothing heavy itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from tests.faults.poison import SIGNS, Tortured, choose_faults

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "results" / "torture.json"
SAMPLE_TIMEOUT_S = 1.0  # far above the microseconds a good sample takes, also on a machine that is busy elsewhere


@dataclass(frozen=True)
class Setup:
    """One torture run."""

    samples: int = 2_000
    epochs: int = 2
    one_in: int = 200
    seed: int = 7
    processes: int = 2
    lanes: int = 1
    start: str = "fork"
    share: str | None = None
    batch_size: int = 50
    persistent: bool = False


@dataclass
class Outcome:
    """What a run gave; `wrong` is empty if it was as it must be."""

    setup: dict[str, Any]
    seconds: float = 0.0
    batches: int = 0
    rows: int = 0
    replaced: int = 0
    injected: dict[str, int] = field(default_factory=dict)  # bad samples an epoch, by kind
    failures: int = 0
    deaths: dict[str, int] = field(default_factory=dict)
    longest_wait_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    @property
    def total_deaths(self) -> int:
        return sum(self.deaths.values())


def torture(setup: Setup) -> Outcome:
    """Run it, and compare with the twin."""
    faults = choose_faults(setup.samples, setup.one_in, setup.seed)
    outcome = Outcome(asdict(setup), injected=dict(Counter(faults.values())))
    with tempfile.TemporaryDirectory(prefix="stoker-torture-") as folder:
        deaths = Path(folder) / "deaths"
        loader = _loader(setup, Tortured(setup.samples, faults, str(deaths)))
        twin = _twin(setup)
        begun = time.monotonic()
        places = [index for epoch in range(setup.epochs) for index in _compare(epoch, loader, twin, faults, outcome)]
        outcome.seconds = round(time.monotonic() - begun, 2)
        outcome.deaths = dict(Counter(deaths.read_text().split())) if deaths.exists() else {}
        _judge_failures(loader.failures, faults, places, setup, outcome)
        loader._iterator = None  # persistent workers go with their iterator
    return outcome


def _loader(setup: Setup, dataset: Tortured) -> Any:
    import stoker

    options = {"processes": setup.processes, "lanes": setup.lanes, "start_method": setup.start, "share": setup.share}
    survives = {"on_death": "restart", "max_restarts": 10**6, "sample_timeout_s": SAMPLE_TIMEOUT_S}
    workers = stoker.Workers(**cast(Any, options | survives))
    return stoker.DataLoader(
        dataset,
        setup.batch_size,
        shuffle=True,
        seed=setup.seed,
        workers=workers,
        on_error="skip",
        persistent_workers=setup.persistent,
    )


def _twin(setup: Setup) -> Any:
    import stoker

    return stoker.DataLoader(Tortured(setup.samples), setup.batch_size, shuffle=True, seed=setup.seed)


def _compare(epoch: int, loader: Any, twin: Any, faults: dict[int, str], outcome: Outcome) -> Iterator[int]:
    """One epoch beside its twin; gives the indices that belong to each place."""
    batches = _timed(iter(loader), outcome)
    for step, wanted in enumerate(twin):
        batch = next(batches, None)
        if batch is None or batch.shape != wanted.shape:
            outcome.wrong.append(f"epoch {epoch}, step {step}: {None if batch is None else batch.shape}")
            return
        outcome.batches, outcome.rows = outcome.batches + 1, outcome.rows + len(batch)
        for row, ((index, draw), (own, own_draw)) in enumerate(zip(batch.tolist(), wanted.tolist(), strict=True)):
            outcome.replaced += index != own
            good = index not in faults if own in faults else index == own
            if not good or draw != own_draw:
                outcome.wrong.append(f"epoch {epoch}, step {step}, row {row}: sample {index} for {own}")
            yield own
    if next(batches, None) is not None:
        outcome.wrong.append(f"epoch {epoch}: more batches than the dataset has")


def _timed(batches: Iterator[Any], outcome: Outcome) -> Iterator[Any]:
    while True:
        asked = time.monotonic()
        try:
            batch = next(batches)
        except StopIteration:
            return
        outcome.longest_wait_s = max(outcome.longest_wait_s, round(time.monotonic() - asked, 3))
        yield batch


def _judge_failures(
    failures: list[Any], faults: dict[int, str], places: list[int], setup: Setup, outcome: Outcome
) -> None:
    """The failures listed are exactly those injected: each once in its own place, and for the reason it has."""
    outcome.failures = len(failures)
    wanted = {(epoch, index) for epoch in range(setup.epochs) for index in faults}
    listed = {(failure.epoch, failure.index) for failure in failures}
    outcome.wrong += [f"not injected, but listed: {extra}" for extra in sorted(listed - wanted)]
    outcome.wrong += [f"injected, but not listed: {missed}" for missed in sorted(wanted - listed)]
    own = Counter((f.epoch, f.index) for f in failures if places[f.epoch * setup.samples + f.position] == f.index)
    outcome.wrong += [f"listed {count} times in its own place: {at}" for at, count in own.items() if count != 1]
    for failure in failures:
        if not any(sign in failure.error for sign in SIGNS[faults.get(failure.index, "raise")]):
            outcome.wrong.append(f"{faults.get(failure.index)} of sample {failure.index} reads {failure.error!r}")


def main(arguments: list[str]) -> int:
    """Run what the options say, save the record; 1 if anything was wrong."""
    options = _parse(arguments)
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are meant
    methods = options.start or ["fork", "forkserver", "spawn"]
    outcomes = {}
    for method in methods:
        # A worker that is not forked starts from nothing, and takes its time: fewer samples there, the same mix.
        samples = options.samples if method == "fork" else min(options.samples, options.spawned_samples)
        setup = Setup(samples, options.epochs, options.one_in, options.seed, options.workers, options.lanes, method)
        before = _held()
        outcome = outcomes[method] = torture(setup)
        outcome.wrong += [f"left behind: {left}" for left in _held() - before]
        _tell(method, outcome)
    if options.record is not None:
        save(Path(options.record), outcomes)
    return 1 if any(outcome.wrong for outcome in outcomes.values()) else 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Load a dataset full of poison, and check that nothing else changed.")
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--spawned-samples", type=int, default=10_000, help="the most for forkserver and spawn")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--one-in", type=int, default=200, help="one sample in so many is bad")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--start", action="append", choices=["fork", "forkserver", "spawn"], help="default: all three")
    parser.add_argument("--record", default=str(RECORD), help="where to save what was found")
    return parser.parse_args(arguments)


def _held() -> Counter[str]:
    """Processes and descriptors of this program, by what they are; the standard library keeps its two servers."""
    import psutil

    children = psutil.Process().children(recursive=True)
    names = [child for child in children if "multiprocessing" not in " ".join(_command(child))]
    return Counter([f"process {child.pid}" for child in names] + [f"memory {name}" for name in _memory_files()])


def _command(process: Any) -> list[str]:
    with contextlib.suppress(Exception):
        command: list[str] = process.cmdline()
        return command
    return []


def _memory_files() -> list[str]:
    links = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{number}"))
    return [link for link in links if link.startswith(("/memfd:", "/dev/shm/"))]


def _tell(name: str, outcome: Outcome) -> None:
    print(
        f"{name}: {outcome.rows:,} rows in {outcome.seconds:.1f} s, {outcome.total_deaths} deaths {outcome.deaths}, "
        f"{outcome.failures} failures, {outcome.replaced} rows replaced, longest wait {outcome.longest_wait_s:.2f} s: "
        f"{'as it must be' if not outcome.wrong else 'WRONG'}",
        flush=True,
    )
    for line in outcome.wrong[:20]:
        print(f"  {line}")


def save(path: Path, outcomes: dict[str, Outcome]) -> None:
    """Put these runs into the record, whose other parts stay."""
    from stoker.bench.records import machine_facts, now, version_facts

    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    record |= {"schema": 1, "machine": machine_facts(), "versions": version_facts(("torch", "numpy", "pillow"))}
    runs = {name: {**asdict(outcome), "measured_at": now()} for name, outcome in outcomes.items()}
    record["runs"] = {**record.get("runs", {}), **runs}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
