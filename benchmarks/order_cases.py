"""The cases of the order benchmark: what each measures, and the bounds it has to keep.

Calls of microseconds are timed many at a time; a series holds the mean of one such round, in microseconds. Bounds are
held against medians. What stands beside Stoker's number (RandomSampler, torchdata) is in the finding's detail, measured
in the same run.
"""

from __future__ import annotations

import importlib.util
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np
from order_epoch import BATCH, measure_apart
from torch.utils.data import BatchSampler, Dataset, RandomSampler

import stoker
from stoker.bench import Finding, median
from stoker.order import BlockShuffle, Mix, Order, PreShuffled, Repeat, Shard, Shuffle, generator_for, rank_positions

BILLION = 10**9
US = 1e6


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    epoch_samples: int = 10**8
    resume_step: int = 10**6
    rounds: int = 25
    calls: int = 200

    @classmethod
    def quick(cls) -> Sizes:
        return cls(epoch_samples=10**5, resume_step=10**3, rounds=3, calls=20)


@dataclass(frozen=True)
class Result:
    """What a case gives: what was found, the settings in words, and the raw series."""

    settings: str
    findings: tuple[Finding, ...]
    series: Mapping[str, Sequence[float]]


def indices(sizes: Sizes) -> Result:
    """256 indices of a permutation of 10^9, by order mode"""
    positions = np.arange(123_456_789, 123_456_789 + BATCH)
    series = {
        f"{name}, µs": _rounds_us(partial(order.indices, positions, 3), sizes) for name, order in _orders().items()
    }
    many, shuffle = np.arange(16 * BATCH), Shuffle(BILLION, 1)
    series[f"Shuffle, 16 × {BATCH} at once, µs"] = _rounds_us(lambda: shuffle.indices(many, 3), sizes)
    positions_of_rank = partial(rank_positions, 1000, BILLION, 8 * BATCH, Shard(3, 8))
    series["a rank's positions in a step, µs"] = _rounds_us(positions_of_rank, sizes)
    finding = _at_most(50, "µs", "256 indices of a permutation of 10^9", series["Shuffle, µs"])
    return Result(f"{sizes.rounds} rounds of {sizes.calls} calls", (finding,), series)


def epoch(sizes: Sizes) -> Result:
    """The beginning of a shuffled epoch, against torch's RandomSampler"""
    ours = [measure_apart("stoker", sizes.epoch_samples) for _ in range(3)]
    theirs = measure_apart("torch", sizes.epoch_samples)
    series = {
        "Stoker, first batch, ms": [each.first_s * 1e3 for each in ours],
        "Stoker, 1000 batches, ms": [each.thousandth_s * 1e3 for each in ours],
        "Stoker, memory, MB": [each.memory_bytes / 2**20 for each in ours],
        "RandomSampler, first batch, ms": [theirs.first_s * 1e3],
        "RandomSampler, 1000 batches, ms": [theirs.thousandth_s * 1e3],
        "RandomSampler, memory, MB": [theirs.memory_bytes / 2**20],
    }
    first, memory = series["Stoker, first batch, ms"], series["Stoker, memory, MB"]
    what = f"of a shuffled epoch of {sizes.epoch_samples:,} samples"
    findings = (
        _at_most(1, "ms", f"first batch of indices {what}", first, f"RandomSampler {theirs.first_s:.1f} s"),
        _at_most(1, "MB", f"memory {what}", memory, f"RandomSampler {theirs.memory_bytes / 2**20:,.0f} MB"),
    )
    return Result(f"batches of {BATCH}, a process for each", findings, series)


def state(sizes: Sizes) -> Result:
    """`state_dict()` in the middle of an epoch"""
    loaders = {
        "seeded shuffle of 10^9": stoker.DataLoader(range(BILLION), batch_size=BATCH, seed=1, shuffle=True),  # type: ignore[arg-type]
        "torch's shuffle of 10^5": stoker.DataLoader(range(10**5), batch_size=BATCH, shuffle=True),  # type: ignore[arg-type]
        "seeded shuffle, two workers": stoker.DataLoader(_Plain(10**5), batch_size=BATCH, seed=1, num_workers=2),
    }
    series = {}
    for name, loader in loaders.items():
        iterator = iter(loader)
        next(iterator)
        series[f"{name}, µs"] = _rounds_us(loader.state_dict, sizes)
        del iterator
    findings = tuple(_at_most(50, "µs", f"state_dict(), {name[:-4]}", values) for name, values in series.items())
    return Result(f"{sizes.rounds} rounds of {sizes.calls} calls", findings, series)


def resume(sizes: Sizes) -> Result:
    """`load_state_dict()` deep in an epoch, and the first keys after it"""
    step, samples = sizes.resume_step, 2 * sizes.resume_step
    loader = stoker.DataLoader(range(samples), batch_size=1, seed=1, shuffle=True)  # type: ignore[arg-type]
    large = stoker.DataLoader(range(BILLION), batch_size=BATCH, seed=1, shuffle=True)  # type: ignore[arg-type]
    series = {
        "Stoker, batches of 1, ms": _resumes_ms(loader, stoker.skip(loader.state_dict(), step), sizes),
        f"Stoker, batches of {BATCH} of 10^9, ms": _resumes_ms(large, stoker.skip(large.state_dict(), step), sizes),
    }
    beside, their_ms = _fast_forward(step, samples)
    claim = f"load_state_dict() and the first batch, at step {step:,}"
    detail = f"{beside} {their_ms:,.0f} ms"
    findings = tuple(_at_most(1, "ms", f"{claim}: {name[8:-4]}", values, detail) for name, values in series.items())
    return Result("inline, the batch itself included", findings, {**series, f"{beside}, ms": [their_ms]})


def rng(sizes: Sizes) -> Result:
    """`stoker.rng()` in a dataset: what a sample pays for a generator of its own"""
    datasets = {"stoker.rng()": _Draws(4096), "stoker.torch_rng()": _DrawsTorch(4096), "nothing": _Plain(4096)}
    turns = [{name: _epoch_us(dataset) for name, dataset in datasets.items()} for _ in range(sizes.rounds)]
    series = {
        f"{name} in a sample, µs": [turn[name] - turn["nothing"] for turn in turns] for name in list(datasets)[:2]
    }
    reseeded = [_epoch_us(datasets["nothing"], reseed="sample") for _ in range(sizes.rounds)]
    series['reseed="sample", µs'] = [one - turn["nothing"] for one, turn in zip(reseeded, turns, strict=True)]
    series["the generator alone, µs"] = _rounds_us(partial(generator_for, 1, 2, 123_456_789), sizes)
    finding = _at_most(10, "µs", "stoker.rng() per sample", series["stoker.rng() in a sample, µs"])
    return Result("inline epochs of 4096 samples, with the draw less without", (finding,), series)


CASES: dict[str, Callable[[Sizes], Result]] = {
    "indices": indices,
    "epoch": epoch,
    "state": state,
    "resume": resume,
    "rng": rng,
}


def _orders() -> dict[str, Order]:
    thirds = [Shuffle(BILLION, seed) for seed in range(3)]
    return {
        "Shuffle": Shuffle(BILLION, 1),
        "Shuffle of 2^63 - 1": Shuffle(2**63 - 1, 1),
        "BlockShuffle": BlockShuffle(BILLION, 1),
        'BlockShuffle, inside="sequential"': BlockShuffle(BILLION, 1, inside="sequential"),
        "PreShuffled": PreShuffled(BILLION, 1),
        "Mix of three shuffles": Mix(thirds, (0.7, 0.2, 0.1)),
        "Repeat of a shuffle": Repeat(Shuffle(10**6, 1), BILLION),
    }


class _Plain(Dataset[int]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class _Draws(_Plain):
    def __getitem__(self, index: int) -> int:
        stoker.rng()
        return index


class _DrawsTorch(_Plain):
    def __getitem__(self, index: int) -> int:
        stoker.torch_rng()
        return index


def _epoch_us(dataset: _Plain, **more: Any) -> float:
    """Microseconds per sample of an inline epoch."""
    loader = stoker.DataLoader(dataset, batch_size=BATCH, seed=1, **more)
    begin_s = perf_counter()
    for _ in loader:
        pass
    return (perf_counter() - begin_s) / len(dataset) * US


def _rounds_us(call: Callable[[], object], sizes: Sizes) -> list[float]:
    call()
    return [took_s / sizes.calls * US for took_s in timeit.repeat(call, number=sizes.calls, repeat=sizes.rounds)]


def _resumes_ms(loader: Any, state: dict[str, Any], sizes: Sizes) -> list[float]:
    def once() -> object:
        loader.load_state_dict(state)
        return next(iter(loader))

    once()
    return [took_s * 1e3 for took_s in timeit.repeat(once, number=1, repeat=max(sizes.rounds, sizes.calls))]


def _fast_forward(step: int, samples: int) -> tuple[str, float]:
    """What walking there costs: torchdata's loader where it is installed, else torch's sampler alone."""
    if importlib.util.find_spec("torchdata") is None:
        begin_s = perf_counter()
        next(islice(BatchSampler(RandomSampler(range(samples)), 1, False), step, None))
        return "RandomSampler walked", (perf_counter() - begin_s) * 1e3
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(range(samples), batch_size=1, shuffle=True)  # type: ignore[arg-type, var-annotated]
    for _ in islice(loader, step):
        pass
    state = loader.state_dict()
    fresh = StatefulDataLoader(range(samples), batch_size=1, shuffle=True)  # type: ignore[arg-type, var-annotated]
    begin_s = perf_counter()
    fresh.load_state_dict(state)
    next(iter(fresh))
    return "torchdata", (perf_counter() - begin_s) * 1e3


def _at_most(bound: float, unit: str, claim: str, values: Sequence[float], detail: str = "") -> Finding:
    return Finding(claim, "at most", bound, median(values), unit, detail)
