"""How long a step spends on bringing tensors to another device, seen from outside the step.

Most steps begin with `inputs.to(device)`. torch lets a mode look over every call on tensors, so these calls can be
timed without changing the step: only those count that give a tensor on another device, and each is waited for, or else
an asynchronous copy would be charged to whatever waits for it next.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_MOVERS = (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu)


class Copies(TorchFunctionMode):
    """While entered, adds up the seconds of copies between devices."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: float = 0.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _MOVERS:
            return func(*args, **(kwargs or {}))
        begun_at = time.perf_counter()
        moved = func(*args, **(kwargs or {}))
        if moved.device != args[0].device:
            if torch.accelerator.is_available():
                torch.accelerator.synchronize()
            self.seconds += time.perf_counter() - begun_at
        return moved
