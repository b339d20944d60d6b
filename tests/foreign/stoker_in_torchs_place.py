"""A pytest plugin: where torch's DataLoader was, everybody finds Stoker's. Loaded before any test module is imported.

`python -m pytest -p stoker_in_torchs_place …`, with this folder on PYTHONPATH. Its name is not in a package, because
other projects have a package `tests` too.
"""

from __future__ import annotations

import torch.utils.data
import torch.utils.data.dataloader

import stoker

torch.utils.data.DataLoader = torch.utils.data.dataloader.DataLoader = stoker.DataLoader  # type: ignore[misc]
