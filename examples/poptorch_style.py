"""Is the loader the bottleneck? PopTorch's tutorial question, asked on any torch device, and measured soundly.

    python examples/poptorch_style.py                   replicas 1 and 4 × 50 device iterations: 4 minutes on 2 cores
    python examples/poptorch_style.py --replicas 1      the first case alone
    python examples/poptorch_style.py --mode Sync       without the buffer between loader and model
    python examples/poptorch_style.py --workers 8 --model-steps 10
    python examples/poptorch_style.py --quick           everything small: some seconds

A small convolutional network is trained on 10 000 random pictures of 1×128×128. A step takes micro-batch × device
iterations × replicas samples: 16 × 50 × 1 = 800, or 3 200 with four replicas. (Replicas are for several devices; on one
they run one after another, so that four do not make it faster here.) Three throughputs are measured:

    loader       a loop over the loader that does nothing with its steps
    synthetic    the model on data made up on the device, without the loader; before and after the next one
    real         the model on the loader's steps

The loader's has a catch. 10 000 samples are 12 steps, or 3; with a buffer of 3, all of these may be ready before the
clock starts, and a single timed epoch, which is how it was published, then measures how fast memory is handed over.
Here the first steps, as many as may lie ready, are left out, and then at least 20 × the buffer's steps are timed, over
as many epochs as that takes. The published way is shown beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import stoker.poptorch as poptorch
from stoker.bench import Trial, measure, median
from stoker.bench.throughputs import Throughputs

BUFFER_STEPS = 3
QUICK: dict[str, Any] = {
    "device_iterations": 2,
    "batch_size": 4,
    "samples": 128,
    "side": 24,
    "model_steps": 2,
    "rounds": 4,
    "compiling_s": 0.1,
}
ROUNDS = 20  # timed steps for each step that the buffer holds


@dataclass(frozen=True)
class Settings:
    """What is measured: the defaults are the tutorial's, except for its 32 workers."""

    replicas: int = 1
    device_iterations: int = 50
    batch_size: int = 16  # the micro-batch: what the network sees at a time
    samples: int = 10_000
    side: int = 128
    workers: int = 2
    mode: str = "Async"
    model_steps: int = 4  # timed steps of the model; one takes seconds on a CPU
    rounds: int = ROUNDS
    compiling_s: float = 2.0

    @property
    def ahead(self) -> int:
        """Steps that may be ready before anybody asks: the buffer's, and those under way in the workers."""
        return BUFFER_STEPS + 2 * max(1, self.workers)


class Network(nn.Module):
    """Two convolutions and two linear layers; in training it gives its loss too."""

    def __init__(self, side: int) -> None:
        super().__init__()
        left = (side - 2) // 2 - 4
        self.features = nn.Sequential(
            nn.Conv2d(1, 5, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 12, 5), nn.ReLU(), nn.GroupNorm(3, 12)
        )
        self.classes = nn.Sequential(nn.Flatten(), nn.Linear(12 * left * left, 100), nn.ReLU(), nn.Linear(100, 10))

    def forward(self, pictures: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.classes(self.features(pictures))
        return scores, nn.functional.cross_entropy(scores, labels)


def main(arguments: list[str] | None = None) -> None:
    """Measure each case and say what the numbers mean."""
    cases = parse(arguments)
    dataset = make_dataset(cases[0])
    for case in cases:
        report(case, dataset)


def report(case: Settings, dataset: TensorDataset) -> None:
    """One case: three throughputs and the verdict."""
    loader = make_loader(case, dataset)
    size = loader.combinedBatchSize or 1
    print(
        f"\n{case.batch_size} rows × {case.device_iterations} device iterations × {case.replicas} replicas = {size} "
        f"samples a step, {len(loader)} steps an epoch ({case.mode}, {case.workers} workers)"
    )
    published = as_published(case, loader, size)
    rates = loader_rates(case, loader, size)
    show("loader", median(rates), f"{case.rounds * BUFFER_STEPS} steps in 3 parts, after {case.ahead} left out")
    show("  as published", published, f"one epoch of {len(loader)} steps, {published / median(rates):.1f} × the above")
    before = [size / step_s for step_s in synthetic_steps(case, dataset, size)]
    trial = real_steps(case, loader, skip=case.ahead if median(rates) < 1.25 * median(before) else 1)
    loader.terminate()
    after = [size / step_s for step_s in synthetic_steps(case, dataset, size)]
    synthetic, real = median(before + after), trial.samples / trial.seconds
    show("synthetic", synthetic, f"the model alone: {median(before):,.0f} before, {median(after):,.0f} after the next")
    show("real", real, f"{real / synthetic:.0%} of synthetic; waiting for data {trial.wait_share:.1%} of the time")
    noise = max(0.05, spread(rates), spread([median(before), median(after)]))
    print(Throughputs(median(rates), synthetic, real, noise).verdict())


def make_dataset(case: Settings) -> TensorDataset:
    pictures = torch.randn(case.samples, 1, case.side, case.side)
    return TensorDataset(pictures, torch.randint(10, (case.samples,)))


def make_options(case: Settings) -> poptorch.Options:
    return poptorch.Options().deviceIterations(case.device_iterations).replicationFactor(case.replicas).randomSeed(0)


def make_loader(case: Settings, dataset: TensorDataset) -> poptorch.DataLoader:
    mode = poptorch.DataLoaderMode[case.mode]
    ahead = {"buffer_size": BUFFER_STEPS, "early_preload": True}
    return poptorch.DataLoader(
        make_options(case),
        dataset,
        batch_size=case.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=case.workers,
        mode=mode,
        async_options=None if mode is poptorch.DataLoaderMode.Sync else ahead,
    )


def make_model(case: Settings, synthetic: bool) -> Any:
    network = Network(case.side)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.001, momentum=0.9)
    return poptorch.trainingModel(network, make_options(case).enableSyntheticData(synthetic), optimizer)


def as_published(case: Settings, loader: poptorch.DataLoader, size: int) -> float:
    """Items per second of the first epoch, when the buffer has had time to fill: a chip's model is compiled then."""
    time.sleep(case.compiling_s)
    return size * len(loader) / measure(loader).seconds


def loader_rates(case: Settings, loader: poptorch.DataLoader, size: int) -> list[float]:
    """Items per second in three parts of one long, uninterrupted walk."""
    steps = case.rounds * BUFFER_STEPS
    trial = measure(epochs(loader), limit=case.ahead + steps)
    timed = trial.waits_s[case.ahead :]
    third = max(1, steps // 3)
    return [size * third / sum(timed[at : at + third]) for at in range(0, third * 3, third)]


def synthetic_steps(case: Settings, dataset: TensorDataset, size: int) -> list[float]:
    """Seconds of each call of the model with made-up data, after a first one that is left out."""
    model = make_model(case, synthetic=True)
    batch = tuple(tensor[:size] for tensor in dataset.tensors)
    trial = measure([batch] * (case.model_steps + 1), model=lambda given: model(*given))
    return list(trial.models_s[1:])


def real_steps(case: Settings, loader: poptorch.DataLoader, skip: int) -> Trial:
    """The training loop, without its first steps. Where the loader is faster anyway, what lay ready does not count."""
    model = make_model(case, synthetic=False)
    trial = measure(epochs(loader), model=lambda batch: model(*batch), limit=skip + case.model_steps)
    per_step = trial.samples // trial.batches
    return Trial(per_step * case.model_steps, 0, 0.0, trial.waits_s[skip:], trial.models_s[skip:], 0.0)


def epochs(loader: poptorch.DataLoader) -> Iterator[Any]:
    return itertools.chain.from_iterable(itertools.repeat(loader))


def spread(rates: list[float]) -> float:
    """Half of what repeats differ by, as a share."""
    return (max(rates) - min(rates)) / (2 * median(rates))


def show(name: str, items_per_s: float, remark: str) -> None:
    print(f"{name:16}{items_per_s:>12,.0f} items/s   {remark}", flush=True)


def parse(arguments: list[str] | None) -> list[Settings]:
    defaults = Settings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--mode", choices=[mode.name for mode in poptorch.DataLoaderMode], default=defaults.mode)
    for name in ("device_iterations", "batch_size", "samples", "side", "workers", "model_steps"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(defaults, name))
    parser.add_argument("--quick", action="store_true", help="small pictures, few of them, short steps")
    given = vars(parser.parse_args(arguments))
    replicas, quick = given.pop("replicas"), given.pop("quick")
    settings = Settings(**given)
    if quick:
        settings, replicas = dataclasses.replace(settings, **QUICK), [1, 2]
    return [dataclasses.replace(settings, replicas=count) for count in replicas]


if __name__ == "__main__":
    main()
