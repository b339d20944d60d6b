"""Datasets and samplers whose `state_dict` cannot be used, each in another way. Torch's loader never calls it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset

LENGTH = 12


class NeedsArguments:
    """As litdata's StreamingDataset has it."""

    def state_dict(self, num_samples_yielded: int, num_workers: int, batch_size: int) -> dict[str, Any]:
        raise AssertionError("nobody has these arguments")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError("nobody has a state to load")


class NeedsKeywords:
    """As MosaicML's StreamingDataset has it, by keyword."""

    def state_dict(self, *, num_samples: int, from_beginning: bool) -> dict[str, Any]:
        raise AssertionError("nobody has these arguments")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError("nobody has a state to load")


class LoadsMore:
    def state_dict(self) -> dict[str, Any]:
        raise AssertionError("what cannot be loaded need not be saved")

    def load_state_dict(self, state: dict[str, Any], place: int) -> None:
        raise AssertionError("nobody knows the place")


class Raises:
    def state_dict(self) -> dict[str, Any]:
        raise LookupError("the index is not open yet")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class GivesALock:
    """Its state can be neither copied nor sent to another process."""

    def state_dict(self) -> dict[str, Any]:
        return {"lock": threading.Lock()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


WITHOUT: list[type[Any]] = [NeedsArguments, NeedsKeywords, LoadsMore]
UNTOLD: list[type[Any]] = [Raises, GivesALock]


class Samples:
    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(LENGTH))


class Walk:
    """An iterator with a state."""

    def __init__(self) -> None:
        self.left = iter(range(LENGTH))

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        return next(self.left)


class Order:
    def __iter__(self) -> Iterator[int]:
        return iter(range(LENGTH))

    def __len__(self) -> int:
        return LENGTH


class MapNeedsArguments(NeedsArguments, Samples): ...


class MapNeedsKeywords(NeedsKeywords, Samples): ...


class MapLoadsMore(LoadsMore, Samples): ...


class MapRaises(Raises, Samples): ...


class MapGivesALock(GivesALock, Samples): ...


class StreamNeedsArguments(NeedsArguments, Stream): ...


class StreamNeedsKeywords(NeedsKeywords, Stream): ...


class StreamLoadsMore(LoadsMore, Stream): ...


class StreamRaises(Raises, Stream): ...


class StreamGivesALock(GivesALock, Stream): ...


class WalkNeedsArguments(NeedsArguments, Walk): ...


class WalkRaises(Raises, Walk): ...


class WalkGivesALock(GivesALock, Walk): ...


class Walked(Stream):
    """A stream whose iterator is of a given class."""

    def __init__(self, kind: type[Any]) -> None:
        self.kind = kind

    def __iter__(self) -> Iterator[int]:
        return iter(self.kind())


class OrderNeedsArguments(NeedsArguments, Order): ...


class OrderRaises(Raises, Order): ...


class OrderGivesALock(GivesALock, Order): ...


class WalkedOrder(Order):
    def __init__(self, kind: type[Any]) -> None:
        self.kind = kind

    def __iter__(self) -> Iterator[int]:
        return iter(self.kind())
