"""What a script asks of `poptorch.DataLoader`, checked: which combinations make no sense, and what to write instead.

PopTorch has three ways to load and one silent switch between them. Here there is one engine, and the request says what
it needs: which samples in which order, how many a step, and whether batches of the workers are combined afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import IterableDataset

from stoker.batches import is_default_collate
from stoker.plan import BatchPlan
from stoker.poptorch.enums import DataLoaderMode
from stoker.poptorch.errors import Error, Misuse, StartError
from stoker.poptorch.logs import log
from stoker.poptorch.options import Options


@dataclass(frozen=True)
class Request:
    """The loader's arguments."""

    options: Options
    dataset: Any
    batch_size: int | None
    shuffle: bool
    drop_last: bool
    auto_partitioning: bool
    mode: DataLoaderMode
    worker_size: int | None
    batch_sampler: Any
    others: dict[str, Any] = field(default_factory=dict)  # torch's and Stoker's own arguments

    @property
    def is_iterable(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    @property
    def plan(self) -> BatchPlan | None:
        """What a step is made of; None where samples are not batched."""
        size = self.batch_size
        if self.batch_sampler is not None:
            size = getattr(self.batch_sampler, "batch_size", 1)
        return self.options.plan(size) if size is not None else None

    @property
    def combined(self) -> int | None:
        """Rows of a step's batch."""
        return self.plan.combined_batch if self.plan is not None else None

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step: so many of a batch sampler's batches make one."""
        return self.options.plan(1).combined_batch

    @property
    def is_split(self) -> bool:
        """Whether each host process takes a part of its own."""
        return self.options.Distributed.numProcesses > 1 and self.auto_partitioning

    @property
    def has_own_collate(self) -> bool:
        """Whether a function of the user's own makes batches: it sees as many samples at a time as with PopTorch."""
        collate_fn = self.others.get("collate_fn")
        return collate_fn is not None and not is_default_collate(collate_fn)

    @property
    def repeats_epochs(self) -> bool:
        """Whether an epoch that was left early is begun again: its shuffled parts are disjoint over hosts, two epochs'
        are not."""
        return self.is_split and self.shuffle

    @property
    def rebatches(self) -> bool:
        """Whether what the workers give is cut anew into steps, so that there is one tail for the whole dataset."""
        if self.mode is DataLoaderMode.Sync or self.combined is None or self.batch_sampler is not None:
            return False
        if self.mode is DataLoaderMode.Async:
            return self.is_iterable and not self.drop_last and self.combined > 1
        return (self.is_iterable or self.has_own_collate) and self.combined > 1

    def check(self) -> None:
        """Refuse what cannot work; warn of what the script has to cope with."""
        if not isinstance(self.options, Options):
            raise Misuse(f"the first argument should be a poptorch.Options, but got {type(self.options).__name__}")
        if self.batch_sampler is not None:
            self._check_batch_sampler()
        if self.batch_size is None and self.drop_last:
            raise Misuse(
                "batch_size=None hands samples over one by one, so there is no incomplete batch to drop: pass "
                "drop_last=False with it"
            )
        self._check_sizes()
        if self.is_split:
            self._check_split()
        if self.is_iterable:
            self._warn_of_copies()
        else:
            self._check_length()

    def _check_batch_sampler(self) -> None:
        if self.batch_size != 1 or self.shuffle:
            raise Error(
                "a batch_sampler says which samples make a batch, so batch_size and shuffle cannot say it too: leave "
                "them out"
            )
        if self.is_split:
            raise Error(
                f"a batch_sampler cannot be split over {self.options.Distributed.numProcesses} host processes: let it "
                "give this process's batches alone (options.Distributed.processId) and pass "
                "auto_distributed_partitioning=False"
            )

    def _check_sizes(self) -> None:
        if self.worker_size is None or self.mode is DataLoaderMode.Sync:
            return
        if self.combined is None:
            raise Misuse(
                f"rebatched_worker_size={self.worker_size} is a part of a step's batch, but with batch_size=None there "
                "is none: leave it out, or give a batch_size"
            )
        if not 1 <= self.worker_size <= self.combined:
            raise Misuse(
                f"rebatched_worker_size should be from 1 to a step's {self.combined} samples ({self.plan}), but got "
                f"{self.worker_size}"
            )

    def _check_split(self) -> None:
        hosts = self.options.Distributed.numProcesses
        if self.is_iterable:
            raise Misuse(
                f"an IterableDataset cannot be split over {hosts} host processes from outside: let it give the part of "
                "options.Distributed.processId and pass auto_distributed_partitioning=False"
            )
        if self.combined is None:
            raise Misuse(
                f"with batch_size=None there is no step by which to split a dataset over {hosts} host processes: give "
                "a batch_size, or pass auto_distributed_partitioning=False"
            )
        if self.shuffle and not self.options.exists("random_seed"):
            raise Misuse(
                f"{hosts} host processes must shuffle alike to take different samples: call options.randomSeed(n) with "
                "the same number in all of them"
            )

    def _check_length(self) -> None:
        if self.plan is None or self.batch_sampler is not None:
            return
        length, hosts = len(self.dataset), self.plan.hosts if self.is_split else 1
        needed = self.plan.combined_batch * hosts
        if self.drop_last and length < needed and (hosts > 1 or self.mode is not DataLoaderMode.Sync):
            raise StartError(
                f"the worker thread failed to start: the dataset has {length} samples, but one step takes {needed} "
                f"({self.plan}), so there is not a single full one. Use fewer samples a step, fewer host processes, or "
                "drop_last=False."
            )
        if not length and self.mode is not DataLoaderMode.Sync:
            raise StartError("the worker thread failed to start: the dataset is empty, so there is nothing to load")
        if not self.drop_last:
            self._warn_of_last_step(length, needed)

    def _warn_of_last_step(self, length: int, needed: int) -> None:
        if length % needed:
            log.warning(
                "%d samples are no multiple of the %d that a step takes, and drop_last=False: the last batch has %d "
                "rows, which a model that takes whole steps refuses. With drop_last=True it is left out.",
                length,
                needed,
                length % needed,
            )

    def _warn_of_copies(self) -> None:
        workers = self.others.get("num_workers", 0)
        if isinstance(workers, int) and workers > 1 and self.others.get("worker_init_fn") is None:
            log.warning(
                "each of %d workers walks a copy of the IterableDataset, so every sample comes %d times unless it "
                "shares them out by torch.utils.data.get_worker_info(): do that in its __iter__ or in worker_init_fn",
                workers,
                workers,
            )


def warn_of_last_group(batches: int | None, per_step: int) -> None:
    """With drop_last=False a batch sampler's last batches may make a step that is too short."""
    if batches is None:
        log.warning(
            "the batch_sampler has no len() and drop_last=False: the last step may have fewer than %d batches", per_step
        )
    elif batches % per_step:
        log.warning(
            "the batch_sampler gives %d batches, and a step takes %d: with drop_last=False the last one has only %d",
            batches,
            per_step,
            batches % per_step,
        )
