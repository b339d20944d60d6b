"""The calls to CUDA, all of them: page-locking, a stream for copies, events.

Thin on purpose. No CUDA device was at hand, so nothing in this file has been run on one; what uses it
(`stoker.device.copies`) is tested with a driver that records the calls, their order, and when memory is used again.
"""

from __future__ import annotations

import contextlib
import warnings
from contextlib import AbstractContextManager
from typing import Any

import torch

_PORTABLE = 1  # cudaHostRegisterPortable: page-locked for every device of this process


class CudaDriver:
    """One device, with a stream for copies of its own."""

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self._device = torch.device("cuda", index)
        self._runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        self._stream: Any = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]

    def register(self, address: int, size_bytes: int) -> bool:
        error = int(self._runtime.cudaHostRegister(address, size_bytes, _PORTABLE))
        if error == 0:
            return True
        warnings.warn(
            f"CUDA would not page-lock a slot of {size_bytes:,} bytes (error {error}); its batches are copied from "
            "ordinary memory, which is slower. Look at the limit of locked memory: ulimit -l.",
            stacklevel=2,
        )
        # CUDA tells a thread of its last error again at the next checked call: let it do so here, not in a step.
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=self._device)
        return False

    def unregister(self, address: int) -> None:
        self._runtime.cudaHostUnregister(address)

    def copying(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._stream)

    def copy(self, leaf: Any) -> Any:
        try:
            return leaf.to(self._device, non_blocking=True)
        except TypeError:  # an object of the user's own, whose `to` takes a device only
            return leaf.to(self._device)

    def copy_in_step(self, leaf: Any) -> Any:
        return leaf.to(self._device)

    def record(self) -> Any:
        return self._stream.record_event()

    def wait_in_step(self, event: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(event)

    def keep(self, leaf: Any) -> None:
        if getattr(leaf, "device", self._device) == self._device:  # a tensor may have been left where it was
            leaf.record_stream(torch.cuda.current_stream(self._device))

    def has_happened(self, event: Any) -> bool:
        return bool(event.query())

    def wait(self, event: Any) -> None:
        event.synchronize()
