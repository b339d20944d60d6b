"""The cases of the engine benchmark, one function each: a kind of load, the two loaders, the claim it must bear out.

Epochs after the first are "later": the workers of persistent loaders live, their memory is warm. The first epoch of a
fresh loader is "cold": starting workers and touching memory count. Where a claim concerns start-up (waiting, first
batch, overlap) every round makes a fresh loader.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import engine_data as data
import numpy as np
from engine_bench import COLD, LATER, Bench, MakeLoader, Result, ms, one_pass, passes, per_s, ratio, speeds, take_turns
from engine_memory import strings
from torch import randn
from torch.utils.data import TensorDataset

import stoker
from stoker.bench import Finding, Trial, median, quantile
from stoker.bench.datasets.faces import FacesDataset, draw_faces

SAMPLE_BYTES = 4 * int(np.prod(data.SHAPE))


def _gb_per_s(samples_per_s: float) -> str:
    return f"{samples_per_s * SAMPLE_BYTES / 1e9:.2f} GB/s"


def preprocessed_256(bench: Bench) -> Result:
    """Large samples in large batches: is memory bandwidth all that is paid for?"""
    dataset = _preprocessed(bench)
    turns: dict[str, Callable[[], Any]] = {
        **_two(bench, dataset, epochs=4, batch_size=256),
        "memcpy": partial(_memcpy_speeds, _preprocessed(bench), 256),  # its own object: nothing mapped for the others
    }
    rounds = take_turns(bench, turns)
    memcpy = [speed for round_speeds in rounds.pop("memcpy") for speed in round_speeds]
    series = _epochs(rounds) | {"memcpy by two threads, samples/s": memcpy}
    ours, theirs = (speeds(rounds[name], LATER) for name in ("stoker", "torch"))
    ours_cold, theirs_cold = (speeds(rounds[name], COLD) for name in ("stoker", "torch"))
    findings = (
        ratio("preprocessed 3×224×224, batch 256, steady", "at least", 8, ours, theirs, _gb_per_s),
        ratio("the same against a two-thread memcpy", "at least", 0.8, ours, memcpy, _gb_per_s, of="memcpy"),
        ratio("the same, first epoch, cold", "at least", 1.5, ours_cold, theirs_cold, _gb_per_s),
    )
    return Result(f"{len(dataset)} samples, shuffled, 2 persistent workers", findings, series)


def preprocessed_32(bench: Bench) -> Result:
    """Large samples in small batches."""
    dataset = _preprocessed(bench)
    rounds = take_turns(bench, _two(bench, dataset, epochs=4, batch_size=32))
    ours, theirs = (speeds(rounds[name], LATER) for name in ("stoker", "torch"))
    found = ratio("preprocessed 3×224×224, batch 32, steady", "at least", 5, ours, theirs, _gb_per_s)
    return Result(f"{len(dataset)} samples, shuffled, 2 persistent workers", (found,), _epochs(rounds))


def tiny(bench: Bench) -> Result:
    """Tiny tensors: is a batch one gather, or 256 Python calls?"""
    dataset = TensorDataset(randn(bench.sized(100_000, 20_000), 8))
    return _auto(bench, dataset, "tiny samples (TensorDataset of 8 floats), auto", 15)


def cheap(bench: Bench) -> Result:
    """Cheap Python samples: how little is added to the lookup?"""
    dataset = data.CheapList(bench.sized(100_000, 20_000))
    return _auto(bench, dataset, "cheap Python samples (a list of small arrays), auto", 1.5)


def waiting(bench: Bench) -> Result:
    """Samples that wait: do lanes wait at the same time?"""
    dataset = data.Waiting(bench.sized(256, 64), wait_s=0.05)
    lanes = stoker.Workers(processes=2, lanes=16)
    turns = {
        "torch": partial(one_pass, partial(bench.torch, dataset, batch_size=64, num_workers=2)),
        "stoker": partial(one_pass, partial(bench.stoker, dataset, batch_size=64, workers=lanes)),
    }
    rounds = take_turns(bench, turns)
    ours, theirs = ([trial.samples_per_s for trial in rounds[name]] for name in ("stoker", "torch"))
    found = ratio("waiting samples (50 ms), batch 64, 2 workers of 16 lanes", "at least", 12, ours, theirs, per_s)
    series = {"torch, samples/s": theirs, "stoker, samples/s": ours}
    return Result(f"{len(dataset)} samples, fresh loaders, start-up included", (found,), series)


def computing(bench: Bench) -> Result:
    """Samples that compute: how soon is the first batch there, and do the others come evenly?"""
    dataset = data.Computing(64 * bench.sized(12, 4), busy_s=0.02)
    rounds = take_turns(bench, _fresh(bench, dataset, batch_size=64, num_workers=2))
    first = {name: [trial.first_batch_s for trial in rounds[name]] for name in rounds}
    waits = {name: [wait_s for trial in rounds[name] for wait_s in trial.waits_s[1:]] for name in rounds}
    findings = (
        ratio("time to first batch, 20 ms a sample, batch 64", "at most", 0.6, first["stoker"], first["torch"], ms),
        _flatness(waits["stoker"], waits["torch"]),
    )
    series = {f"{name}, first batch, s": first[name] for name in rounds}
    series |= {f"{name}, waits after the first batch, s": waits[name] for name in rounds}
    return Result(f"{len(dataset)} samples, 2 workers, fresh loaders, no model", findings, series)


def _flatness(ours_s: list[float], theirs_s: list[float]) -> Finding:
    def shown(waits_s: list[float]) -> str:
        return f"{ms(quantile(waits_s, 0.99))} over {ms(median(waits_s))}"

    peak = quantile(ours_s, 0.99) / median(ours_s)
    detail = f"Stoker {shown(ours_s)}, torch {shown(theirs_s)}"
    return Finding("flatness: 99th percentile of later waits over their median", "at most", 3, peak, "× median", detail)


def overlap(bench: Bench) -> Result:
    """A model beside the loading: does a step take as long as the slower of the two, and no longer?"""
    dataset = data.Waiting(bench.sized(150, 40), wait_s=0.05)
    turns = _fresh(bench, dataset, model=lambda _batch: time.sleep(0.015), batch_size=1, num_workers=4)
    rounds = take_turns(bench, turns)
    steps = {name: [trial.later_step_s for trial in rounds[name]] for name in rounds}
    bound_ms = 1.05 * max(50 / 4, 15)
    detail = f"Stoker {ms(median(steps['stoker']))}, torch {ms(median(steps['torch']))}"
    measured_ms = median(steps["stoker"]) * 1e3
    claim = "overlap: a step with 50 ms of loading, 15 ms of model, 4 workers"
    found = Finding(claim, "at most", bound_ms, measured_ms, "ms", detail)
    return Result(f"{len(dataset)} batches of one", (found,), {f"{name}, later step, s": steps[name] for name in steps})


def fixed_cost(bench: Bench) -> Result:
    """Nothing to load: what does the loader itself cost for each batch?"""
    dataset = data.Nothing(bench.sized(2000, 300))
    rounds = take_turns(bench, _fresh(bench, dataset, batch_size=1, num_workers=1))
    costs = {name: [trial.later_step_s for trial in rounds[name]] for name in rounds}
    claim = "fixed cost of a batch (nothing to load, batch 1, one worker)"
    found = ratio(claim, "at most", 0.2, costs["stoker"], costs["torch"], ms)
    series = {f"{name}, later step, s": costs[name] for name in costs}
    return Result(f"{len(dataset)} batches of one", (found,), series)


def faces(bench: Bench) -> Result:
    """Real JPEG files with Pillow: what remains when decoding is most of the work?"""
    draw_faces(bench.folder / "faces", bench.sized(600, 100))
    dataset = FacesDataset(bench.folder / "faces")
    rounds = take_turns(bench, _two(bench, dataset, epochs=3, batch_size=32))
    ours, theirs = (speeds(rounds[name], LATER) for name in ("stoker", "torch"))
    ours_cold, theirs_cold = (speeds(rounds[name], COLD) for name in ("stoker", "torch"))
    findings = (
        ratio("faces read with Pillow, batch 32", "at least", 1.1, ours, theirs, per_s),
        ratio("the same, first epoch, cold", "at least", 1.0, ours_cold, theirs_cold, per_s),
    )
    return Result(f"{len(dataset)} photos of 250×250, shuffled, 2 persistent workers", findings, _epochs(rounds))


def _preprocessed(bench: Bench) -> data.Preprocessed:
    bench.tell("writing preprocessed samples")
    return data.make_preprocessed(bench.folder / "preprocessed.f32", bench.sized(1792, 512))


def _two(bench: Bench, dataset: Any, epochs: int, batch_size: int) -> dict[str, Callable[[], list[Trial]]]:
    """Both loaders with two persistent workers over a shuffled dataset, several epochs a round."""

    def turn(loader: MakeLoader) -> Callable[[], list[Trial]]:
        options = {"batch_size": batch_size, "shuffle": True, "num_workers": 2, "persistent_workers": True}
        return partial(passes, partial(loader, dataset, **options), epochs)

    return {"torch": turn(bench.torch), "stoker": turn(bench.stoker)}


def _fresh(
    bench: Bench, dataset: Any, model: Callable[[Any], object] | None = None, **options: Any
) -> dict[str, Callable[[], Trial]]:
    """Both loaders, made anew for each round, one epoch."""
    return {
        "torch": partial(one_pass, partial(bench.torch, dataset, **options), model=model),
        "stoker": partial(one_pass, partial(bench.stoker, dataset, **options), model=model),
    }


def _auto(bench: Bench, dataset: Any, claim: str, bound: float) -> Result:
    """Stoker with `num_workers="auto"` against torch with whichever of 0, 1, 2 workers is best for it."""
    options = {"batch_size": 256, "shuffle": True}
    turns = {
        f"torch, {count} workers": partial(
            passes,
            partial(bench.torch, dataset, **options, num_workers=count, persistent_workers=count > 0),
            2,
        )
        for count in (0, 1, 2)
    }
    turns["stoker, auto"] = partial(passes, partial(bench.stoker, dataset, **options, num_workers="auto"), 6)
    rounds = take_turns(bench, turns)
    later = {name: speeds(rounds[name], LATER) for name in rounds}
    best = max((name for name in later if name.startswith("torch")), key=lambda name: median(later[name]))
    found = ratio(claim, "at least", bound, later["stoker, auto"], later[best], per_s, of="torch's best")
    settings = f"{len(dataset):,} samples, shuffled, batch 256; torch's best was with {best.split()[1]} workers"
    return Result(settings, (found,), _epochs(rounds))


def _epochs(rounds: dict[str, list[list[Trial]]]) -> dict[str, list[float]]:
    parts = {"first epoch": COLD, "later epochs": LATER}
    return {f"{name}, {part}, samples/s": speeds(rounds[name], parts[part]) for name in rounds for part in parts}


def _memcpy_speeds(dataset: data.Preprocessed, batch_size: int) -> list[float]:
    """Samples per second of two threads that copy shuffled rows into two buffers, by turns: the limit of any loader."""
    rows = dataset.rows
    buffers = [np.ones((batch_size, *data.SHAPE), np.float32) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        return [_memcpy_speed(rows, buffers, threads) for _ in range(4)][1:]  # the first maps the file's pages


def _memcpy_speed(rows: Any, buffers: list[Any], threads: ThreadPoolExecutor) -> float:
    order = np.random.default_rng(0).permutation(len(rows))
    batch_size = len(buffers[0])

    def copy(batch: int, start: int) -> None:
        for row in range(start, min(start + batch_size // 2, len(order) - batch * batch_size)):
            buffers[batch % 2][row] = rows[order[batch * batch_size + row]]

    begun_at = time.perf_counter()
    for batch in range(-(-len(order) // batch_size)):
        list(threads.map(partial(copy, batch), (0, batch_size // 2)))
    return len(order) / (time.perf_counter() - begun_at)


CASES: dict[str, Callable[[Bench], Result]] = {
    "preprocessed-256": preprocessed_256,
    "preprocessed-32": preprocessed_32,
    "tiny": tiny,
    "cheap": cheap,
    "waiting": waiting,
    "computing": computing,
    "overlap": overlap,
    "fixed-cost": fixed_cost,
    "faces": faces,
    "strings": strings,
}
