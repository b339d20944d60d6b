"""The three throughputs, and the look inside: everything that is measured before anything is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stoker.errors import StokerError
from stoker.measure.blame import failure_of
from stoker.measure.diagnosis.cost import crowding
from stoker.measure.diagnosis.facts import Facts, Given, Pace
from stoker.measure.diagnosis.inside import look_inside
from stoker.measure.diagnosis.pace import pace_of
from stoker.measure.rebuild import kind_of
from stoker.measure.settings import GIVEN, STOKER

Tell = Callable[[str], object]
Step = Callable[[Any], object]
_SHARES = {"inside": 0.4, "alone": 0.25, "model": 0.1, "together": 0.25}


class DiagnosisError(StokerError, RuntimeError):
    """A loader or a step that cannot be measured."""


@dataclass(frozen=True)
class Rig:
    """What is measured: a loader, a model's step, and where its batches go."""

    loader: Any
    given: Given
    step: Step | None
    move: Step | None

    def model(self, batch: Any) -> None:
        """One step of the training loop, on a batch that was just loaded."""
        assert self.step is not None
        self.step(self.move(batch) if self.move is not None else batch)

    def pace(self, loader: Any, given: Given, seconds: float) -> Pace:
        """A pass as in training."""
        return pace_of(loader, given, seconds, self.model if self.step is not None else None)


def measure_facts(loader: Any, step: Step | float | None, device: Any, seconds: float, tell: Tell) -> tuple[Rig, Facts]:
    """Measure for about so long; DiagnosisError if the loader or the step raises, or there is no batch."""
    given = given_of(loader)
    rig = Rig(loader, given, _step_of(step), _move_to(device))
    taken = {name: share * seconds for name, share in _SHARES.items()}
    inside = None
    if given.kind != GIVEN:
        tell("looking into the loader")
        inside = look_inside(loader, given, taken["inside"])
    tell("the loader without a model")
    kept: list[Any] = []
    with _blamed("the loader"):
        alone = pace_of(loader, given, taken["alone"], lambda batch: kept.__setitem__(slice(None), [batch]))
    crowded = crowding()
    if rig.step is None:
        return rig, Facts(given, alone, inside=inside, crowding=crowded)
    tell("the model on a batch in memory")
    with _blamed("the step"):
        copy_s, model_s = _model_alone(rig, kept.pop(), taken["model"])
    tell("both together")
    with _blamed("the loader or the step"):
        together = rig.pace(loader, given, taken["together"])
    return rig, Facts(given, alone, model_s, copy_s, together, inside, crowded)


def _model_alone(rig: Rig, batch: Any, seconds: float) -> tuple[float, float]:
    """Seconds for the copy to the device, and for a step on a batch that is there."""
    assert rig.step is not None
    copy_s = 0.0
    if rig.move is not None:
        move, held = rig.move, batch
        copy_s = _mean_s(lambda: move(held), 0.5 * seconds)
        batch = move(batch)
    step = rig.step
    return copy_s, _mean_s(lambda: step(batch), seconds)


def _mean_s(call: Callable[[], object], seconds: float) -> float:
    call()  # the first one compiles, allocates, imports
    count, begun_at = 0, time.perf_counter()
    while count < 3 or time.perf_counter() - begun_at < seconds:
        call()
        count += 1
    return (time.perf_counter() - begun_at) / count


def given_of(loader: Any) -> Given:
    """What a loader says of itself."""
    from stoker.loader.probe import cores

    kind = kind_of(loader)
    if kind == GIVEN:
        _check_iterable(loader)
        return Given(kind, "hidden", cores(), _length(loader))
    workers = getattr(loader, "workers", None)
    return Given(
        kind=kind,
        dataset=_dataset_kind(loader, kind),
        cores=cores(),
        batches=_length(loader),
        processes=int(loader.num_workers),
        lanes=max(1, workers.lanes) if kind == STOKER and workers is not None else 1,
        prefetch=loader.prefetch_factor,
        keeps_workers=bool(loader.persistent_workers) and loader.num_workers > 0,
        own_collate=_has_own_collate(loader),
        shares_rows=kind == STOKER and workers is not None and workers.share == "rows",
        pins=bool(loader.pin_memory),
        can_pin=_can_pin(),
    )


def _check_iterable(loader: Any) -> None:
    if not hasattr(loader, "__iter__"):
        raise DiagnosisError(f"a {type(loader).__name__} is no loader: it has no __iter__")
    if iter(loader) is loader:
        raise DiagnosisError(
            f"a {type(loader).__name__} can be iterated only once, and a diagnosis needs several passes: give the "
            "object that makes it"
        )


def _dataset_kind(loader: Any, kind: str) -> str:
    from torch.utils.data import IterableDataset

    from stoker.sources.fetch import fetch_for, is_async

    if isinstance(loader.dataset, IterableDataset):
        return "iterable"
    if is_async(loader.dataset) and kind == STOKER:
        return "awaited"
    gathers = kind == STOKER and not _has_own_collate(loader) and loader._auto_collation
    return "arrays" if gathers and fetch_for(loader.dataset).arrays is not None else "map"


def _has_own_collate(loader: Any) -> bool:
    from torch.utils.data import default_collate, default_convert

    return loader.collate_fn not in (default_collate, default_convert)


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def _can_pin() -> bool:
    import torch

    return torch.accelerator.is_available()


def _step_of(step: Step | float | None) -> Step | None:
    if step is None:
        return None
    if isinstance(step, int | float):
        seconds = float(step)
        return lambda _batch: time.sleep(seconds)
    return _finished(step)


def _finished(step: Step) -> Step:
    """The step with what it started on an accelerator done: else its time would be charged to the next batch."""
    import torch

    if not torch.accelerator.is_available():
        return step

    def finished(batch: Any) -> None:
        step(batch)
        torch.accelerator.synchronize()

    return finished


def _move_to(device: Any) -> Step | None:
    return None if device is None else _finished_move(device)


def _finished_move(device: Any) -> Step:
    import torch

    def move(batch: Any) -> Any:
        moved = moved_to(batch, device)
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        return moved

    return move


def moved_to(batch: Any, device: Any) -> Any:
    """The batch with everything that has a `to` on the device."""
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: moved_to(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved_to(part, device) for part in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved_to(part, device) for part in batch)
    return batch


@contextmanager
def _blamed(what: str) -> Iterator[None]:
    """Say who raised, and where in the user's code."""
    try:
        yield
    except Exception as error:
        failure = failure_of(error)
        place = f" at {failure.place}" if failure.place else ""
        raise DiagnosisError(f"{what} raised {failure.type}{place}: {failure.message}") from error
