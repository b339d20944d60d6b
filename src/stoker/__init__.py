"""Stoker keeps accelerators fed: a data loader for training models.

Put `stoker.DataLoader` where `torch.utils.data.DataLoader` stands. The rooms, along the way of a sample:

    sources  where samples come from          order    which sample is next
    workers  who loads them                   slots    reused shared memory they land in
    batches  rows become what the user gets   device   where the model is
    loader   joins the rooms                  measure, report, cli: watching, showing, a person's door

Names are imported when first asked for, so that `import stoker` costs nothing: no torch until a loader is made.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "DataLoader": "stoker.loader",
    "Workers": "stoker.contracts",
    "SharedList": "stoker.sources",
    "StokerError": "stoker.errors",
    "WorkerDied": "stoker.errors",
    "WorkerTimeout": "stoker.errors",
    "SlotMemoryError": "stoker.errors",
}

__all__ = ["DataLoader", "SharedList", "SlotMemoryError", "StokerError", "WorkerDied", "WorkerTimeout", "Workers"]

if TYPE_CHECKING:
    from stoker.contracts import Workers as Workers
    from stoker.errors import SlotMemoryError as SlotMemoryError
    from stoker.errors import StokerError as StokerError
    from stoker.errors import WorkerDied as WorkerDied
    from stoker.errors import WorkerTimeout as WorkerTimeout
    from stoker.loader import DataLoader as DataLoader
    from stoker.sources import SharedList as SharedList


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
