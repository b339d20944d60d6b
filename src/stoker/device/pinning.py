"""`pin_memory=True`: batches in page-locked memory, so that copies to the accelerator can overlap with computing.

The rules and warnings are torch's: without an accelerator, or on one that cannot pin, the argument does nothing and a
warning says so. No accelerator was at hand when this was written: it is tested with a stand-in for torch's call.
"""

from __future__ import annotations

import warnings
from typing import Any


class Pinning:
    """Pins batches, or leaves them as they are."""

    def __init__(self, wanted: bool, device: str) -> None:
        self.active = wanted and _can_pin(device)

    def __call__(self, batch: Any) -> Any:
        if not self.active:
            return batch
        import torch
        from torch.utils.data._utils.pin_memory import pin_memory

        accelerator = torch.accelerator.current_accelerator()
        device = accelerator.type if accelerator is not None else None
        return pin_memory(batch, device)  # type: ignore[no-untyped-call]


def _can_pin(device: str) -> bool:
    import torch

    if device:
        warnings.warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{device}'.",
            stacklevel=5,
        )
    if not torch.accelerator.is_available():
        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, "
            "then device pinned memory won't be used.",
            stacklevel=5,
        )
        return False
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None and accelerator.type == "mps":
        warnings.warn(
            "'pin_memory' argument is set as true but not supported on MPS now, device pinned memory won't be used.",
            stacklevel=5,
        )
        return False
    return True
