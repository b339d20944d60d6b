"""What a pass is made from: the loader's arguments, as they are when its iterator is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from stoker.arguments.planned import Planned
from stoker.auto.size import Limits
from stoker.options import OnError, Workers
from stoker.resume.data import Data


@dataclass(frozen=True)
class Setup:
    """Torch's names where torch has one; `workers` says who loads."""

    data: Data
    workers: Workers  # where their number may change, those to begin with
    limits: Limits | None  # of that; None: it stays
    policy: OnError
    planned: Planned | None
    collate_fn: Any
    worker_init_fn: Callable[[int], Any] | None
    context: Any  # multiprocessing's
    generator: torch.Generator | None
    batched: bool  # torch's `_auto_collation`: batches are made of samples, and not given as they are
    drop_last: bool
    in_order: bool
    prefetch_factor: int | None
    persistent_workers: bool
    timeout: float
    pin_memory: bool
    pin_memory_device: str
    seed: int | None
    reseed: str | None
