"""The engine's loader, told what a step is: which samples, in which order, joined how.

`poptorch.DataLoader` is one of these. In the asynchronous modes it holds another, which the buffer is filled from: so
that whatever fills it never holds the loader that the user holds, and dropping that one ends everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from stoker.loader import DataLoader as Engine
from stoker.poptorch.enums import DataLoaderMode
from stoker.poptorch.grouping import joined
from stoker.poptorch.hosts import HostBlock
from stoker.poptorch.request import Request, warn_of_last_group
from stoker.sampling.grouped import Grouped
from stoker.sampling.ordered import OrderPlan
from stoker.sampling.streams import length_or_none


class StepLoader(Engine[Any]):
    """A loader whose batches are steps, or what steps are cut from where `request.rebatches`."""

    def __init__(self, request: Request, **workers: Any) -> None:
        self.request = request
        super().__init__(**{**_engine_arguments(request), **workers})

    @property
    def loads_ahead(self) -> bool:
        """Whether it fills a buffer of its own."""
        return False

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        batches: Iterator[Any] = super().__iter__()
        if not _joins_after(self.request):
            return batches
        return joined(batches, self.request.micro_batches, self.request.drop_last)

    def __len__(self) -> int:
        request = self.request
        if request.batch_sampler is not None:
            return len(Grouped(request.batch_sampler, request.micro_batches, request.drop_last))
        if request.rebatches and request.combined is not None:
            return len(Grouped(request.dataset, request.combined, request.drop_last))
        return super().__len__()

    def close(self) -> None:
        """Let the workers go, also those that would stay for another pass. Steps that were handed over stay valid."""
        latest = self._course.watch.latest_pass
        if latest is not None:
            latest.close()

    def worker_pids(self) -> list[int]:
        """The processes that load for the latest pass."""
        latest = self._course.watch.latest_pass
        return latest.pids() if latest is not None else []

    def set_epoch(self, epoch: int) -> None:
        """Which epoch's order comes next, where the order follows from a seed."""
        if isinstance(self.sampler, OrderPlan):
            self.sampler.set_epoch(epoch)


def _engine_arguments(request: Request) -> dict[str, Any]:
    arguments: dict[str, Any] = {"dataset": request.dataset, **request.others}
    if request.batch_sampler is not None:
        return arguments | {"batch_sampler": _batches_of(request)}
    arguments |= {"batch_size": request.combined, "drop_last": request.drop_last}
    if request.rebatches:
        arguments |= {"batch_size": request.worker_size or request.combined, "drop_last": False}
    if request.is_split:
        return arguments | _order_of_host(request)
    if request.shuffle:
        seed = _seed_of(request)
        return arguments | {"shuffle": True} | ({"seed": seed, "shard": (0, 1)} if seed is not None else {})
    return arguments


def _order_of_host(request: Request) -> dict[str, Any]:
    distributed, combined = request.options.Distributed, request.combined or 1
    seed = _seed_of(request) if request.shuffle else None
    order = HostBlock(
        len(request.dataset), distributed.processId, distributed.numProcesses, combined, request.drop_last, seed
    )
    return {"order": order, "seed": seed or 0, "shard": (0, 1)}


def _seed_of(request: Request) -> int | None:
    """What a shuffled order is made from: `randomSeed`; else, where it is drawn in the background, a draw made now."""
    if request.options.exists("random_seed"):
        return int(request.options.random_seed)
    if request.mode is DataLoaderMode.Sync:
        return None  # torch's own sampler
    return int(torch.randint(2**63 - 1, (), generator=request.others.get("generator")))


def _batches_of(request: Request) -> Any:
    sampler, per_step = request.batch_sampler, request.micro_batches
    if not request.drop_last:
        warn_of_last_group(length_or_none(sampler), per_step)
    if per_step == 1 or _joins_after(request):
        return sampler
    return Grouped(sampler, per_step, request.drop_last)


def _joins_after(request: Request) -> bool:
    """Whether a batch sampler's batches are joined after collating: where the user's own function collates them."""
    return request.batch_sampler is not None and request.micro_batches > 1 and request.has_own_collate
