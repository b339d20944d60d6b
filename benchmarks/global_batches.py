"""Measures steps of 800 samples: Stoker with a plan, torch's DataLoader, and the same behind a process and a ring.

    python benchmarks/global_batches.py              about two minutes on two cores
    python benchmarks/global_batches.py --quick      small sizes, one round: does everything run?
    python benchmarks/global_batches.py --repeats 5  more rounds
    python benchmarks/global_batches.py --render     no measuring: render the page from the saved record

The data are those of a well-known tutorial on tuning PopTorch's loader: 10 000 samples of 1×128×128 float32 (65 KB
each) and a label, from memory, 16 rows × 50 iterations = 800 samples per step, two workers. An epoch is 12 steps, and a
ring of three may be full before the clock starts; so epochs after the first are measured three at a time, without a
pause between them. The record is benchmarks/results/global_batches.json, rendered into docs/benchmarks.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from engine_bench import COLD, LATER, Bench, Result, per_s, ratio, speeds, take_turns
from ring import RingLoader
from suite import Suite, run
from torch.utils.data import Dataset

import stoker
from stoker.bench import Trial, measure

WORKERS = 2
EPOCHS_AT_A_TIME = 3


class Samples(Dataset[Any]):
    """One large tensor, and a row of it for each sample: what a loader adds is all there is to measure."""

    def __init__(self, samples: int) -> None:
        self.inputs = torch.rand(samples, 1, 128, 128)
        self.labels = torch.arange(samples) % 10

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[index], self.labels[index]


class Epochs:
    """Several epochs without a pause between them."""

    def __init__(self, loader: Iterable[Any], count: int) -> None:
        self._loader, self._count = loader, count

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self._count):
            yield from self._loader


def steps(bench: Bench) -> Result:
    """Steps of 800 samples: what does it cost to put them together?"""
    dataset = Samples(bench.sized(10_000, 2_400))
    plan = stoker.BatchPlan(16, device_iterations=50)
    options: dict[str, Any] = {"num_workers": WORKERS, "persistent_workers": True}
    theirs = partial(bench.torch, dataset, plan.combined_batch, drop_last=True, **options)
    turns: dict[str, Callable[[], list[Trial]]] = {
        "torch": partial(_epochs, theirs),
        "a process and a ring": partial(_epochs, partial(RingLoader, theirs, slots=3)),
        "stoker": partial(_epochs, partial(bench.stoker, dataset, plan=plan, **options)),
    }
    rounds = take_turns(bench, turns)
    later = {name: speeds(rounds[name], LATER) for name in rounds}
    cold = {name: speeds(rounds[name], COLD) for name in rounds}
    claim = f"steps of {plan.combined_batch} samples 1×128×128 from memory, {WORKERS} workers"
    findings = (
        ratio(claim, "at least", 3, later["stoker"], later["torch"], per_s),
        ratio(
            "the same against a process that copies into a ring",
            "at least",
            3,
            later["stoker"],
            later["a process and a ring"],
            per_s,
            of="the ring",
        ),
    )
    series = {f"{name}, first epoch, samples/s": cold[name] for name in rounds}
    series |= {f"{name}, later epochs, samples/s": later[name] for name in rounds}
    return Result(f"{len(dataset)} samples in order, {plan}", findings, series)


def _epochs(make: Callable[[], Any]) -> list[Trial]:
    """The first epoch of a fresh loader, then two trials of several."""
    loader = make()
    try:
        return [measure(loader), *(measure(Epochs(loader, EPOCHS_AT_A_TIME)) for _ in range(2))]
    finally:
        if isinstance(loader, RingLoader):
            loader.close()


SUITE = Suite("global_batches", "Measure steps of a plan against torch's loader.", {"steps": steps})

if __name__ == "__main__":
    sys.exit(run(SUITE, sys.argv[1:]))
