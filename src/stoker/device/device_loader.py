"""`stoker.to_device(loader, device)`: any loader, its batches on the device when the step asks.

`Lookahead` is what is remembered between passes: how far ahead to read, and the state of what was handed over. A
`stoker.DataLoader(…, device=…)` has one of its own; `to_device` puts one around any other loader.
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stoker.device.copies import copies_for
from stoker.device.lookahead import AheadReader, DevicePass, LatestState
from stoker.whole_numbers import check_whole

DEPTH = 2
"""Batches to keep ready: one that the device may take at any time, and one on its way."""


def to_device(loader: Iterable[Any], device: Any, depth: int = DEPTH) -> DeviceLoader:
    """The loader, with `depth` batches on the device before they are asked for.

    Works around any loader: Stoker's, torch's, a generator. Its length, its state and whatever else it offers are its
    own; a state tells what was handed over, not what was read ahead. With `depth=0` batches are copied when asked for.
    """
    return DeviceLoader(loader, Lookahead(device, depth))


class Lookahead:
    """How to read ahead for a device, and the state of what was handed over."""

    def __init__(self, device: Any, depth: int = DEPTH) -> None:
        import torch

        self.depth = check_whole("depth", depth, 0, "batches")
        self.device = torch.device(device)
        self._handed: LatestState | None = None
        self._latest: weakref.ref[DevicePass] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Lookahead, (self.device, self.depth)  # a pass, and its place, belong to the process it runs in

    def begin(
        self, make: Callable[[], Iterator[Any]], state: Callable[[], Any] | None, keeps_workers: bool
    ) -> DevicePass:
        """A pass over what `make` gives; the loader's persistent workers serve one pass at a time."""
        if keeps_workers:
            self._end_latest()
        reader = AheadReader(make(), copies_for(self.device), state)
        self._handed = LatestState()
        begun: DevicePass = _pass_kind()(reader, self.depth, self._handed)
        self._latest = weakref.ref(begun)
        return begun

    def state(self) -> Any:
        """The state after the batch that was handed over last; None if nothing is ahead of the loop."""
        handed = self._handed
        if handed is None or handed.is_over:
            return None
        if handed.error is not None:
            raise handed.error
        return copy.deepcopy(handed.state)

    def forget(self, keeps_workers: bool) -> None:
        """A state is loaded: from now on the loader itself knows the place."""
        if keeps_workers:
            self._end_latest()
        self._handed = None

    def _end_latest(self) -> None:
        """End the latest pass, if it is still there: its thread must not take what belongs to the next."""
        latest = self._latest() if self._latest is not None else None
        if latest is not None:
            latest.close()


@functools.cache
def _pass_kind() -> Any:
    """Passes that `isinstance` takes for torch's iterators: Lightning leaves those out when it pickles a loader."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    return type(DevicePass.__name__, (DevicePass, _BaseDataLoaderIter), {"__module__": __name__})


class DeviceLoader:
    """A loader whose batches are on a device; everything else is as the loader itself has it."""

    def __init__(self, loader: Iterable[Any], lookahead: Lookahead) -> None:
        self.loader, self._lookahead = loader, lookahead

    def __iter__(self) -> Iterator[Any]:
        loader = self.loader
        state = getattr(loader, "state_dict", None)
        return self._lookahead.begin(lambda: iter(loader), state, self._keeps_workers)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name in ("loader", "_lookahead"):  # not there yet: it is being copied or unpickled
            raise AttributeError(name)
        own = getattr(self.loader, name)
        return {"state_dict": self._state_dict, "load_state_dict": self._load_state_dict}.get(name, own)

    def _state_dict(self) -> Any:
        state = self._lookahead.state()
        return self.loader.state_dict() if state is None else state  # type: ignore[attr-defined]

    def _load_state_dict(self, state_dict: Any) -> None:
        self._lookahead.forget(self._keeps_workers)
        self.loader.load_state_dict(state_dict)  # type: ignore[attr-defined]

    @property
    def _keeps_workers(self) -> bool:
        return bool(getattr(self.loader, "persistent_workers", False))
