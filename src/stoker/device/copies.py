"""How a batch gets to the device, and who may use which memory until when.

    host batch ──► start() ──► copies under way on the copy stream ──► event ──► hand_over() ──► the training step
        │                                                                │
        └── held until the event has happened ◄──────────────────────────┘

Promises: the host memory of a batch is held until the device has read it, so that a slot is never refilled under a
copy; the step's own stream waits for the copy, the step's thread never does; memory of a device batch is not used again
before the step is through with it (`keep`). Objects of which nobody can say which tensors they hold are copied when
they are handed over, by the step's own stream: late, but safe.

A slot's memory is page-locked where it lies, the whole mapping once, the first time that a batch in it is copied: no
thread copies batches into pinned memory. Batches that do not lie in slots (small ones, other people's loaders) are
copied from wherever they are.

What speaks to a real device is behind `Driver`, which has one implementation for CUDA (`stoker.device.cuda`) and one
for tests that records its calls. No CUDA device was at hand when this was written.
"""

from __future__ import annotations

import functools
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from stoker.device.tree import change_leaves, is_opaque, leaves_in
from stoker.slots import region_of


class Driver(Protocol):
    """The few calls that copying ahead needs of a device with streams."""

    def register(self, address: int, size_bytes: int) -> bool:
        """Page-lock host memory; False if the driver refuses."""

    def unregister(self, address: int) -> None:
        """Undo `register`."""

    def copying(self) -> AbstractContextManager[Any]:
        """Inside, whatever is copied is copied on the copy stream."""

    def copy(self, leaf: Any) -> Any:
        """Begin to copy a tensor, or an object with a `to`; what it gives is complete when the next event happens."""

    def copy_in_step(self, leaf: Any) -> Any:
        """Copy an object on the stream that is current for the caller, and be through with it."""

    def record(self) -> Any:
        """An event that happens when all copies so far are through."""

    def wait_in_step(self, event: Any) -> None:
        """Let the stream that is current for the caller wait for the event; the caller itself goes on."""

    def keep(self, leaf: Any) -> None:
        """The stream that is current for the caller uses this tensor: its memory is taken until that is through."""

    def has_happened(self, event: Any) -> bool:
        """Whether the copies before an event are through."""

    def wait(self, event: Any) -> None:
        """Block until they are."""


@dataclass(frozen=True)
class Copied:
    """A batch on the device, or on its way there."""

    batch: Any
    event: Any = None


class Copies(Protocol):
    """Copies batches to one device."""

    def start(self, batch: Any) -> Copied:
        """Begin to copy a batch; called by whoever reads ahead."""

    def hand_over(self, copied: Copied) -> Any:
        """The batch, for the thread that makes the step."""

    def close(self) -> None:
        """Wait until no copy is under way, and let go of all host memory."""


class PlainCopies:
    """Devices without streams of ours: the CPU, where there is nothing to copy, and whatever is not CUDA."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def start(self, batch: Any) -> Copied:
        return Copied(change_leaves(batch, self._move))

    def _move(self, leaf: Any) -> Any:
        return leaf.to(self._device)

    def hand_over(self, copied: Copied) -> Any:
        return copied.batch

    def close(self) -> None:
        """Nothing is under way."""


class StreamCopies:
    """Devices that copy beside computing."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._under_way: deque[tuple[Any, Any]] = deque()  # (event, host batch), the oldest first

    def start(self, batch: Any) -> Copied:
        self._let_go()
        for leaf in leaves_in(batch):
            self._lock_pages(leaf)
        with self._driver.copying():
            copied = change_leaves(batch, lambda leaf: leaf if is_opaque(leaf) else self._driver.copy(leaf))
            event = self._driver.record()
        self._under_way.append((event, batch))
        return Copied(copied, event)

    def hand_over(self, copied: Copied) -> Any:
        self._driver.wait_in_step(copied.event)
        for leaf in leaves_in(copied.batch):
            if not is_opaque(leaf):
                self._driver.keep(leaf)
        return change_leaves(copied.batch, lambda leaf: self._driver.copy_in_step(leaf) if is_opaque(leaf) else leaf)

    def close(self) -> None:
        while self._under_way:
            self._driver.wait(self._under_way[0][0])
            self._under_way.popleft()

    def _let_go(self) -> None:
        """Drop host batches that the device has read; events of one stream happen in turn."""
        while self._under_way and self._driver.has_happened(self._under_way[0][0]):
            self._under_way.popleft()

    def _lock_pages(self, leaf: Any) -> None:
        """Page-lock the slot that a tensor lies in, if it does and if that was not done yet."""
        region = region_of(leaf.data_ptr()) if hasattr(leaf, "data_ptr") else None
        if region is None or region.is_claimed:
            return
        region.is_claimed = True
        if self._driver.register(region.address, region.size_bytes):
            region.before_unmapping.append(functools.partial(self._driver.unregister, region.address))


def copies_for(device: Any) -> Copies:
    """What copies to this device."""
    import torch

    place = torch.device(device)
    if place.type != "cuda":
        return PlainCopies(place)
    from stoker.device.cuda import CudaDriver

    return StreamCopies(CudaDriver(place))
