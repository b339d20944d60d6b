"""A small network on digits with Lightning: devices, strategy and precision by flags, checkpoints inside the epoch.

    python examples/train_lightning.py                                     one device, digits drawn by code
    python examples/train_lightning.py --data ~/mnist --epochs 3           MNIST's own four files
    python examples/train_lightning.py --devices 2 --strategy ddp          two processes, each its part of every step
    python examples/train_lightning.py --precision bf16-mixed              half precision, as Lightning names it
    python examples/train_lightning.py --checkpoints run --every 20        a checkpoint every 20 steps
    python examples/train_lightning.py --checkpoints run --resume last     goes on from the last one
    python examples/train_lightning.py --checkpoints run --resume run/step=40.ckpt

What differs from any other Lightning script is `stoker.lightning.DataModule`: it makes the loaders from datasets, deals
every step out to the ranks that Lightning starts, and its place in the data is in every checkpoint that Lightning's own
callback writes. Kill the run, or take an older checkpoint, and the losses that follow are those of the run that was not
stopped: the pictures come in the same order, and each is moved by the same random amount, because that amount is drawn
from the generator that belongs to the sample (`stoker.rng`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import numpy as np
import torch
import torch.utils.data
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn

import stoker
from stoker.bench.datasets.digits import load_digits
from stoker.lightning import DataModule


class Digits(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Pictures as float32 1×28×28 with their labels; those to train with are moved a little, at random."""

    def __init__(self, folder: Path | None, train: bool, count: int) -> None:
        self._pictures, self._labels = load_digits(folder, train, count)
        self._train = train

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = self._pictures[index]
        if self._train:
            picture = np.roll(picture, stoker.rng().integers(-2, 3, size=2), axis=(0, 1))
        return torch.from_numpy(picture.astype(np.float32) / 255.0)[None], int(self._labels[index])


class Net(lightning.LightningModule):
    """Two convolutions and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 6 * 6, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        pictures, labels = batch
        loss = nn.functional.cross_entropy(self.layers(pictures), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._log_share("right", batch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self._log_share("right_in_test", batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def _log_share(self, name: str, batch: Any) -> None:
        pictures, labels = batch
        right = (self.layers(pictures).argmax(1) == labels).float().mean()
        self.log(name, right, prog_bar=True, sync_dist=True)


class Curve(Callback):
    """Writes a line of JSON a step: epoch, step, loss."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.is_global_zero:
            entry = {"epoch": trainer.current_epoch, "step": trainer.global_step, "loss": outputs["loss"].item()}
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    lightning.seed_everything(args.seed)
    data = DataModule(
        train=lambda: Digits(args.data, train=True, count=args.samples),
        val=lambda: Digits(args.data, train=False, count=args.tests),
        test=lambda: Digits(args.data, train=False, count=args.tests),
        batch_size=args.batch_size,
        seed=args.seed,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    trainer, net = make_trainer(args), Net()
    trainer.fit(net, data, ckpt_path=checkpoint_of(args))
    trainer.test(net, data, verbose=not args.quiet)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on digits with Lightning.")
    parser.add_argument("--data", type=Path, help="a folder with MNIST's files; without it digits are drawn")
    parser.add_argument("--samples", type=int, default=6000, help="digits to train with (60000 is all of MNIST)")
    parser.add_argument("--tests", type=int, default=1000, help="digits to validate and test with")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64, help="of each process")
    parser.add_argument("--workers", type=int, default=2, help="of each process")
    parser.add_argument("--accelerator", default="auto", help='"cpu", "gpu", … as Lightning names them')
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--strategy", default="auto", help='"ddp", "fsdp", … as Lightning names them')
    parser.add_argument("--precision", default="32-true", help='"bf16-mixed", "16-mixed", … as Lightning names them')
    parser.add_argument("--checkpoints", type=Path, help="a folder for checkpoints")
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--resume", help='a checkpoint to go on from, or "last"')
    parser.add_argument("--curve", type=Path, help="a file for a line of JSON a step: epoch, step, loss")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no table of results")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def make_trainer(args: argparse.Namespace) -> lightning.Trainer:
    callbacks: list[Callback] = [] if args.curve is None else [Curve(args.curve)]
    if args.checkpoints is not None:
        callbacks.append(
            ModelCheckpoint(
                args.checkpoints, filename="{step}", every_n_train_steps=args.every, save_top_k=-1, save_last="link"
            )
        )
    return lightning.Trainer(
        accelerator=args.accelerator,
        devices=args.devices,
        strategy=args.strategy,
        precision=args.precision,
        max_epochs=args.epochs,
        callbacks=callbacks,
        enable_checkpointing=args.checkpoints is not None,
        logger=False,
        enable_progress_bar=not args.quiet,
        enable_model_summary=not args.quiet,
    )


def checkpoint_of(args: argparse.Namespace) -> str | None:
    return str(args.checkpoints / "last.ckpt") if args.resume == "last" else args.resume


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
