"""A loader again, with other arguments: what a trial of a changed setting is made of.

    loader ──► arguments_of ──► the call that would build it ──► with changes ──► another loader

A loader keeps what it was given in attributes, in a form that its constructor does not always take back: a default
sampler beside `shuffle`, a prefetch factor that may not be given without workers, an order that has become a sampler.
Here these are turned into a call again, so that whoever tries settings (`diagnose`, `tune`) changes one argument and
leaves all others as they were. Dataset, samplers, generators and functions are the given loader's own.

Whatever overrides how a loader is iterated (a trainer's wrapper, say) would not be itself any more: it is refused
with RebuildError. Nothing here imports torch before a loader is at hand, which has imported it already.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from stoker.bench.settings import GIVEN, STOKER, TORCH
from stoker.errors import StokerError

_ALWAYS = ("collate_fn", "pin_memory", "pin_memory_device", "worker_init_fn", "generator", "in_order")
_WITH_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
_STOKER_ONLY = ("seed", "reseed", "snapshot_every_n_steps", "on_error", "device")
_KEYS = ("batch_size", "drop_last", "sampler", "batch_sampler", "order", "shard", "uneven")


class RebuildError(StokerError, ValueError):
    """A loader that cannot be built again from what it shows."""


def kind_of(loader: Any) -> str:
    """TORCH or STOKER for a loader that can be built again, else GIVEN."""
    data = sys.modules.get("torch.utils.data")
    if data is None or not isinstance(loader, data.DataLoader):
        return GIVEN
    from stoker.loader import DataLoader as StokerLoader

    home: Any = StokerLoader if isinstance(loader, StokerLoader) else data.DataLoader
    iterates_itself = type(loader).__iter__ is not home.__iter__ or type(loader)._get_iterator is not home._get_iterator
    if iterates_itself:
        return GIVEN
    return STOKER if home is StokerLoader else TORCH


def rebuild(loader: Any, kind: str | None = None, *, keys: Mapping[str, Any] | None = None, **changes: Any) -> Any:
    """The loader with these arguments changed, as torch's or Stoker's (`kind`; its own if not given).

    Arguments that mean nothing without worker processes are dropped when the changes leave none. `keys` are arguments
    in place of all that say which samples make a batch.
    """
    kind = kind or kind_of(loader)
    arguments = changed_arguments(loader, kind, changes, keys)
    if kind == STOKER:
        from stoker.loader import DataLoader as StokerLoader

        return StokerLoader(arguments.pop("dataset"), **arguments)
    from torch.utils.data import DataLoader as TorchLoader

    return TorchLoader(arguments.pop("dataset"), **arguments)


def changed_arguments(
    loader: Any, kind: str, changes: Mapping[str, Any], keys: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The keyword arguments, `dataset` among them, of the call that `rebuild` makes."""
    arguments = arguments_of(loader, kind)
    if keys is not None:
        arguments = {name: value for name, value in arguments.items() if name not in _KEYS} | dict(keys)
    if "batch_sampler" in arguments and {"batch_size", "drop_last"} & changes.keys():
        raise RebuildError("this loader's batches are made by its batch_sampler: change batch_size there")
    arguments |= changes
    _settle_workers(arguments, dict(changes), kind)
    return arguments


def arguments_of(loader: Any, kind: str | None = None) -> dict[str, Any]:
    """The keyword arguments, `dataset` among them, that build such a loader; `kind` as in `rebuild`."""
    own = kind_of(loader)
    if own == GIVEN:
        raise RebuildError(
            f"a {type(loader).__name__} cannot be built again: only torch's DataLoader, stoker.DataLoader, and "
            "subclasses that leave iterating to them"
        )
    arguments: dict[str, Any] = {"dataset": _dataset(loader), "num_workers": loader.num_workers}
    arguments |= _order(loader, kind or own)
    arguments |= {name: getattr(loader, name) for name in (*_ALWAYS, *_WITH_WORKERS)}
    if own == kind == STOKER or (own == STOKER and kind is None):
        arguments |= {name: getattr(loader._asked, name) for name in _STOKER_ONLY}
        workers = dataclasses.replace(loader._asked.workers, processes=int(loader.num_workers))
        arguments["workers"] = workers
        if workers.start_method is not None:
            arguments["multiprocessing_context"] = None  # it came from there
    return arguments


def close(loader: Any) -> None:
    """Let go the workers that a loader keeps between its passes; it may be iterated again."""
    iterator = getattr(loader, "_iterator", None)
    if iterator is not None:
        iterator._shutdown_workers()
        loader._iterator = None


def _dataset(loader: Any) -> Any:
    """The dataset as it was given: torch wraps its DataPipes."""
    dataset = loader.dataset
    return (
        getattr(dataset, "_datapipe", dataset) if type(dataset).__name__.endswith("SerializationWrapper") else dataset
    )


def _order(loader: Any, kind: str) -> dict[str, Any]:
    """What says which samples make a batch."""
    from torch.utils.data import BatchSampler, IterableDataset

    from stoker.sampling.ordered import OrderPlan

    size: dict[str, Any] = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    if isinstance(loader.dataset, IterableDataset):
        return size
    if loader.batch_sampler is not None and (
        loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler
    ):
        return {"batch_sampler": loader.batch_sampler}
    plan = loader.sampler
    if isinstance(plan, OrderPlan) and kind == STOKER:
        return {**size, "order": plan.order, "shard": (plan.shard.rank, plan.shard.world), "uneven": plan.last}
    return {**size, "sampler": plan}


def _settle_workers(arguments: dict[str, Any], changes: dict[str, Any], kind: str) -> None:
    """Make `workers` and `num_workers` agree, and drop what needs workers where there are none."""
    if kind == STOKER and "workers" in arguments:
        _settle_stoker(arguments, changes)
    elif kind == TORCH:
        arguments.pop("workers", None)
    workers = arguments.get("workers")
    processes = workers.processes if workers is not None else arguments["num_workers"]
    threads = workers is not None and workers.lanes > 1
    if processes in (0, "auto"):  # "auto" may come to none
        for name in _WITH_WORKERS:
            if not (threads and name in ("prefetch_factor", "timeout")):
                arguments.pop(name)


def _settle_stoker(arguments: dict[str, Any], changes: dict[str, Any]) -> None:
    if "workers" in changes and changes["workers"] is not None:
        arguments.pop("num_workers")
    elif isinstance(arguments["num_workers"], int):
        arguments["workers"] = dataclasses.replace(arguments["workers"], processes=arguments.pop("num_workers"))
    else:  # "auto" chooses all of it
        arguments.pop("workers")
