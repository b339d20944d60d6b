"""The call that would build a loader, as text that can be pasted: every argument that is not the usual one.

Values are shown as Python. What has no text of its own goes by the name that it most likely has where the loader is
built: a function by its own name, everything else by the name of its parameter (`dataset`, `sampler`, `generator`).
Default samplers are shown as `shuffle`, from which they came.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from stoker.bench.rebuild import changed_arguments, kind_of
from stoker.bench.settings import STOKER
from stoker.options import OnError, Workers
from stoker.plan import BatchPlan

_FIRST = ("batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "workers")


def call_of(loader: Any, kind: str = "", changes: Mapping[str, Any] | None = None) -> str:
    """The whole call for this loader with these changes, as torch's or Stoker's (its own kind if not given)."""
    kind = kind or kind_of(loader)
    arguments = changed_arguments(loader, kind, changes or {})
    arguments.pop("dataset")
    shown = dict(_shown_arguments(_said(arguments), kind))
    ordered = sorted(shown, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    words = ", ".join(["dataset", *(f"{name}={shown[name]}" for name in ordered)])
    return f"{'stoker' if kind == STOKER else 'torch.utils.data'}.DataLoader({words})"


def workers_call(workers: Workers) -> str:
    """`stoker.Workers(...)` with what is not the usual."""
    usual, given = dataclasses.asdict(Workers()), dataclasses.asdict(workers)
    words = ", ".join(f"{name}={value!r}" for name, value in given.items() if value != usual[name])
    return f"stoker.Workers({words})"


def _said(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as one would write them: `shuffle` for a default sampler, `num_workers` where that says it all."""
    from torch.utils.data import RandomSampler, SequentialSampler

    if isinstance(arguments.get("sampler"), SequentialSampler):
        del arguments["sampler"]
    elif type(arguments.get("sampler")) is RandomSampler and _is_default(arguments["sampler"]):
        del arguments["sampler"]
        arguments["shuffle"] = True
    workers = arguments.get("workers")
    if workers is not None and workers == Workers(processes=workers.processes):
        arguments["num_workers"] = workers.processes
        del arguments["workers"]
    return arguments


def _is_default(sampler: Any) -> bool:
    return not sampler.replacement and sampler._num_samples is None


def _shown_arguments(arguments: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str]]:
    usual = _usual(kind)
    for name, value in arguments.items():
        if name == "collate_fn" and _is_default_collate(value):
            continue
        if name == "prefetch_factor" and value == 2:
            continue  # what torch makes of None where there are workers
        if isinstance(value, Workers):
            yield name, workers_call(value)
        elif not _same(value, usual.get(name)):
            yield name, _text(name, value)


def _usual(kind: str) -> dict[str, Any]:
    from torch.utils.data import DataLoader as TorchLoader

    from stoker.loader import DataLoader as StokerLoader

    home: Any = StokerLoader if kind == STOKER else TorchLoader
    return {name: one.default for name, one in inspect.signature(home.__init__).parameters.items()}


def _same(value: Any, usual: Any) -> bool:
    if value is usual or (value in (0, False) and usual in (0, False, None) and not isinstance(value, str)):
        return True
    return isinstance(value, int | float | str) and type(value) is type(usual) and bool(value == usual)


def _is_default_collate(value: Any) -> bool:
    from torch.utils.data import default_collate, default_convert

    return value is None or value in (default_collate, default_convert)


def _text(name: str, value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple) and all(isinstance(part, int) for part in value):
        return repr(value)
    if name == "multiprocessing_context":
        return repr(value.get_start_method())
    if name == "device":
        return repr(str(value))
    if isinstance(value, OnError | BatchPlan):
        return f"stoker.{value!r}"
    own = getattr(value, "__name__", "")
    return own if own.isidentifier() and callable(value) else name
