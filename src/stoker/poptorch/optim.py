"""PopTorch's optimizers: torch's, which take the arguments of the chip's and leave them aside.

Loss scaling, the types that states and accumulators are kept in, and how accumulation is combined are matters of
half-precision arithmetic on the chip. `LAMB` has no counterpart in torch and is not here.
"""

from __future__ import annotations

from typing import Any

import torch

_OF_THE_CHIP = (
    "loss_scaling",
    "velocity_scaling",
    "use_combined_accum",
    "accum_type",
    "velocity_accum_type",
    "first_order_momentum_accum_type",
    "second_order_momentum_accum_type",
    "max_grad_norm",
    "bias_correction",
)


def _for_torch(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in _OF_THE_CHIP}


class SGD(torch.optim.SGD):
    """torch's, with the chip's arguments left aside."""

    def __init__(self, params: Any, lr: float = 0.01, **arguments: Any) -> None:
        super().__init__(params, lr, **_for_torch(arguments))


class Adam(torch.optim.Adam):
    """torch's, with the chip's arguments left aside."""

    def __init__(self, params: Any, lr: float = 1e-3, **arguments: Any) -> None:
        super().__init__(params, lr, **_for_torch(arguments))


class AdamW(torch.optim.AdamW):
    """torch's, with the chip's arguments left aside."""

    def __init__(self, params: Any, lr: float = 1e-3, **arguments: Any) -> None:
        super().__init__(params, lr, **_for_torch(arguments))


class RMSprop(torch.optim.RMSprop):
    """torch's, with the chip's arguments left aside."""

    def __init__(self, params: Any, lr: float = 0.01, **arguments: Any) -> None:
        super().__init__(params, lr, **_for_torch(arguments))
