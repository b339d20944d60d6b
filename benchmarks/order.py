"""What arithmetic order costs, and what torch's RandomSampler costs beside it.

    python benchmarks/order.py                        a few seconds, RandomSampler with 10^7 samples
    python benchmarks/order.py --samples 100000000    the same with 10^8: RandomSampler takes some GB and half a minute

Two tables. The first is the time of one call for a batch of 256 indices: the smallest of many runs, and the median, for
each order mode, and of a sample's generator. The second is the time until the first batch of indices of a shuffled
epoch, and until the 1000th, with the memory it took; each is measured in a process of its own, as peak memory never
falls.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import timeit
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from time import perf_counter

import numpy as np

from stoker.order import BlockShuffle, Mix, Order, PreShuffled, Repeat, Shard, Shuffle, generator_for, rank_positions

BATCH = 256
BILLION = 10**9


def main() -> None:
    """Print both tables, or, in a child, measure one epoch and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10**7, help="length of the shuffled epoch")
    parser.add_argument("--only", choices=sorted(EPOCHS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(_one_epoch(options.only, options.samples)))
        return
    _print_calls()
    _print_epochs(options.samples)


def _calls() -> dict[str, Callable[[], object]]:
    positions = np.arange(123_456_789, 123_456_789 + BATCH)
    thirds = [Shuffle(BILLION, seed) for seed in range(3)]
    orders: dict[str, Order] = {
        "Shuffle": Shuffle(BILLION, 1),
        "Shuffle, 2^63 - 1 samples": Shuffle(2**63 - 1, 1),
        "BlockShuffle": BlockShuffle(BILLION, 1),
        'BlockShuffle, inside="sequential"': BlockShuffle(BILLION, 1, inside="sequential"),
        "PreShuffled": PreShuffled(BILLION, 1),
        "Mix of three shuffles": Mix(thirds, (0.7, 0.2, 0.1)),
        "Repeat of a shuffle": Repeat(Shuffle(10**6, 1), BILLION),
    }
    calls: dict[str, Callable[[], object]] = {
        f"{BATCH} indices, {name}": partial(order.indices, positions, 3) for name, order in orders.items()
    }
    many = np.arange(16 * BATCH)
    calls[f"16 × {BATCH} indices at once, Shuffle"] = lambda: orders["Shuffle"].indices(many, 3)
    calls["a rank's positions in a step"] = lambda: rank_positions(1000, BILLION, 8 * BATCH, Shard(3, 8))
    calls["a sample's generator"] = lambda: generator_for(1, 2, 123_456_789)
    return calls


def _print_calls() -> None:
    print(f"{'one call, n = 10^9':<48}{'least µs':>10}{'median µs':>11}")
    for name, call in _calls().items():
        call()
        times_us = [seconds / 200 * 1e6 for seconds in timeit.repeat(call, number=200, repeat=25)]
        print(f"{name:<48}{min(times_us):>10.1f}{statistics.median(times_us):>11.1f}")


def _print_epochs(samples: int) -> None:
    print(f"\n{f'a shuffled epoch of {samples:,} samples':<48}{'1st batch':>12}{'1000th':>12}{'memory':>12}")
    for name in EPOCHS:
        command = [sys.executable, __file__, "--only", name, "--samples", str(samples)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        first, last = f"{found['first_s'] * 1e3:.2f} ms", f"{found['last_s'] * 1e3:.2f} ms"
        print(f"{name:<48}{first:>12}{last:>12}{found['memory_bytes'] / 2**20:>9.0f} MB")


def _one_epoch(name: str, samples: int) -> dict[str, float]:
    epoch = EPOCHS[name](samples)
    next(EPOCHS[name](4 * BATCH))  # imports, and code that runs for the first time, are not what is measured
    before_bytes = _peak_bytes()
    start_s = perf_counter()
    next(epoch)
    first_s = perf_counter() - start_s
    for _ in islice(epoch, 999):
        pass
    return {"first_s": first_s, "last_s": perf_counter() - start_s, "memory_bytes": _peak_bytes() - before_bytes}


def _stoker(samples: int) -> Iterator[object]:
    order = Shuffle(samples, 1)
    for step in range(samples // BATCH):
        yield order.indices(np.arange(step * BATCH, (step + 1) * BATCH), 0)


def _torch(samples: int) -> Iterator[object]:
    from torch.utils.data import BatchSampler, RandomSampler

    yield from BatchSampler(RandomSampler(range(samples)), BATCH, drop_last=True)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB


EPOCHS: dict[str, Callable[[int], Iterator[object]]] = {
    "stoker.order.Shuffle": _stoker,
    "torch RandomSampler": _torch,
}

if __name__ == "__main__":
    main()
