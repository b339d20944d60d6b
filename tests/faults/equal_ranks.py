"""Ranks that drop bad samples and meet in an all-reduce in every step: test_equal_steps.py runs it.

    python equal_ranks.py KIND ACTION PROCESSES

Were the ranks' numbers of steps to differ, one of them would wait for ever, and gloo would end it after ten seconds.
"""

from __future__ import annotations

import datetime
import sys
import tempfile
from typing import Any

import torch
import torch.distributed
from tests.ranks import fork_ranks
from torch.utils.data import BatchSampler, DistributedSampler

import stoker

RANKS = 2
SAMPLES, BATCH = 48, 4


class Spoilt:
    """Samples 8 to 15 are bad: with two ranks in order, both of one step's batches; 20 to 23 are one rank's alone."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        if 8 <= index < 16 or 20 <= index < 24 or (index > 40 and index % 2):
            raise ValueError(f"sample {index} is spoilt")
        return torch.tensor([float(index)])


def loader_of(kind: str, action: Any, workers: stoker.Workers) -> Any:
    """A loader that gives each rank its part, in one of the ways that there are."""
    dataset: Any = Spoilt()
    options: dict[str, Any] = {"workers": workers, "on_error": action}
    if kind == "order":
        return stoker.DataLoader(dataset, BATCH, seed=1, **options)
    if kind == "plan":
        plan = stoker.BatchPlan(micro_batch=BATCH, replicas=RANKS)
        return stoker.DataLoader(dataset, plan=plan, last="keep", seed=1, **options)
    if kind == "prefetch":
        return stoker.prefetch(stoker.DataLoader(dataset, BATCH, seed=1, **options), by="process")
    sampler: Any = DistributedSampler(dataset, shuffle=False)
    if kind == "distributed":
        return stoker.DataLoader(dataset, BATCH, sampler=sampler, **options)
    return stoker.DataLoader(dataset, batch_sampler=BatchSampler(sampler, 1, False), **options)


def train(rank: int, store: str) -> None:
    """One rank, from joining the others to the end of the epoch."""
    kind, action, processes = sys.argv[1:]
    limit = datetime.timedelta(seconds=10)
    joined = torch.distributed.FileStore(store, RANKS)
    torch.distributed.init_process_group("gloo", store=joined, rank=rank, world_size=RANKS, timeout=limit)
    loader, steps = loader_of(kind, action, stoker.Workers(int(processes))), 0
    for batch in loader:
        data = batch.data if isinstance(batch, stoker.StepBatch) else batch
        assert 1 <= len(data) <= BATCH
        torch.distributed.all_reduce(data.mean())
        steps += 1
    counted = torch.tensor([steps, -steps])
    torch.distributed.all_reduce(counted, op=torch.distributed.ReduceOp.MAX)
    if rank == 0:
        print(counted.tolist(), len(loader))
    if kind == "prefetch":
        loader.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(fork_ranks(RANKS, lambda rank: train(rank, f"{folder}/store")))
