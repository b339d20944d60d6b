"""The program's door: `stoker.DataLoader`.

`dataloader`  the class that users put where torch's stands;  `dynamo`  hides it from torch.compile
`patches`     what others do to torch's private iterators, refused

`DataLoader` is imported when first asked for, so that `import stoker` does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.loader.dataloader import DataLoader as DataLoader

__all__ = ["DataLoader"]


def __getattr__(name: str) -> Any:
    if name != "DataLoader":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stoker.loader.dataloader import DataLoader

    globals()[name] = DataLoader
    return DataLoader
