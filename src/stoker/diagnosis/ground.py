"""Loaders that begin where nobody has read yet, so that no pass is quick because an earlier one has read its samples.

Files that were read a moment ago come from the page cache, and a dataset may remember samples itself. A trial over the
same beginning of the order would then measure the cache, and whoever comes first would look slowest. So every pass is
over a loader of its own that leaves out what others have taken or read ahead:

    epoch    ├─ look ─┼─ alone ─┼─ together ─┼─ trial ─┼─ trial ─┼─ …

torch's loader is given a sampler that leaves out the beginning of its first epoch; Stoker's goes there by its state. A
random order is another one in every pass and is left as it is. Where the order is used up, passes begin at its front
again, and `rereads` says so; so they do where leaving out would take too long, or an IterableDataset has the order.

Workers that are kept between epochs need a first pass that is short and ends by itself, since only the start after that
is like the start of an epoch in training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from stoker.bench.rebuild import close, kind_of, rebuild
from stoker.bench.settings import GIVEN, STOKER
from stoker.diagnosis.bounded import Bounded
from stoker.diagnosis.facts import Change, GivenLoader, Pace
from stoker.diagnosis.pace import ELSEWHERE, SHORT, WHOLE, Bounds, pace_of
from stoker.errors import StokerError

_SKIPPING_S = 0.25  # leaving out may take so long: a guess at what is not noticed beside a pass
_AS_IT_IS = Change({})


class Onward:
    """A sampler whose first epoch leaves out its beginning, and may end early; later ones are whole."""

    def __init__(self, order: Any, skipped: int, most: int | None = None) -> None:
        self._order, self._skipped, self._most = order, skipped, most

    def __iter__(self) -> Iterator[Any]:
        # When the first index is asked for, not before: torch makes two iterators at its start, and uses the second.
        skipped, most = self._skipped, self._most
        self._skipped, self._most = 0, None
        yield from islice(self._order, skipped, None if most is None else skipped + most)

    def __len__(self) -> int:
        return len(self._order)


@dataclass
class Ground:
    """The order of a loader, and how much of it was read."""

    loader: Any
    given: GivenLoader
    drawn_s: float = 0.0  # drawing the indices of one batch: leaving out takes that
    taken: int = 0  # batches that were read, or are being read ahead
    rereads: bool = False
    once: bool = False  # samples are quicker the second time: read none again while there are others

    def take_samples(self, count: int, rows: float) -> None:
        """A look has read so many samples from the beginning."""
        self.taken += math.ceil(count / max(1.0, rows))

    def pace(
        self,
        bounds: Bounds,
        change: Change = _AS_IT_IS,
        model: Any = None,
        started: Pace | None = None,
    ) -> Pace:
        """Passes over the loader with a change, over samples that were not read yet.

        `started` has timed the start of an epoch already, where workers are kept: then it is not timed once more.
        """
        if self.given.kind == GIVEN:
            return pace_of(self.loader, self.given, bounds, model)
        loader, first = self._built(change, started is not None and started.start_known)
        try:
            given = given_with(self.given, loader)
            found = pace_of(loader, given, self._bounds(bounds, given, first), model)
            if started is not None and started.start_known and not found.start_known:
                found = replace(found, first_s=started.first_s + found.model_s, start_known=True)
            self.taken += found.batches + given.processes * (given.prefetch or 2) + given.burst
            return found
        finally:
            close(loader)

    def left(self) -> int | None:
        """How many batches nobody has read yet; None: not known, or as many as one likes."""
        if self.given.batches is None or self.given.dataset == "iterable":
            return None
        return max(0, self.given.batches - self.taken)

    def _bounds(self, bounds: Bounds, given: GivenLoader, first: str) -> Bounds:
        most, left = bounds.most, self.left()
        if self.once and left is not None:
            most = min(left, most) if most is not None else left
            if most < 2 * given.burst + 2:
                self.rereads, most = True, None
        if self.given.dataset == "iterable":
            self.rereads = True  # every pass begins at the stream's beginning
        return replace(bounds, first=first, most=most)

    def _built(self, change: Change, knows_start: bool) -> tuple[Any, str]:
        """The loader with the change, and what its first pass is."""
        kind = change.kind or kind_of(self.loader)
        keeps = bool(change.arguments.get("persistent_workers", self.given.keeps_workers)) and not knows_start
        few = 2 * max(1, self.given.processes) if keeps else None
        if self.given.dataset == "iterable":
            return self._stream(change, kind, few)
        start = self._start()
        if kind == STOKER:
            return self._stoker(change, kind, start, few)
        if not start and few is None:
            return rebuild(self.loader, kind, **change.arguments), WHOLE
        order = Onward(self.loader._index_sampler, start, few)
        keys = {"batch_sampler": order} if self.loader._auto_collation else {"batch_size": None, "sampler": order}
        return rebuild(self.loader, kind, keys=keys, **change.arguments), SHORT if keeps else ELSEWHERE

    def _stoker(self, change: Change, kind: str, start: int, few: int | None) -> tuple[Any, str]:
        """Stoker's loader; `few`: of its first pass only so many batches, which are the last of the epoch."""
        loader = rebuild(self.loader, kind, **change.arguments)
        batches = self.given.batches
        if few is not None and batches is not None and batches > few and self._is_quick(batches):
            return loader, SHORT if _go_to(loader, batches - few, self.given) else WHOLE
        if few is None and start and _go_to(loader, start, self.given):
            return loader, ELSEWHERE
        return loader, WHOLE

    def _stream(self, change: Change, kind: str, few: int | None) -> tuple[Any, str]:
        """A loader of a stream; `few`: of its first pass only so many batches."""
        if few is None:
            return rebuild(self.loader, kind, **change.arguments), WHOLE
        short = Bounded(self.loader.dataset, few * (self.given.batch_size or 1))
        return rebuild(self.loader, kind, **{**change.arguments, "dataset": short}), SHORT

    def _start(self) -> int:
        """How many batches to leave out."""
        if _is_random(self.loader):
            self.rereads |= bool(self.given.batches and self.taken > 0.3 * self.given.batches)
            return 0
        if self.given.batches is not None and self.given.batches - self.taken < 4 * self.given.burst + 2:
            self.rereads |= self.taken > 0
            return 0
        if not self._is_quick(self.taken):
            self.rereads = True
            return 0
        return self.taken

    def _is_quick(self, batches: int) -> bool:
        return batches * self.drawn_s < _SKIPPING_S


def given_with(given: GivenLoader, loader: Any) -> GivenLoader:
    """What a changed loader says of itself, and of its order what the given one said."""
    from stoker.diagnosis.rig import given_of

    return replace(given_of(loader), batches=given.batches, batch_size=given.batch_size, dataset=given.dataset)


def _go_to(loader: Any, batch: int, given: GivenLoader) -> bool:
    """Let a Stoker loader begin with this batch of its epoch; whether it can."""
    from stoker.resume.place import skip

    try:
        loader.load_state_dict(skip(loader.state_dict(), batch, given.batch_size))
    except (StokerError, ValueError, TypeError, KeyError):  # a sampler without a place to go to, say
        return False
    return True


def _is_random(loader: Any) -> bool:
    from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

    return isinstance(loader.sampler, RandomSampler | SubsetRandomSampler | WeightedRandomSampler)
