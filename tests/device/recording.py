"""A device that does not exist: writes down the calls it gets, and reads host memory as late as it may.

Copies are made when the step waits for their event, and not before, from the bare address: a slot that was refilled or
let go in between shows as a wrong number in the batch, or as an address that is no longer mapped.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import torch

from stoker.slots import region_of


class RecordingDriver:
    """A driver without a device. Events are numbers, and happen in turn."""

    def __init__(self, refuses: bool = False) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.registered: set[int] = set()
        self._refuses = refuses
        self._pending: list[tuple[int, int, torch.Tensor]] = []  # (event, host address, device tensor)
        self._events = self._happened = 0
        self._working = threading.Lock()

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def register(self, address: int, size_bytes: int) -> bool:
        self.calls.append(("register", address, size_bytes))
        if not self._refuses:
            self.registered.add(address)
        return not self._refuses

    def unregister(self, address: int) -> None:
        self.calls.append(("unregister", address))
        ctypes.string_at(address, 1)  # must still be mapped: this would crash otherwise
        self.registered.remove(address)

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        self.calls.append(("begin copying",))
        yield
        self.calls.append(("end copying",))

    def copy(self, leaf: Any) -> Any:
        self.calls.append(("copy", type(leaf).__name__))
        if not isinstance(leaf, torch.Tensor):
            return leaf.to("somewhere")
        assert leaf.is_contiguous()
        copied = torch.full_like(leaf, 99)
        with self._working:
            self._pending.append((self._events + 1, leaf.data_ptr(), copied))
        return copied

    def copy_in_step(self, leaf: Any) -> Any:
        self.calls.append(("copy in step", type(leaf).__name__))
        return leaf.to("somewhere")

    def record(self) -> int:
        self._events += 1
        self.calls.append(("record", self._events))
        return self._events

    def wait_in_step(self, event: int) -> None:
        self.calls.append(("wait in step", event))
        self._happen(event)

    def keep(self, leaf: Any) -> None:
        self.calls.append(("keep", type(leaf).__name__))

    def has_happened(self, event: int) -> bool:
        return event <= self._happened

    def wait(self, event: int) -> None:
        self.calls.append(("wait", event))
        self._happen(event)

    def _happen(self, event: int) -> None:
        """The device gets round to what was asked of it up to an event."""
        with self._working:  # the step and the reading thread may both wait for it
            due = [copy for copy in self._pending if copy[0] <= event]
            for copy in due:
                self._read(*copy)
            self._pending = [copy for copy in self._pending if copy[0] > event]
            self._happened = max(self._happened, event)

    def _read(self, event: int, address: int, copied: torch.Tensor) -> None:
        region = region_of(address)
        assert region is None or self._refuses or region.address in self.registered
        ctypes.memmove(copied.data_ptr(), address, copied.nbytes)
