"""A loader again, with other arguments: what a trial of a changed setting is made of.

    stoker's ──► what it was asked ──┐
                                     ├──► with changes ──► another loader
    torch's  ──► its attributes ─────┘

A loader of ours keeps its call (`loader.asked`), and a change replaces one argument of it. Torch's keeps what it was
given in attributes, in a form that its constructor does not always take back: a default sampler beside `shuffle`, a
prefetch factor that may not be given without workers. These are turned into a call again. Dataset, samplers, generators
and functions are the given loader's own.

Whatever overrides how a loader is iterated (a trainer's wrapper, say) would not be itself any more: it is refused
with RebuildError. Nothing here imports torch before a loader is at hand, which has imported it already.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stoker.bench.settings import GIVEN, STOKER, TORCH
from stoker.errors import StokerError

if TYPE_CHECKING:
    from stoker.passes.setup import Setup

_ALWAYS = ("collate_fn", "pin_memory", "pin_memory_device", "worker_init_fn", "generator", "in_order")
_WITH_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
_KEYS = (
    *("batch_size", "drop_last", "shuffle", "sampler", "batch_sampler"),
    *("order", "shard", "last", "plan"),
)


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
    if arguments.get("batch_sampler") is not None and {"batch_size", "drop_last"} & changes.keys():
        raise RebuildError("this loader's batches are made by its batch_sampler: change batch_size there")
    arguments |= changes
    _settle_workers(arguments, changes, kind)
    return arguments


def arguments_of(loader: Any, kind: str | None = None) -> dict[str, Any]:
    """The keyword arguments, `dataset` among them, that build such a loader; `kind` as in `rebuild`."""
    own = kind_of(loader)
    if own == GIVEN:
        raise RebuildError(
            f"a {type(loader).__name__} cannot be built again: only torch's DataLoader, stoker.DataLoader, and "
            "subclasses that leave iterating to them"
        )
    if own == STOKER and kind in (None, STOKER):
        from stoker.loader.dataloader import again

        return again(loader).arguments()
    arguments: dict[str, Any] = {"dataset": _dataset(loader), "num_workers": loader.num_workers, **_samples(loader)}
    return arguments | {name: getattr(loader, name) for name in (*_ALWAYS, *_WITH_WORKERS)}


def setup_of(loader: Any) -> Setup:
    """What a pass over a loader of ours would be made from now."""
    from stoker.loader import dataloader

    return dataloader.setup_of(loader)


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


def _samples(loader: Any) -> dict[str, Any]:
    """What says which samples make a batch."""
    from torch.utils.data import BatchSampler, IterableDataset

    size: dict[str, Any] = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    if isinstance(loader.dataset, IterableDataset):
        return size
    if loader.batch_sampler is not None and (
        loader.batch_size is None or type(loader.batch_sampler) is not BatchSampler
    ):
        return {"batch_sampler": loader.batch_sampler}
    return {**size, "sampler": loader.sampler}


def _settle_workers(arguments: dict[str, Any], changes: Mapping[str, Any], kind: str) -> None:
    """Make `workers` and `num_workers` agree, and drop what needs workers where there are none."""
    if kind == TORCH or changes.get("num_workers") == "auto":  # which chooses all of it
        arguments.pop("workers", None)
    workers = arguments.get("workers")
    if workers is not None:
        if "workers" not in changes:
            processes = changes.get("num_workers", workers.processes)
            workers = arguments["workers"] = dataclasses.replace(workers, processes=processes)
        arguments["num_workers"] = 0
    processes = workers.processes if workers is not None else arguments["num_workers"]
    if processes in (0, "auto"):  # "auto" may come to none
        of_threads = ("prefetch_factor", "timeout") if workers is not None and workers.are_threads else ()
        for name in _WITH_WORKERS:
            if name not in of_threads:
                arguments.pop(name)
