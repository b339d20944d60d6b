"""torchdata's names: change the import, and code written for `StatefulDataLoader` runs on Stoker.

    from stoker.integrations.torchdata import StatefulDataLoader, StatefulDistributedSampler

`stoker.DataLoader` is stateful itself; the sampler is torch's `DistributedSampler` with a place that can be saved. New
code needs neither: `stoker.DataLoader(dataset, seed=…)` shards over ranks and resumes on any number of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch.utils.data import Dataset, RandomSampler
from torch.utils.data.distributed import DistributedSampler

from stoker.contracts import Stateful
from stoker.loader import DataLoader as StatefulDataLoader

__all__ = ["RandomSampler", "Stateful", "StatefulDataLoader", "StatefulDistributedSampler"]


class StatefulDistributedSampler(DistributedSampler[Any]):
    """torch's `DistributedSampler`, which knows how many indices it has given and can go on after them."""

    _YIELDED = "yielded"
    _EPOCH = "epoch"

    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)
        self.yielded = 0
        self.next_yielded: int | None = None

    def __iter__(self) -> Iterator[Any]:
        self.yielded, self.next_yielded = self.next_yielded or 0, None
        for index in islice(super().__iter__(), self.yielded, None):
            self.yielded += 1
            yield index

    def state_dict(self) -> dict[str, Any]:
        return {self._YIELDED: self.yielded, self._EPOCH: self.epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._YIELDED not in state_dict:
            raise ValueError(f"the sampler's state has no {self._YIELDED!r}: {state_dict}")
        if state_dict[self._YIELDED] < 0:
            raise ValueError(f"a sampler cannot have given {state_dict[self._YIELDED]} indices: its state is damaged")
        self.next_yielded = state_dict[self._YIELDED]
        self.set_epoch(state_dict.get(self._EPOCH, self.epoch))
