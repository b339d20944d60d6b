"""Training on ranks, in a process group of its own: test_ddp.py starts it.

    python ddp_ranks.py FOLDER

Both ranks train under DistributedDataParallel, once for each case, and rank 0 writes what came out: the weights, how
often gradients were exchanged, and the samples of each rank.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from tests.ranks import fork_ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import stoker
from stoker.training import train_step

SAMPLES = 45
STEP = 16
RANKS = 2
CASES = {"replicas": (1, 2, "drop"), "padded replicas": (1, 2, "pad"), "hosts": (2, 1, "keep")}
"""(hosts, replicas, tail): ranks are replicas of one host, or hosts of one replica each."""


def make_plan(hosts: int, replicas: int) -> stoker.BatchPlan:
    """A step of 16 samples, however many share it: two weight updates of two accumulations."""
    return stoker.BatchPlan(
        STEP // 4 // hosts // replicas, gradient_accumulation=2, replicas=replicas, device_iterations=2, hosts=hosts
    )


def make_loader(plan: stoker.BatchPlan, tail: Any, **more: Any) -> Any:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.rand(SAMPLES, 3, generator=generator, dtype=torch.float64)
    dataset = torch.utils.data.TensorDataset(inputs, inputs.square().sum(dim=1, keepdim=True), torch.arange(SAMPLES))
    return stoker.DataLoader(dataset, plan=plan, last=tail, shuffle=True, seed=5, **more)


def train(model: nn.Module, loader: Any) -> list[int]:
    """Two epochs; gives the indices that were seen, in order."""
    seen: list[int] = []

    def compute(model: nn.Module, data: Any) -> torch.Tensor:
        inputs, targets, indices = data
        seen.extend(indices.tolist())
        return (model(inputs) - targets).square().mean()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        for batch in loader:
            train_step(model, batch, compute, optimizer)
    return seen


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(3, 1, dtype=torch.float64)


def weights(model: nn.Module) -> list[float]:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).tolist()


def run_case(plan: stoker.BatchPlan, tail: str) -> dict[str, Any]:
    """Train on this rank and the others."""
    model, exchanges = DistributedDataParallel(make_model()), 0

    def count(_: Any, bucket: Any) -> Any:
        nonlocal exchanges
        exchanges += 1
        return allreduce_hook(None, bucket)  # type: ignore[arg-type]

    count.__annotations__.clear()  # DistributedDataParallel looks at them, and finds texts
    model.register_comm_hook(None, count)
    seen = train(model, make_loader(plan, tail))
    parts: list[Any] = [None] * RANKS
    torch.distributed.all_gather_object(parts, seen)
    return {"weights": weights(model), "exchanges": exchanges, "seen": parts}


def run_rank(rank: int, folder: Path) -> None:
    store = torch.distributed.FileStore(str(folder / "store"), RANKS)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    told = {name: run_case(make_plan(hosts, replicas), tail) for name, (hosts, replicas, tail) in CASES.items()}
    if rank == 0:
        (folder / "results.json").write_text(json.dumps(told))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    sys.exit(fork_ranks(RANKS, lambda rank: run_rank(rank, Path(sys.argv[1]))))
