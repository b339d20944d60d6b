"""The beginning of a shuffled epoch, in a process of its own: time and memory until the first and the 1000th batch.

Peak memory never falls, so every measurement gets a new process, which is `order.py` again with `--epoch-of`.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np

from stoker.order import Shuffle

BATCH = 256


@dataclass(frozen=True)
class Beginning:
    """How long the first batches of indices took, and the memory they needed."""

    first_s: float
    thousandth_s: float
    memory_bytes: int


def measure_apart(name: str, samples: int) -> Beginning:
    """Measure one kind of epoch in a new process."""
    script = Path(__file__).with_name("order.py")
    command = [sys.executable, str(script), "--epoch-of", name, "--samples", str(samples)]
    return Beginning(**json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def measure_here(name: str, samples: int) -> str:
    """Measure one kind of epoch in this process; JSON for `measure_apart`."""
    epoch = EPOCHS[name](samples)
    next(EPOCHS[name](4 * BATCH))  # imports, and code that runs for the first time, are not what is measured
    before_bytes, start_s = _peak_bytes(), perf_counter()
    next(epoch)
    first_s = perf_counter() - start_s
    for _ in islice(epoch, 999):
        pass
    return json.dumps(asdict(Beginning(first_s, perf_counter() - start_s, _peak_bytes() - before_bytes)))


def _stoker(samples: int) -> Iterator[object]:
    order = Shuffle(samples, 1)
    for step in range(samples // BATCH):
        yield order.indices(np.arange(step * BATCH, (step + 1) * BATCH), 0)


def _torch(samples: int) -> Iterator[object]:
    from torch.utils.data import BatchSampler, RandomSampler

    yield from BatchSampler(RandomSampler(range(samples)), BATCH, drop_last=True)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB


EPOCHS: dict[str, Callable[[int], Iterator[object]]] = {"stoker": _stoker, "torch": _torch}
