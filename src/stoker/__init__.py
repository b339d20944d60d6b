"""Stoker keeps accelerators fed: a data loader for training models.

Put `stoker.DataLoader` where `torch.utils.data.DataLoader` stands. The rooms, along the way of a sample:

`sources`       where samples come from
`order`         which sample is next: arithmetic;  `sampling`  which indices make the next batch
`workers`       who loads them;  `slots`  the reused shared memory that they land in
`batches`       rows become what the user gets;  `plan`  how much one step takes
`device`        where the model is
`passes`        one pass over the data;  `loader`  joins the rooms
`arguments`     what a loader was asked for;  `auto`  who loads, decided by measuring
`resume`        the place in the data;  `watch`  where the time goes
`prefetching`   any iterable, loaded ahead;  `training`  a model's micro-steps on one step's batch
`integrations`, `lightning`, `poptorch`  other people's conventions
`testing`       checks for users' own datasets and loaders
`bench`, `tuning`, `diagnosis`, `report`, `cli`  measuring, finding the best, finding out why, showing, a person's door
`options`       who loads, and what to do with bad samples
`contracts`, `errors`, `extras`, `interrupts`, `nested`, `proc`, `whole_numbers`  what all rooms share

Names are imported when first asked for, so that `import stoker` costs nothing: no torch until a loader is made.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stoker.interrupts import interrupts_kept

__version__ = "0.1.0"

_HOMES = {
    "prefetch": "stoker.prefetching",
    "Prefetcher": "stoker.prefetching",
    "DataLoader": "stoker.loader",
    "BatchPlan": "stoker.plan",
    "StepBatch": "stoker.plan",
    "Workers": "stoker.options",
    "OnError": "stoker.options",
    "TooManyFailures": "stoker.errors",
    "SharedList": "stoker.sources",
    "Stateful": "stoker.contracts",
    "rng": "stoker.order.current",
    "torch_rng": "stoker.sampling.torch_rng",
    "shuffle_quality": "stoker.order",
    "skip": "stoker.resume.place",
    "to_device": "stoker.device",
    "log_stats": "stoker.integrations.logging",
    "StokerError": "stoker.errors",
    "MissingExtra": "stoker.errors",
    "ResumeMismatch": "stoker.errors",
    "PassInterrupted": "stoker.errors",
    "StateError": "stoker.errors",
    "WorkerDied": "stoker.errors",
    "WorkerTimeout": "stoker.errors",
    "SlotMemoryError": "stoker.errors",
    "TunedError": "stoker.errors",
    "UnevenBatch": "stoker.errors",
    "WorkersMismatch": "stoker.errors",
}

__all__ = [
    "BatchPlan",
    "DataLoader",
    "MissingExtra",
    "OnError",
    "PassInterrupted",
    "Prefetcher",
    "ResumeMismatch",
    "SharedList",
    "SlotMemoryError",
    "StateError",
    "Stateful",
    "StepBatch",
    "StokerError",
    "TooManyFailures",
    "TunedError",
    "UnevenBatch",
    "WorkerDied",
    "WorkerTimeout",
    "Workers",
    "WorkersMismatch",
    "log_stats",
    "prefetch",
    "rng",
    "shuffle_quality",
    "skip",
    "to_device",
    "torch_rng",
]

if TYPE_CHECKING:
    from stoker.contracts import Stateful as Stateful
    from stoker.device import to_device as to_device
    from stoker.errors import MissingExtra as MissingExtra
    from stoker.errors import PassInterrupted as PassInterrupted
    from stoker.errors import ResumeMismatch as ResumeMismatch
    from stoker.errors import SlotMemoryError as SlotMemoryError
    from stoker.errors import StateError as StateError
    from stoker.errors import StokerError as StokerError
    from stoker.errors import TooManyFailures as TooManyFailures
    from stoker.errors import TunedError as TunedError
    from stoker.errors import UnevenBatch as UnevenBatch
    from stoker.errors import WorkerDied as WorkerDied
    from stoker.errors import WorkersMismatch as WorkersMismatch
    from stoker.errors import WorkerTimeout as WorkerTimeout
    from stoker.integrations.logging import log_stats as log_stats
    from stoker.loader import DataLoader as DataLoader
    from stoker.options import OnError as OnError
    from stoker.options import Workers as Workers
    from stoker.order import shuffle_quality as shuffle_quality
    from stoker.order.current import rng as rng
    from stoker.plan import BatchPlan as BatchPlan
    from stoker.plan import StepBatch as StepBatch
    from stoker.prefetching import Prefetcher as Prefetcher
    from stoker.prefetching import prefetch as prefetch
    from stoker.resume.place import skip as skip
    from stoker.sampling.torch_rng import torch_rng as torch_rng
    from stoker.sources import SharedList as SharedList


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    with interrupts_kept():  # Python may forget a Ctrl-C in the middle of an import
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
