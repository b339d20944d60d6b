"""A stream whose first epoch is short, so that there is a second one to look at."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset


class Bounded(IterableDataset[Any]):
    """The dataset it stands for; the first iterator that each process makes of it gives only so many samples."""

    def __init__(self, dataset: Any, most: int) -> None:
        self._stoker_dataset, self._stoker_most = dataset, most

    def __iter__(self) -> Iterator[Any]:
        most, self._stoker_most = self._stoker_most, None  # type: ignore[assignment]
        return iter(self._stoker_dataset) if most is None else islice(self._stoker_dataset, most)

    def __getattr__(self, name: str) -> Any:
        """What the user's own functions ask of it, `worker_init_fn` say."""
        if name.startswith("_stoker"):  # not there yet: it is being unpickled
            raise AttributeError(name)
        return getattr(self._stoker_dataset, name)
