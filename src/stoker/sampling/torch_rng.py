"""`stoker.torch_rng()`: torch's counterpart of `stoker.rng()`."""

from __future__ import annotations

import torch

from stoker.order.current import current_key


def torch_rng(offset: int = 0) -> torch.Generator:
    """A fresh torch generator for the sample at hand, keyed by (seed, epoch, position); see `stoker.rng`."""
    key = current_key(offset)
    generator = torch.Generator()
    if key is None:
        generator.seed()
        return generator
    return generator.manual_seed(key & (2**63 - 1))
