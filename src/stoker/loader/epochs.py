"""Which epoch it is, as a trainer says it.

Trainers count epochs themselves and call `set_epoch` on a loader's sampler: some before they ask for an iterator, some
after it and before the first batch (torch's samplers look at their epoch only then), some begin several passes in one
epoch of theirs (a short loader beside a long one). So a pass remembers the trainer's number beside its own, and hearing
another one before its first batch begins that epoch instead:

    heard == the place's     the pass goes on where it stands: in the middle, if a state was loaded
    heard != the place's     the place is in an epoch that the trainer has left behind: the new one begins at its start

The second matters most after a state that was saved at an epoch's very end: the trainer goes on with the next epoch,
and a pass without batches would cost it that whole epoch.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any


@dataclass
class Epochs:
    """What the trainer has said so far."""

    news: int | None = None  # said, and no pass has heeded it yet
    current: int | None = None  # the trainer's epoch

    def tell(self, epoch: int) -> None:
        """The trainer begins an epoch."""
        self.news = self.current = int(epoch)

    def heed(self) -> int | None:
        """The news, once."""
        news, self.news = self.news, None
        return news


def listen(sampler: Any, epochs: Epochs) -> None:
    """Let a trainer that looks for `set_epoch` find it on a sampler that has none, such as torch's own two.

    On the instance, because torch, trainers and this loader all ask for the exact type of samplers.
    """
    if not hasattr(sampler, "set_epoch"):
        with contextlib.suppress(AttributeError):  # a plain list, for example
            sampler.set_epoch = epochs.tell


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
