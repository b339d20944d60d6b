"""What is diagnosed: a loader, what it says of itself, a model's step, and the device that its batches go to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import IterableDataset, SequentialSampler, default_collate, default_convert

from stoker.auto.processor import cores
from stoker.bench.rebuild import kind_of, setup_of
from stoker.bench.settings import GIVEN, STOKER
from stoker.device.tree import change_leaves
from stoker.diagnosis.facts import GivenLoader, Pace
from stoker.diagnosis.pace import pace_of
from stoker.errors import StokerError
from stoker.sampling.streams import length_or_none
from stoker.sources.fetch import fetch_for, is_async

Step = Callable[[Any], object]


class DiagnosisError(StokerError, RuntimeError):
    """A loader or a step that cannot be measured."""


@dataclass(frozen=True)
class Rig:
    """What is measured: a loader, a model's step, and where its batches go."""

    loader: Any
    given: GivenLoader
    step: Step | None
    move: Step | None

    def model(self, batch: Any) -> None:
        """One step of the training loop, on a batch that was just loaded."""
        assert self.step is not None
        self.step(self.move(batch) if self.move is not None else batch)

    @property
    def as_in_training(self) -> Step | None:
        """What is done with a batch that was loaded; None: nothing."""
        return self.model if self.step is not None else None

    def pace(self, loader: Any, given: GivenLoader, seconds: float) -> Pace:
        """A pass as in training."""
        return pace_of(loader, given, seconds, self.as_in_training)


def rig_of(loader: Any, step: Step | float | None = None, device: Any = None) -> Rig:
    """The loader with a step, or a sleep of so many seconds, and a device."""
    move = None if device is None else _finished(lambda batch: moved_to(batch, device))
    return Rig(loader, given_of(loader), _step_of(step), move)


def given_of(loader: Any) -> GivenLoader:
    """What a loader says of itself."""
    kind = kind_of(loader)
    if kind == GIVEN or (kind == STOKER and setup_of(loader).planned is not None):
        _check_iterable(loader)
        return GivenLoader(GIVEN, "hidden", cores(), length_or_none(loader), processes=_processes(loader))
    workers = setup_of(loader).workers if kind == STOKER else None
    return GivenLoader(
        kind=kind,
        dataset=_dataset_kind(loader, kind),
        cores=cores(),
        batches=length_or_none(loader),
        batch_size=loader.batch_size,
        processes=int(loader.num_workers) if workers is None else workers.processes,
        lanes=max(1, workers.lanes) if workers is not None else 1,
        prefetch=loader.prefetch_factor,
        keeps_workers=bool(loader.persistent_workers) and loader.num_workers > 0,
        own_collate=_has_own_collate(loader),
        shares_rows=workers is not None and workers.share == "rows",
        pins=bool(loader.pin_memory),
        can_pin=torch.accelerator.is_available(),
        same_order=isinstance(loader.sampler, SequentialSampler),
    )


def auto_says(loader: Any) -> str:
    """What "auto" has come to for this loader, if it has one; and where it met its limits."""
    if kind_of(loader) != STOKER:
        return ""
    from stoker.loader.dataloader import course_of

    steering = course_of(loader).steering
    return "" if steering is None else steering.in_words()


def _check_iterable(loader: Any) -> None:
    if not hasattr(loader, "__iter__"):
        raise DiagnosisError(f"a {type(loader).__name__} is no loader: it has no __iter__")
    if isinstance(loader, Iterator):
        raise DiagnosisError(
            f"a {type(loader).__name__} can be iterated only once, and a diagnosis needs several passes: give the "
            "object that makes it"
        )


def _processes(loader: Any) -> int:
    """The workers of a loader that cannot be built again, if it says how many."""
    number = getattr(loader, "num_workers", 0)
    return number if isinstance(number, int) else 0


def _dataset_kind(loader: Any, kind: str) -> str:
    if isinstance(loader.dataset, IterableDataset):
        return "iterable"
    if is_async(loader.dataset) and kind == STOKER:
        return "awaited"
    gathers = kind == STOKER and not _has_own_collate(loader) and loader._auto_collation
    return "arrays" if gathers and fetch_for(loader.dataset).arrays is not None else "map"


def _has_own_collate(loader: Any) -> bool:
    return loader.collate_fn not in (default_collate, default_convert)


def _step_of(step: Step | float | None) -> Step | None:
    if step is None:
        return None
    if isinstance(step, int | float):
        seconds = float(step)
        return lambda _batch: time.sleep(seconds)
    return _finished(step)


def _finished(step: Step) -> Step:
    """The step with what it started on an accelerator done: else its time would be charged to the next batch."""
    if not torch.accelerator.is_available():
        return step

    def finished(batch: Any) -> object:
        made = step(batch)
        torch.accelerator.synchronize()
        return made

    return finished


def moved_to(batch: Any, device: Any) -> Any:
    """The batch with everything that has a `to` on the device."""
    return change_leaves(batch, lambda leaf: leaf.to(device))
