"""Thirty training loops, each with one thing wrong, and what that is.

A cost is a sleep or processor time that is counted, and outweighs all others at least threefold, so that a case has one
answer on any machine with two cores or more. `make` gives the loader and the model's step; both are what a user would
write, and know nothing of how they are judged.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info

import stoker
from stoker.auto.processor import cores
from stoker.bench.datasets.simulated import Simulated, SimulatedAsync, compute
from stoker.diagnosis import Cause

CORES = cores()


@dataclass(frozen=True)
class Case:
    """One training loop, and the cause that a diagnosis should name."""

    name: str
    cause: Cause
    make: Callable[[], tuple[Any, Any]]
    device: Any = None


def sleeping(seconds: float) -> Callable[[Any], None]:
    return lambda _batch: time.sleep(seconds)


def slow_storage_workers() -> tuple[Any, Any]:
    return DataLoader(Simulated(2000, sleep_ms=10), batch_size=16, num_workers=2), sleeping(0.002)


def slow_storage_inline() -> tuple[Any, Any]:
    return stoker.DataLoader(Simulated(2000, sleep_ms=5), batch_size=16, shuffle=True), sleeping(0.002)


def network_awaited() -> tuple[Any, Any]:
    dataset = SimulatedAsync(2000, async_ms=20)
    return stoker.DataLoader(dataset, batch_size=16, workers=stoker.Workers(threads=4)), sleeping(0.002)


def slow_decode() -> tuple[Any, Any]:
    return DataLoader(Simulated(2000, compute_ms=3), batch_size=16, shuffle=True, num_workers=CORES), sleeping(0.002)


def gil_in_threads() -> tuple[Any, Any]:
    dataset = Simulated(2000, compute_ms=3)
    return stoker.DataLoader(dataset, batch_size=16, workers=stoker.Workers(threads=2 * CORES)), sleeping(0.002)


def _stack_slowly(samples: list[Any]) -> torch.Tensor:
    compute(0.05)
    return torch.stack([torch.as_tensor(sample) for sample in samples])


def heavy_collate() -> tuple[Any, Any]:
    dataset = Simulated(2000, compute_ms=0.05, bytes=2048)
    return DataLoader(dataset, batch_size=16, num_workers=CORES, collate_fn=_stack_slowly), sleeping(0.002)


class Stored(Dataset[torch.Tensor]):
    """Large samples that lie in memory: nothing but bytes to move."""

    def __init__(self, count: int, floats: int) -> None:
        self._samples = torch.zeros(4, floats)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._samples[index % len(self._samples)]


def huge_samples() -> tuple[Any, Any]:
    return DataLoader(Stored(400, 2_000_000), batch_size=4, num_workers=2), sleeping(0.001)


def too_few_workers_inline() -> tuple[Any, Any]:
    return DataLoader(Simulated(2000, compute_ms=2), batch_size=16, shuffle=True), sleeping(0.005)


class OneHead(Dataset[int]):
    """A disk with one head: whoever reads where another has read makes it seek, and all wait for all."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._disk = tempfile.TemporaryFile()  # noqa: SIM115 - locked by the process that reads, freed by the kernel if that dies
        self._disk.write(bytes(8))
        self._disk.flush()

    def __del__(self) -> None:
        self._disk.close()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        disk, mine = self._disk.fileno(), os.getpid().to_bytes(8, "little")
        fcntl.lockf(disk, fcntl.LOCK_EX)
        try:
            time.sleep(0.001 if os.pread(disk, 8, 0) == mine else 0.01)
            os.pwrite(disk, mine, 0)
        finally:
            fcntl.lockf(disk, fcntl.LOCK_UN)
        return index


def too_many_workers() -> tuple[Any, Any]:
    return DataLoader(OneHead(2000), batch_size=8, num_workers=4 * CORES), sleeping(0.002)


def tiny_samples() -> tuple[Any, Any]:
    return DataLoader(list(range(200_000)), batch_size=8, num_workers=2), None  # type: ignore[arg-type]


def _settle_in(_worker: int) -> None:
    time.sleep(0.3)


def slow_worker_start() -> tuple[Any, Any]:
    dataset = Simulated(160, compute_ms=0.1)
    return DataLoader(dataset, batch_size=16, num_workers=2, worker_init_fn=_settle_in), sleeping(0.005)


def short_epochs() -> tuple[Any, Any]:
    dataset = Simulated(64, compute_ms=0.1)
    return DataLoader(dataset, batch_size=16, num_workers=6), sleeping(0.002)


def slow_model() -> tuple[Any, Any]:
    return DataLoader(Simulated(2000, compute_ms=0.1), batch_size=16, num_workers=CORES), sleeping(0.06)


def balanced() -> tuple[Any, Any]:
    loader = stoker.DataLoader(Simulated(2000, sleep_ms=4), batch_size=16, num_workers=2)
    return loader, sleeping(0.05)  # a batch takes 32 ms


class Batches:
    """A loader of somebody's own: no dataset to be seen, no arguments to be changed."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        for _ in range(500):
            yield self._make()


def _computed() -> Any:
    compute(0.03)
    return np.zeros((16, 4))


def computing_iterable() -> tuple[Any, Any]:
    return Batches(_computed), sleeping(0.005)


class FarAway:
    """A batch whose way to the device is long."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data, self.shape, self.nbytes = data, data.shape, data.nbytes

    def to(self, _device: Any) -> torch.Tensor:
        time.sleep(0.03)
        return self.data


def _far_away(samples: list[Any]) -> FarAway:
    return FarAway(torch.stack([torch.as_tensor(sample) for sample in samples]))


def slow_copy() -> tuple[Any, Any]:
    loader = DataLoader(Simulated(4000), batch_size=16, collate_fn=_far_away, num_workers=1)
    return loader, sleeping(0.01)


class Bursts(Dataset[int]):
    """Every fourth batch of sixteen opens a new file, which takes long; all others are quick."""

    def __len__(self) -> int:
        return 16 * 2000

    def __getitem__(self, index: int) -> int:
        if index % (16 * 4) == 0:
            time.sleep(0.096)
        return index


def starved_prefetch() -> tuple[Any, Any]:
    return DataLoader(Bursts(), batch_size=16, num_workers=1, prefetch_factor=1), sleeping(
        0.036
    )  # a batch takes 24 ms in mean


class FirstIsSlow(Dataset[int]):
    """The first sample of every batch of sixteen takes fifty times as long as the others."""

    def __len__(self) -> int:
        return 16 * 500

    def __getitem__(self, index: int) -> int:
        time.sleep(0.1 if index % 16 == 0 else 0.002)
        return index


def stragglers() -> tuple[Any, Any]:
    return stoker.DataLoader(FirstIsSlow(), batch_size=16, num_workers=4), sleeping(0.002)


class Words(Dataset[dict[str, str]]):
    """Samples that are Python objects: cheap to hand out, dear to pickle."""

    def __init__(self) -> None:
        self._samples = [{f"{n} {start}": f"{start} {n}" for n in range(4000)} for start in range(16)]

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> dict[str, str]:
        return self._samples[index % len(self._samples)]


def _as_they_are(samples: list[Any]) -> list[Any]:
    return samples


def pickled_objects() -> tuple[Any, Any]:
    return DataLoader(Words(), batch_size=8, num_workers=2, collate_fn=_as_they_are), sleeping(0.001)


class Counting(IterableDataset[int]):
    """Numbers that are computed one after the other."""

    def __iter__(self) -> Iterator[int]:
        for number in range(50_000):
            compute(0.001)
            yield number


def iterable_inline() -> tuple[Any, Any]:
    return DataLoader(Counting(), batch_size=16), sleeping(0.024)  # a batch takes 16 ms


class Pondering(Sampler[int]):
    """Computes for every index that it draws."""

    def __len__(self) -> int:
        return 4000

    def __iter__(self) -> Iterator[int]:
        for index in range(4000):
            compute(0.002)
            yield index


def slow_sampler() -> tuple[Any, Any]:
    return DataLoader(Simulated(4000), batch_size=16, sampler=Pondering(), num_workers=2), sleeping(0.002)


class Batched(Sampler[list[int]]):
    """Asks somebody which samples make the next batch, and waits for the answer."""

    def __len__(self) -> int:
        return 250

    def __iter__(self) -> Iterator[list[int]]:
        for batch in range(250):
            time.sleep(0.03)
            yield list(range(16 * batch, 16 * batch + 16))


def slow_batch_sampler() -> tuple[Any, Any]:
    return stoker.DataLoader(Simulated(4000), batch_sampler=Batched(), num_workers=1), sleeping(0.002)


class Sorting(Sampler[int]):
    """Computes the order of an epoch when that begins."""

    def __len__(self) -> int:
        return 1600

    def __iter__(self) -> Iterator[int]:
        time.sleep(1.0)
        yield from range(1600)


def slow_start_of_kept_workers() -> tuple[Any, Any]:
    loader = DataLoader(
        Simulated(1600, compute_ms=0.05), batch_size=16, sampler=Sorting(), num_workers=2, persistent_workers=True
    )
    return loader, sleeping(0.004)


class OneIn97(Dataset[int]):
    """One sample in 97 takes two hundred times as long as the others."""

    def __init__(self, first: int = 0) -> None:
        self._first = first

    def __len__(self) -> int:
        return 16 * 2000

    def __getitem__(self, index: int) -> int:
        time.sleep(0.4 if index >= self._first and index % 97 == 96 else 0.002)
        return index


def rare_stragglers() -> tuple[Any, Any]:
    return DataLoader(OneIn97(), batch_size=16, num_workers=2), sleeping(0.002)


def late_stragglers() -> tuple[Any, Any]:
    return DataLoader(OneIn97(first=300), batch_size=16), sleeping(0.002)


class PageCache(Dataset[Any]):
    """A sample takes five milliseconds when it is read for the first time, by whichever process, and then none."""

    def __init__(self, count: int) -> None:
        self._read = mmap.mmap(-1, count)

    def __len__(self) -> int:
        return len(self._read)

    def __getitem__(self, index: int) -> Any:
        if not self._read[index]:
            time.sleep(0.005)
            self._read[index] = 1
        return np.zeros(64, np.float32)


def cold_cache() -> tuple[Any, Any]:
    return DataLoader(PageCache(64_000), batch_size=16, num_workers=2), sleeping(0.002)


class Lines(IterableDataset[int]):
    """A stream that knows nothing of workers."""

    def __iter__(self) -> Iterator[int]:
        for number in range(50_000):
            time.sleep(0.002)
            yield number


def one_stream() -> tuple[Any, Any]:
    return DataLoader(Lines(), batch_size=16, num_workers=2), sleeping(0.002)


class FirstOnly(Lines):
    """A stream that the first worker reads for all."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        return super().__iter__() if info is None or info.id == 0 else iter(())


def stream_of_the_first() -> tuple[Any, Any]:
    return DataLoader(FirstOnly(), batch_size=16, num_workers=2), sleeping(0.002)


PICTURE = torch.zeros(3, 384, 384, dtype=torch.uint8)


class Pictures(Dataset[torch.Tensor]):
    """A picture from memory."""

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        return PICTURE


def static_buffer() -> tuple[Any, Any]:
    static = torch.zeros(16, 3, 384, 384, dtype=torch.float64)
    return stoker.DataLoader(Pictures(), batch_size=16, num_workers=1), static.copy_


def converting_step() -> tuple[Any, Any]:
    return stoker.DataLoader(Pictures(), batch_size=16, num_workers=1), lambda batch: batch.to("cpu", torch.float64)


CASES = (
    Case("slow storage, 2 workers of torch", Cause.STORAGE, slow_storage_workers),
    Case("slow storage, loaded inline", Cause.STORAGE, slow_storage_inline),
    Case("a network, awaited by 4 lanes", Cause.STORAGE, network_awaited),
    Case("slow decoding on all cores", Cause.DECODING, slow_decode),
    Case("a transform that holds the GIL, in threads", Cause.GIL, gil_in_threads),
    Case("a heavy collate_fn", Cause.COLLATING, heavy_collate),
    Case("huge samples from memory", Cause.MOVING, huge_samples),
    Case("tiny samples with workers", Cause.MOVING, tiny_samples),
    Case("batches of Python objects", Cause.MOVING, pickled_objects),
    Case("computing without workers", Cause.TOO_FEW_WORKERS, too_few_workers_inline),
    Case("an iterable dataset, loaded inline", Cause.TOO_FEW_WORKERS, iterable_inline),
    Case("many workers at a disk with one head", Cause.TOO_MANY_WORKERS, too_many_workers),
    Case("workers that start slowly", Cause.EPOCH_START, slow_worker_start),
    Case("short epochs, workers started for each", Cause.EPOCH_START, short_epochs),
    Case("a slow copy to the device", Cause.COPYING, slow_copy, device="far"),
    Case("every fourth batch is slow, nothing ahead", Cause.PREFETCH, starved_prefetch),
    Case("one slow sample in each batch", Cause.STRAGGLERS, stragglers),
    Case("a slow model", Cause.MODEL, slow_model),
    Case("somebody's iterable, computing", Cause.DECODING, computing_iterable),
    Case("loader and model nearly balanced", Cause.MODEL, balanced),
    Case("a sampler that computes", Cause.SAMPLER, slow_sampler),
    Case("a batch_sampler that waits", Cause.SAMPLER, slow_batch_sampler),
    Case("workers are kept, the order is computed for each epoch", Cause.EPOCH_START, slow_start_of_kept_workers),
    Case("one slow sample in 97", Cause.STRAGGLERS, rare_stragglers),
    Case("one slow sample in 97, not among the first", Cause.STRAGGLERS, late_stragglers),
    Case("files that nobody has read yet", Cause.STORAGE, cold_cache),
    Case("a stream that every worker reads", Cause.ONE_STREAM, one_stream),
    Case("a stream that one worker reads", Cause.ONE_STREAM, stream_of_the_first),
    Case("a step that fills a static buffer", Cause.COPYING, static_buffer),
    Case("a step that converts its batch", Cause.COPYING, converting_step),
)
