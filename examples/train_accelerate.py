"""A small network on digits with Hugging Face's accelerate: one process or many, checkpoints inside the epoch.

    python examples/train_accelerate.py                                              digits drawn by code
    python examples/train_accelerate.py --data ~/mnist --epochs 3                    MNIST's own four files
    accelerate launch --cpu --num_processes 2 examples/train_accelerate.py           two processes share every step
    torchrun --nproc-per-node 2 examples/train_accelerate.py --checkpoints run       saved every 20 steps, and resumed

The loader has a seed, so it shares every step out to the processes itself, and `prepare` (of
stoker.integrations.accelerate) gives it the habits that accelerate expects: batches on the accelerator's device, the
last batch known as the last. `accelerator.save_state` then writes its place in the data beside the model, and
`accelerator.load_state` brings both back: start the same command again after a kill, and the losses that follow are
those of a run that was not stopped.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.data
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

import stoker
from stoker.bench.datasets.digits import load_digits
from stoker.integrations.accelerate import prepare


class Digits(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Pictures as float32 vectors, moved a little at random, with their labels."""

    def __init__(self, folder: Path | None, count: int) -> None:
        self._pictures, self._labels = load_digits(folder, True, count)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = np.roll(self._pictures[index], stoker.rng().integers(-2, 3, size=2), axis=(0, 1))
        return torch.from_numpy(picture.reshape(-1).astype(np.float32) / 255.0), int(self._labels[index])


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    accelerator = Accelerator(cpu=args.cpu, gradient_accumulation_steps=args.accumulate)
    run(accelerator, args)
    accelerator.end_training()
    return 0


def run(accelerator: Accelerator, args: argparse.Namespace) -> None:
    set_seed(args.seed)
    net: Any = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    optimiser: Any = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net, optimiser = accelerator.prepare(net, optimiser)
    loader = prepare(
        accelerator,
        stoker.DataLoader(
            Digits(args.data, args.samples),
            batch_size=args.batch_size,
            shuffle=True,
            seed=args.seed,
            num_workers=args.workers,
        ),
    )
    if (saved := latest(args.checkpoints)) is not None:
        accelerator.load_state(saved)
    train(accelerator, net, optimiser, loader, args)
    accelerator.print(loader.stats())


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on digits with accelerate.")
    parser.add_argument("--data", type=Path, help="a folder with MNIST's files; without it digits are drawn")
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process: a step has this × processes")
    parser.add_argument("--workers", type=int, default=1, help="of each process")
    parser.add_argument("--accumulate", type=int, default=1, help="batches that make one step of the optimiser")
    parser.add_argument("--cpu", action="store_true", help="even if there is a GPU")
    parser.add_argument("--checkpoints", type=Path, help="a folder to save to, and to go on from if it holds something")
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--stop", type=int, help="leave after so many steps of this start, as a time limit would")
    parser.add_argument("--curve", type=Path, help="a file for a line of JSON a step: epoch, step, loss")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def train(accelerator: Any, net: Any, optimiser: Any, loader: Any, args: argparse.Namespace) -> None:
    place, made = loader.state_dict(), 0
    done = place["batches"]
    for epoch in range(place["epoch"], args.epochs):
        for step, (pictures, labels) in enumerate(loader, start=done):
            with accelerator.accumulate(net):
                loss = nn.functional.cross_entropy(net(pictures), labels)
                accelerator.backward(loss)
                optimiser.step()
                optimiser.zero_grad()
            note(accelerator, args.curve, epoch, step, loss)
            made += 1
            if args.checkpoints is not None and made % args.every == 0:
                save(accelerator, args.checkpoints, f"epoch-{epoch}-step-{step}")
            if made == args.stop:
                return
        done = 0


def note(accelerator: Any, curve: Path | None, epoch: int, step: int, loss: torch.Tensor) -> None:
    mean = accelerator.reduce(loss.detach(), "mean").item()
    if curve is not None and accelerator.is_main_process:
        with curve.open("a") as file:
            file.write(json.dumps({"epoch": epoch, "step": step, "loss": mean}) + "\n")


def save(accelerator: Any, folder: Path, name: str) -> None:
    """Write a checkpoint, and when it is whole, its name: a kill at any moment leaves the name of one that is whole."""
    accelerator.save_state(str(folder / name))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        (folder / "latest.new").write_text(name)
        (folder / "latest.new").replace(folder / "latest")
        for other in folder.iterdir():
            if other.is_dir() and other.name != name:
                shutil.rmtree(other)
    accelerator.wait_for_everyone()


def latest(folder: Path | None) -> str | None:
    """The checkpoint to go on from, if there is one."""
    if folder is None or not (folder / "latest").exists():
        return None
    return str(folder / (folder / "latest").read_text())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
