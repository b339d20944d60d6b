"""Starts ranks of a training run on this machine, in a session of their own, so that a test can kill them all at once.

    python ranks.py example WORLD STORE PAUSE_EPOCH PAUSE_STEP ARGUMENTS…    examples/train_ddp.py with these arguments
    python ranks.py losses  WORLD STORE FILE                                 the same training with several loaders

`example`: having noted step PAUSE_STEP of PAUSE_EPOCH, rank 0 says so and waits for ever, the others are in the middle
of the next step, and batches are read ahead; -1 never pauses. `losses` writes the loss of every step, by loader.

The ranks are forked from one process that has imported everything: torch takes seconds to import, every time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.data
from examples import train_ddp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

import stoker

SAMPLES, FEATURES, BATCH_SIZE, EPOCHS = 90, 8, 8, 2


class Points(torch.utils.data.Dataset[Any]):
    """Points of two classes, with some noise that belongs to the sample's index."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = torch.randn(FEATURES, generator=torch.Generator().manual_seed(index))
        return noise + index % 2, index % 2


def make_net() -> nn.Module:
    """With dropout: it draws from torch's generator in every step, so a loader that draws once too often shows."""
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))


def losses_of(loader: Any, net: nn.Module, before_epoch: Callable[[int], object] = lambda epoch: None) -> list[float]:
    """The loss of every step."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for epoch in range(EPOCHS):
        before_epoch(epoch)
        for points, labels in loader:
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(net(points), labels)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    return losses


LOADERS: dict[str, Callable[[Any], Any]] = {
    "torch": lambda sampler: torch.utils.data.DataLoader(Points(), BATCH_SIZE, sampler=sampler),
    "inline": lambda sampler: stoker.DataLoader(Points(), BATCH_SIZE, sampler=sampler),
    "processes": lambda sampler: stoker.DataLoader(Points(), BATCH_SIZE, sampler=sampler, num_workers=2),
    "device": lambda sampler: stoker.DataLoader(Points(), BATCH_SIZE, sampler=sampler, num_workers=1, device="cpu"),
}


def compare(rank: int, world: int, file: str) -> None:
    """The same training with every loader; rank 0 writes what all ranks lost."""
    found = {}
    for name, make in LOADERS.items():
        torch.manual_seed(5)
        net = DistributedDataParallel(make_net())
        torch.manual_seed(100 + rank)  # each rank drops out for itself
        sampler = DistributedSampler(Points(), seed=3)  # type: ignore[var-annotated]
        own = torch.tensor(losses_of(make(sampler), net, sampler.set_epoch))
        parts = [torch.empty_like(own) for _ in range(world)]
        dist.all_gather(parts, own)
        found[name] = [part.tolist() for part in parts]
    if rank == 0:
        Path(file).write_text(json.dumps(found))


def example(rank: int, world: int, pause_epoch: str, pause_step: str, *arguments: str) -> None:
    """The example, with a rank 0 that stops to be killed."""
    noted, pause_at = train_ddp.note, (int(pause_epoch), int(pause_step))

    def note(curve: Any, epoch: int, step: int, loss: float, samples: list[int]) -> None:
        noted(curve, epoch, step, loss, samples)
        if rank == 0 and (epoch, step) == pause_at:
            os.write(1, b"paused\n")
            os.read(0, 1)  # nobody will ever write

    train_ddp.note = note
    train_ddp.main(arguments)


def run(rank: int, mode: str, world: int, store: str, arguments: list[str]) -> None:
    file = dist.FileStore(store, world)
    dist.init_process_group("gloo", store=file, rank=rank, world_size=world)
    torch.set_num_threads(1)
    (compare if mode == "losses" else example)(rank, world, *arguments)
    dist.destroy_process_group()


def main() -> int:
    """Fork the ranks and wait for them; 0 if all went well."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    mode, world, store, *arguments = sys.argv[1:]
    ranks = [_fork(rank, mode, int(world), store, arguments) for rank in range(int(world))]
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks)


def _fork(rank: int, *told: Any) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        run(rank, *told)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
