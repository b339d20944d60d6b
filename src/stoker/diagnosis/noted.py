"""How long every sample of a pass takes, wherever it is loaded: slow ones may be too rare for a look at a few.

For the time of the pass the dataset's class is one that notes what each `__getitem__` takes: a number a sample,
appended to a file of the process. The dataset itself stays what it is, and is not copied, since a copy that is thrown
away may close what both hold. Forked workers take the class along; others would have to import it, and are left alone.
So are datasets whose class cannot be changed (a list), and samples so quick that noting would show.

What other programs took from a sample is not counted (`cost`).
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from stoker.bench.notes import Notes
from stoker.diagnosis.cost import timed
from stoker.diagnosis.facts import GivenLoader, Sample, spread_of

_NOTE = "<d"  # seconds
_WORTH_NOTING_S = 5e-4
_ENOUGH = 32  # samples; fewer say no more than the look did


@contextmanager
def noting(loader: Any, given: GivenLoader, sample: Sample | None) -> Iterator[Notes | None]:
    """While entered, samples of the loader's dataset are noted; None: they cannot be."""
    if sample is None or sample.median_s < _WORTH_NOTING_S or given.dataset != "map" or not _forks(loader):
        yield None
        return
    dataset, kind = loader.dataset, type(loader.dataset)
    with tempfile.TemporaryDirectory(prefix="stoker-notes-") as folder:
        notes = Notes(Path(folder), _NOTE)
        try:
            dataset.__class__ = _noting_class(kind, notes)
        except (TypeError, AttributeError):  # a list, or a class that minds
            yield None
            return
        try:
            yield notes
        finally:
            dataset.__class__ = kind


def with_notes(sample: Sample, notes: Notes) -> Sample:
    """The sample, and how uneven all that were noted are; of two passes, the one that met the slower ones."""
    # The first sample of a process opens files and fills caches, and does not count.
    took_s = [one_s for _, noted in notes.read() for (one_s,) in noted[1:]]
    if len(took_s) < _ENOUGH:
        return sample
    if sample.has_stragglers and max(took_s) < sample.longest_s:
        return sample
    return replace(sample, **spread_of(took_s))


def _noting_class(kind: Any, notes: Notes) -> Any:
    def one(self: Any, key: Any) -> Any:
        sample, cost = timed(lambda: kind.__getitem__(self, key))
        notes.add(cost.own_s)
        return sample

    def several(self: Any, keys: Any) -> Any:
        samples, cost = timed(lambda: kind.__getitems__(self, keys))
        notes.add(cost.own_s / max(1, len(samples)))
        return samples

    methods: dict[str, Any] = {"__getitem__": one, "__slots__": ()}
    if hasattr(kind, "__getitems__"):
        methods["__getitems__"] = several
    return type(kind.__name__, (kind,), methods)


def _forks(loader: Any) -> bool:
    if loader.num_workers == 0:
        return True
    context = loader.multiprocessing_context
    return str(context.get_start_method() if context is not None else multiprocessing.get_start_method()) == "fork"
