"""Loading beside the model: a step takes the sum of both times, or only the longer one.

    python examples/overlap.py                       five (model, loading, workers) triples, Stoker and torch: a table
    python examples/overlap.py --triple 15 50 4      one of your own: 15 ms of model, 50 ms of loading, 4 workers
    python examples/overlap.py --real                a real forward and backward pass instead of a pretended one
    python examples/overlap.py --save overlap.json   keep the raw times too
    python examples/overlap.py --rounds 1 --steps 8  a quick look

A batch takes l ms to load and the model m ms to learn from. One after the other that is m + l for a step. With w
workers loading runs beside the model, and beside itself, so at best a step takes max(m, l/w). How close does it come?

    without overlap   load load load │ model │ load load load │ model │ …          m + l
    with overlap      load load load   load load load   load load load …
                                     │ model │        │ model │         …          max(m, l/w)

Loading sleeps here, as if a server answered slowly, so that the answer does not depend on how many cores there are.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils.data
from torch import nn

import stoker
from stoker.bench import CaseRecord, Finding, Record, Trial, measure, median, save_record
from stoker.bench.records import load_average, machine_facts, now, version_facts

BATCH_SIZE = 8
FEATURES = 256
MOST = 1.05  # how much longer than max(m, l/w) a step may take


@dataclass(frozen=True)
class Triple:
    """Milliseconds of the model for a step, milliseconds of loading for a batch, and who loads."""

    model_ms: float
    loading_ms: float
    workers: int

    @property
    def together_ms(self) -> float:
        return self.model_ms + self.loading_ms

    @property
    def longer_ms(self) -> float:
        return max(self.model_ms, self.loading_ms / self.workers)

    def __str__(self) -> str:
        who = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{self.model_ms:g} ms of model, {self.loading_ms:g} ms of loading, {who}"


TRIPLES = (Triple(40, 20, 1), Triple(40, 60, 1), Triple(40, 120, 2), Triple(40, 120, 4), Triple(20, 200, 8))


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that are waited for."""

    def __init__(self, batches: int, sample_s: float) -> None:
        self._samples, self._sample_s = batches * BATCH_SIZE, sample_s

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self._sample_s)
        return torch.full((FEATURES,), float(index % 7))


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are meant
    record = Record(machine_facts(), {"stoker": stoker.__version__, **version_facts(("torch", "numpy"))})
    for given in args.triples:
        model, triple = real_model(given) if args.real else pretended_model(given)
        record.cases[f"{given.model_ms:g}-{given.loading_ms:g}-{given.workers}"] = case = measure_triple(
            triple, model, args.steps, args.rounds
        )
        print(describe(triple, case), flush=True)
        if args.save is not None:
            save_record(record, args.save)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Loading beside the model: the sum, or the longer of both?")
    parser.add_argument(
        "--triple",
        type=float,
        nargs=3,
        action="append",
        metavar=("MODEL_MS", "LOADING_MS", "WORKERS"),
        help="instead of the five",
    )
    parser.add_argument("--steps", type=int, default=30, help="steps of a pass, beside those until it is under way")
    parser.add_argument("--rounds", type=int, default=3, help="passes of each kind, taking turns")
    parser.add_argument("--real", action="store_true", help="train a small network instead of pretending to")
    parser.add_argument("--save", type=Path, help="a JSON file for the raw times and the verdicts")
    args = parser.parse_args(arguments)
    args.triples = (
        [Triple(model, loading, int(workers)) for model, loading, workers in args.triple] if args.triple else TRIPLES
    )
    return args


def pretended_model(triple: Triple) -> tuple[Callable[[Any], object], Triple]:
    """An accelerator at work, as the training process sees it: it waits."""
    return lambda batch: time.sleep(triple.model_ms / 1e3), triple


def real_model(triple: Triple) -> tuple[Callable[[Any], object], Triple]:
    """Forward and backward through a small network; m is then what was measured, without any loading."""
    net = nn.Sequential(nn.Linear(FEATURES, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimiser = torch.optim.SGD(net.parameters(), lr=1e-4)

    def step(batch: torch.Tensor) -> None:
        optimiser.zero_grad()
        net(batch).square().mean().backward()
        optimiser.step()

    alone = measure([torch.zeros(BATCH_SIZE, FEATURES)] * 12, model=step)
    return step, Triple(round(1e3 * median(alone.models_s[2:]), 2), triple.loading_ms, triple.workers)


def measure_triple(triple: Triple, model: Callable[[Any], object], steps: int, rounds: int) -> CaseRecord:
    """Passes without overlap, with Stoker's workers and with torch's, taking turns."""
    under_way = 3 * triple.workers  # the first batches come in bursts, until everybody has found a place
    kinds: dict[str, Callable[[Any], Iterable[Any]]] = {
        "without overlap": lambda data: stoker.DataLoader(data, BATCH_SIZE),
        "stoker": lambda data: stoker.DataLoader(data, BATCH_SIZE, num_workers=triple.workers),
        "torch": lambda data: torch.utils.data.DataLoader(data, BATCH_SIZE, num_workers=triple.workers),
    }
    if triple.workers == 1:  # a thread that reads ahead overlaps too, without any worker process
        kinds["stoker, device"] = lambda data: stoker.DataLoader(data, BATCH_SIZE, device="cpu")
    load_before, begun_s = load_average(), time.monotonic()
    step_ms: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        for kind in list(kinds) if number % 2 == 0 else reversed(kinds):
            count = under_way + (steps if kind != "without overlap" else -(-steps // 3))
            dataset = Slow(count, triple.loading_ms / 1e3 / BATCH_SIZE)
            step_ms[kind].append(steady_ms(measure(kinds[kind](dataset), model=model), under_way))
    took_s = round(time.monotonic() - begun_s, 1)
    series = {f"{kind}, ms a step": tuple(values) for kind, values in step_ms.items()}
    findings = tuple(find(triple, kind, step_ms) for kind in step_ms if kind.startswith("stoker"))
    return CaseRecord(str(triple), f"batches of {BATCH_SIZE}", findings, series, now(), took_s, load_before)


def steady_ms(trial: Trial, under_way: int) -> float:
    """The mean step once loading is under way."""
    waits, models = trial.waits_s[under_way:], trial.models_s[under_way:]
    return 1e3 * (sum(waits) + sum(models)) / len(waits)


def find(triple: Triple, kind: str, step_ms: dict[str, list[float]]) -> Finding:
    medians = {name: median(values) for name, values in step_ms.items()}
    how = "overlap by a reading thread" if kind.endswith("device") else "overlap"
    detail = (
        f"Stoker {medians[kind]:.1f} ms, torch {medians['torch']:.1f} ms, "
        f"one after the other {medians['without overlap']:.1f} ms"
    )
    ratio = medians[kind] / triple.longer_ms
    return Finding(f"{how}: {triple}", "at most", MOST, ratio, "× max(m, l/w)", detail)


def describe(triple: Triple, case: CaseRecord) -> str:
    """A block of the table: what was expected, what was measured."""
    lines = [f"{case.title}: m + l = {triple.together_ms:g} ms, max(m, l/w) = {triple.longer_ms:g} ms"]
    for name, values in case.series.items():
        kind, step = name.partition(", ms")[0], median(values)
        bound = triple.together_ms if kind == "without overlap" else triple.longer_ms
        lines.append(f"  {kind:<16} {step:7.1f} ms a step   {step / bound:5.3f} × {bound:g} ms")
    lines += [f"  {'held' if found.passed else 'SHORT'}: at most {MOST} × max(m, l/w)" for found in case.findings[:1]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
