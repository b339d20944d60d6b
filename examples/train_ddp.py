"""Training on several processes with DDP: the loader shards by itself, and a killed run goes on where it was.

    torchrun --nproc-per-node 2 examples/train_ddp.py                        two processes, digits drawn by code
    torchrun --nproc-per-node 4 examples/train_ddp.py --data ~/mnist         four, MNIST's own files
    torchrun --nproc-per-node 2 examples/train_ddp.py --checkpoint run.pt    goes on from run.pt, if it is there
    torchrun --nproc-per-node 4 --max-restarts 3 examples/train_ddp.py --checkpoint run.pt --batch-size 16
    python examples/train_ddp.py --checkpoint run.pt --batch-size 64         the same run on one process

What changes from one process to many is the line that wraps the model. The loader finds the ranks itself (from
torch.distributed, or torchrun's environment) because it has a seed: there is no DistributedSampler and no set_epoch.

A checkpoint holds the model, the optimiser and `loader.state_dict()`, which is the whole place in the data: epoch and
step. All ranks load the same one. Kill the run at any moment (try it) and start it again: the losses that follow are
those of a run that was never stopped. On another number of processes too, as long as processes × batch size, the step,
stays the same; then sums are made in another order, so losses agree to rounding only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.data
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import stoker
from stoker.bench.datasets.digits import load_digits


class Digits(torch.utils.data.Dataset[tuple[torch.Tensor, int, int]]):
    """Pictures as float32 vectors, slightly moved at random, with their labels and their indices."""

    def __init__(self, folder: Path | None, count: int) -> None:
        self._pictures, self._labels = load_digits(folder, True, count)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int, int]:
        picture = torch.from_numpy(self._pictures[index].astype("float32")) / 255.0
        moved = picture.roll(stoker.rng().integers(-1, 2, 2).tolist(), (0, 1))  # the draw belongs to the sample
        return moved.flatten(), int(self._labels[index]), index


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    torch.set_num_threads(1)
    joined = join()
    try:
        train(args)
    finally:
        if joined:
            dist.destroy_process_group()
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on several processes.")
    parser.add_argument("--data", type=Path, help="a folder with MNIST's files; without it digits are drawn")
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process: a step has this × processes")
    parser.add_argument("--workers", type=int, default=1, help="of each process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, help="a file to save to, and to go on from if it exists")
    parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints")
    parser.add_argument("--curve", type=Path, help="a file for a line of JSON a step: epoch, step, loss, samples")
    return parser.parse_args(arguments)


def join() -> bool:
    """Join the other processes, if a launcher has started any; False if that was done already, or there are none."""
    if dist.is_initialized() or "RANK" not in os.environ:
        return False
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return True


def train(args: argparse.Namespace) -> None:
    device = place_of_model()
    torch.manual_seed(args.seed)
    net: nn.Module = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    if dist.is_initialized():
        net = DistributedDataParallel(net)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    loader = stoker.DataLoader(
        Digits(args.data, args.samples),
        batch_size=args.batch_size,
        shuffle=True,
        seed=args.seed,
        num_workers=args.workers,
        device=device,
    )
    if args.checkpoint is not None and args.checkpoint.exists():
        restore(args.checkpoint, net, optimiser, loader)
    place = loader.state_dict()
    done = place["batches"]
    for epoch in range(place["epoch"], args.epochs):
        for step, batch in enumerate(loader, start=done):
            loss = learn(net, optimiser, batch)
            note(args.curve, epoch, step, *over_all_ranks(loss, batch[2]))
            if args.checkpoint is not None and (step + 1) % args.every == 0:
                save(args.checkpoint, net, optimiser, loader)
        done = 0
    if rank() == 0:
        print(loader.stats())


def learn(net: nn.Module, optimiser: torch.optim.Optimizer, batch: Any) -> torch.Tensor:
    pictures, labels, _ = batch
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(net(pictures), labels)
    loss.backward()
    optimiser.step()
    return loss.detach()


def over_all_ranks(loss: torch.Tensor, indices: torch.Tensor) -> tuple[float, list[int]]:
    """The mean loss, and which samples the step was made of."""
    if not dist.is_initialized():
        return loss.item(), indices.tolist()
    losses, parts = (
        [torch.empty_like(own) for _ in range(dist.get_world_size())] for own in (loss.reshape(1), indices)
    )
    dist.all_gather(losses, loss.reshape(1))
    dist.all_gather(parts, indices)
    return torch.cat(losses).mean().item(), torch.cat(parts).tolist()


def note(curve: Path | None, epoch: int, step: int, loss: float, samples: list[int]) -> None:
    if rank() != 0:
        return
    if step % 10 == 0:
        print(f"epoch {epoch}, step {step}: loss {loss:.4f}", flush=True)
    if curve is not None:
        with curve.open("a") as file:
            file.write(json.dumps({"epoch": epoch, "step": step, "loss": loss, "samples": samples}) + "\n")


def save(path: Path, net: nn.Module, optimiser: torch.optim.Optimizer, loader: Any) -> None:
    """Written by one rank, whole or not at all: all ranks are at the same place."""
    if rank() == 0:
        partial = path.with_name(path.name + ".partial")
        model = net.module if isinstance(net, DistributedDataParallel) else net
        saved = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "loader": loader.state_dict()}
        torch.save(saved, partial)
        partial.replace(path)


def restore(path: Path, net: nn.Module, optimiser: torch.optim.Optimizer, loader: Any) -> None:
    saved = torch.load(path, weights_only=True, map_location=place_of_model())
    model = net.module if isinstance(net, DistributedDataParallel) else net
    model.load_state_dict(saved["model"])
    optimiser.load_state_dict(saved["optimiser"])
    loader.load_state_dict(saved["loader"])
    if rank() == 0:
        print(f"going on from {path}: epoch {saved['loader']['epoch']}, step {saved['loader']['batches']}", flush=True)


def place_of_model() -> torch.device:
    """Each process of a machine has a GPU of its own, if there are any."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
