"""Which epoch it is, as a trainer says it.

Trainers count epochs themselves and call `set_epoch` on a loader's sampler: some before they ask for an iterator, some
after it and before the first batch (torch's samplers look at their epoch only then), some begin several passes in one
epoch of theirs (a short loader beside a long one). So a pass remembers the trainer's number beside its own, and hearing
another one before its first batch begins that epoch instead:

    heard == the place's     the pass goes on where it stands: in the middle, if a state was loaded
    heard != the place's     the place is in an epoch that the trainer has left behind: the new one begins at its start

The second matters most after a state that was saved at an epoch's very end: the trainer goes on with the next epoch,
and a pass without batches would cost it that whole epoch. A trainer that says a lower number than the loaded place's
counts from 0 in every process (Fabric does): from then on its numbers are taken as so many more.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from torch.utils.data import BatchSampler


@dataclass
class Epochs:
    """What the trainer has said so far."""

    news: int | None = None  # said, and no pass has heeded it yet
    current: int | None = None  # the trainer's epoch
    _loaded: int | None = None  # the epoch of a loaded place, until the trainer says something
    _offset: int = 0  # how far the place was ahead of the trainer's count

    def tell(self, epoch: int) -> None:
        """The trainer begins an epoch."""
        if self._loaded is not None:
            self._offset, self._loaded = max(0, self._loaded - int(epoch)), None
        self.news = self.current = int(epoch) + self._offset

    def resume(self, epoch: int, told: int | None) -> None:
        """A place was loaded, and what was said before is over."""
        self.news, self.current, self._offset = None, told, 0
        self._loaded = epoch if told is None else told

    def heed(self) -> int | None:
        """The news, once."""
        news, self.news = self.news, None
        return news


def listen(sampler: Any, batches: Any, epochs: Epochs) -> None:
    """Let a trainer that looks for `set_epoch` find it on samplers that have none, such as torch's own two.

    On the instances, because torch, trainers and this loader all ask for the exact type of samplers.
    """
    if not hasattr(sampler, "set_epoch"):
        with contextlib.suppress(AttributeError):  # a plain list, for example
            sampler.set_epoch = epochs.tell
    if type(batches) is BatchSampler and hasattr(batches.sampler, "set_epoch"):
        batches.set_epoch = batches.sampler.set_epoch  # type: ignore[attr-defined]


def tell(sampler: Any, batches: Any, epoch: int) -> None:
    """Tell whatever gives a loader's indices which epoch comes next."""
    samplers: tuple[Any, ...] = (sampler, getattr(batches, "sampler", None))
    for each in {id(one): one for one in samplers if hasattr(one, "set_epoch")}.values():
        each.set_epoch(epoch)


def epoch_of(sampler: Any) -> dict[str, int]:
    """What to remember of a sampler whose order depends on the epoch that it was told."""
    for owner in _that_can_be_told(sampler):
        epoch = getattr(owner, "epoch", None)
        if type(epoch) is int and epoch >= 0:
            return {"epoch": epoch}
    return {}


def tell_sampler(sampler: Any, epoch: int) -> None:
    """Tell a sampler, before it is walked again, the epoch that it was in."""
    for owner in _that_can_be_told(sampler):
        owner.set_epoch(epoch)


def _that_can_be_told(sampler: Any) -> list[Any]:
    """A sampler, and the one inside a batch sampler, as far as they have a `set_epoch` of their own."""
    both = (sampler, getattr(sampler, "sampler", None))
    return [owner for owner in both if callable(getattr(type(owner), "set_epoch", None))]
