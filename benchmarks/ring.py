"""A peer for the benchmark of global batches: torch's loader in a process of its own that copies into a ring.

This is how PopTorch's asynchronous loader is built:

    workers ──► torch's queue ──► the process ──► a slot of the ring ──► the training loop

which borrows the slot until it asks for the next one. It is kinder than PopTorch's own: both sides block on semaphores,
so no core is lost to spinning. The next epoch is loaded ahead, and the ring's shapes are those of the first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.multiprocessing as multiprocessing

_BATCH, _END = 0, 1


class RingLoader:
    """Iterates over batches that another process has copied into shared memory; one epoch after the other."""

    def __init__(self, make: Callable[[], Iterable[Any]], slots: int) -> None:
        context = multiprocessing.get_context("fork")
        first = next(iter(make()))
        self._slots = [[torch.empty_like(part).share_memory_() for part in first] for _ in range(slots)]
        self._kinds = torch.zeros(slots, dtype=torch.int64).share_memory_()
        self._free, self._full = context.Semaphore(slots), context.Semaphore(0)
        self._place, self._lent = 0, False
        arguments = (make, self._slots, self._kinds, self._free, self._full)
        self._process = context.Process(target=_fill, args=arguments)  # not a daemon: it has workers of its own
        self._process.start()

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        while True:
            if self._lent:
                self._free.release()
            self._full.acquire()
            place, self._place, self._lent = self._place, (self._place + 1) % len(self._slots), True
            if self._kinds[place] == _END:
                return
            yield self._slots[place]

    def close(self) -> None:
        """End the process, and its workers with it."""
        self._kinds.fill_(-1)
        for _ in self._slots:
            self._free.release()
        self._process.join()


def _fill(make: Callable[[], Iterable[Any]], slots: list[Any], kinds: torch.Tensor, free: Any, full: Any) -> None:
    torch.set_num_threads(1)
    loader, place = make(), 0
    while True:
        for batch in _and_none(loader):
            free.acquire()
            if kinds[place] < 0:  # the training process is done
                return
            for target, part in zip(slots[place], batch or (), strict=batch is not None):
                target.copy_(part)
            kinds[place] = _BATCH if batch is not None else _END
            full.release()
            place = (place + 1) % len(slots)


def _and_none(loader: Iterable[Any]) -> Iterator[Any]:
    """An epoch, and None at its end."""
    yield from loader
    yield None
