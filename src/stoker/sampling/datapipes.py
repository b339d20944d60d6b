"""torch's DataPipes: their own way of sharding over workers and of being seeded, kept as torch's loader has it.

torch does not develop them any further; datasets built from them should still load.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data.dataloader import _get_distributed_settings, _sharding_worker_init_fn, _share_dist_seed
from torch.utils.data.graph_settings import apply_random_seed, apply_sharding

from stoker.batches import IterableJob
from stoker.contracts import EpochNote


class DataPipes:
    """What a loader does differently when its dataset is a DataPipe; nothing for any other dataset."""

    def __init__(self, dataset: Any, generator: torch.Generator | None) -> None:
        self._dataset, self._generator = dataset, generator
        self._is_pipe = isinstance(dataset, IterDataPipe | MapDataPipe)
        self._is_seeded = isinstance(dataset, IterDataPipe)
        self._group: Any = None

    def draw_seed(self) -> int:
        if not self._is_seeded:
            return 0
        if self._group is None and torch.distributed.is_available() and torch.distributed.is_initialized():
            self._group = torch.distributed.new_group(backend="gloo")
        seed = int(_share_dist_seed(self._generator, self._group))  # type: ignore[no-untyped-call]
        apply_random_seed(self._dataset, torch.Generator().manual_seed(seed))
        return seed

    def shard_here(self) -> None:
        """Without workers the training process is the only one to shard for."""
        if self._is_pipe:
            world, rank = _get_distributed_settings()  # type: ignore[no-untyped-call]
            apply_sharding(self._dataset, world, rank)

    def init_fn(self, users: Callable[[int], Any] | None) -> Callable[[int], Any] | None:
        if not self._is_pipe:
            return users
        world, rank = _get_distributed_settings()  # type: ignore[no-untyped-call]
        return functools.partial(_sharding_worker_init_fn, users, world, rank)

    def job(self, plain: type[IterableJob]) -> type[IterableJob]:
        return PipeJob if self._is_seeded else plain


class PipeJob(IterableJob):
    """An iterable job that seeds its pipe at the beginning of each epoch."""

    def begin_epoch(self, note: EpochNote) -> None:
        super().begin_epoch(note)
        apply_random_seed(self.dataset, torch.Generator().manual_seed(note.shared_seed))
