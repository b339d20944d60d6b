"""What is measured: one setting of a loader, and the sweep that is a product of many.

    Sweep     lists: datasets × loaders × batch sizes × workers × lanes × prefetch × pinning × models
      └── Setting   one choice of each; `key` names it in saved records

Not every product exists. torch's loader has no lanes and cannot choose its own number of workers; loading inline
prefetches nothing; a loader that was given ready-made has settings of its own, and of the sweep only the model applies.
Such products are left out, or folded into one, so that nothing is measured twice under two names.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from stoker.options import Workers

TORCH, STOKER, GIVEN, SYNTHETIC = "torch", "stoker", "given", "synthetic"
LOADERS = (TORCH, STOKER)
AUTO = "auto"

WorkerCount = int | str | None


@dataclass(frozen=True)
class Setting:
    """One configuration. None: not ours to choose (a ready-made loader), or the loader's own default."""

    dataset: str
    loader: str
    batch_size: int | None = None
    workers: WorkerCount = None
    lanes: int = 1
    prefetch: int | None = None
    pin_memory: bool = False
    sleep_s: float = 0.0  # the pretended model's time for a step
    model: str = ""  # the name of a real model; empty: the sleep
    start_method: str | None = None  # of worker processes; None: the platform's
    share: str | None = None  # how workers share a batch; None: the loader's own choice

    @property
    def key(self) -> str:
        """The same text for the same setting, in every run."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def crew(self) -> Workers:
        """Who loads, where that is said in numbers."""
        how: Any = {"start_method": self.start_method, "share": self.share or "auto"}
        return Workers.with_lanes(int(self.workers or 0), self.lanes, **how)

    @property
    def model_name(self) -> str:
        """The model in words."""
        if self.model:
            return self.model
        return f"sleep {self.sleep_s:g} s" if self.sleep_s else "none"

    def label(self, fields: Collection[str]) -> str:
        """These of the fields in words: 'stoker, 2 workers, batch 64'."""
        return ", ".join(text for field, text in self._words() if field in fields)

    def _words(self) -> Iterator[tuple[str, str]]:
        yield "dataset", self.dataset
        yield "loader", self.loader
        if self.workers is not None:
            yield "workers", "1 worker" if self.workers == 1 else f"{self.workers} workers"
        yield "lanes", "1 thread" if self.lanes == 1 else f"{self.lanes} threads"
        if self.batch_size is not None:
            yield "batch_size", f"batch {self.batch_size}"
        yield "prefetch", "prefetch default" if self.prefetch is None else f"prefetch {self.prefetch}"
        if self.start_method is not None:
            yield "start_method", f"by {self.start_method}"
        if self.share is not None:
            yield "share", f"sharing {self.share}"
        yield "pin_memory", "pinned" if self.pin_memory else "not pinned"
        yield "model", "no model" if self.model_name == "none" else f"model {self.model_name}"


def varied(settings: Collection[Setting]) -> set[str]:
    """The fields in which the settings differ; sleep and model count as one, `model`."""
    rows = [{**asdict(setting), "model": setting.model_name} for setting in settings]
    fields = set().union(*rows) - {"sleep_s"} if rows else set()
    return {field for field in fields if len({row[field] for row in rows}) > 1}


@dataclass(frozen=True)
class Sweep:
    """Lists of values; `settings` is their product."""

    datasets: tuple[str, ...]
    loaders: tuple[str, ...] = LOADERS
    batch_sizes: tuple[int, ...] = (32,)
    workers: tuple[WorkerCount, ...] = (0, 1, 2, 4)
    lanes: tuple[int, ...] = (1,)
    prefetch: tuple[int | None, ...] = (None,)
    pin_memory: tuple[bool, ...] = (False,)
    sleeps_s: tuple[float, ...] = (0.0,)

    def scaled(self, scale: float) -> Sweep:
        """The same shape at another size: batch sizes and sleeps times `scale`, so their proportion stays."""
        if scale <= 0:
            raise ValueError(f"a scale is greater than 0, not {scale:g}; 0.125 measures at an eighth of the size")
        sizes = tuple(dict.fromkeys(max(1, round(size * scale)) for size in self.batch_sizes))
        return replace(self, batch_sizes=sizes, sleeps_s=tuple(round(sleep * scale, 6) for sleep in self.sleeps_s))

    def settings(self, given: Collection[str] = ()) -> list[Setting]:
        """All settings that exist, each once; `given` names the datasets that are ready-made loaders."""
        found: dict[Setting, None] = {}
        for dataset in self.datasets:
            found.update(dict.fromkeys(self._given(dataset) if dataset in given else self._product(dataset)))
        if not found:
            raise ValueError(
                f"nothing to measure: of loaders {_list(self.loaders)}, workers {_list(self.workers)} and threads "
                f"{_list(self.lanes)} no combination exists. torch's loader knows neither threads above 1 nor "
                "workers 'auto'; add --loaders stoker, --threads 1 or a number of workers."
            )
        return list(found)

    def _given(self, dataset: str) -> Iterator[Setting]:
        for sleep_s in self.sleeps_s:
            yield Setting(dataset, GIVEN, sleep_s=sleep_s)

    def _product(self, dataset: str) -> Iterator[Setting]:
        # The loader varies fastest: two loaders of one setting are measured one after the other.
        for sleep_s, size, workers, lanes, prefetch, pin, loader in itertools.product(
            self.sleeps_s,
            self.batch_sizes,
            self.workers,
            self.lanes,
            self.prefetch,
            self.pin_memory,
            self.loaders,
        ):
            if loader == TORCH and (lanes > 1 or workers == AUTO):
                continue
            inline = workers == 0 and lanes == 1
            yield Setting(dataset, loader, size, workers, lanes, None if inline else prefetch, pin, sleep_s)


def _list(values: Collection[Any]) -> str:
    return ",".join(str(value) for value in values)
