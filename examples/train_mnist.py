"""A small network on MNIST: one device, several with nn.DataParallel, half precision by a flag.

    python examples/train_mnist.py                                  digits drawn by code, one epoch, the best device
    python examples/train_mnist.py --data ~/mnist --epochs 3        MNIST's own four files, gzipped or not
    python examples/train_mnist.py --parallel                       nn.DataParallel over all GPUs
    python examples/train_mnist.py --precision bf16                 autocast: bf16, or fp16 with a gradient scaler
    python examples/train_mnist.py --loader torch                   the same training with torch's loader
    python examples/train_mnist.py --inference 16 64 256 1024       time inference over batch sizes, alone and parallel

The loader is the one line `make_loader`. `device=` puts batches where the model is before the step asks for them; on
the CPU that is a thread that keeps two batches ready.

nn.DataParallel splits each batch over the GPUs of one process, copies the model to all of them every step, and gathers
the results. For small batches that costs more than it gains; --inference shows from where on it pays. Without a GPU it
has nothing to split over and runs the model itself: the script says so. For training on several GPUs prefer DDP, a
process each: examples/train_ddp.py.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.utils.data
from torch import nn

import stoker
from stoker.bench import mean
from stoker.bench.datasets.digits import load_digits

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Digits(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Pictures as float32 1×28×28, normalised when they are asked for, with their labels."""

    def __init__(self, folder: Path | None, train: bool, count: int) -> None:
        self._pictures, self._labels = load_digits(folder, train, count)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = torch.from_numpy(self._pictures[index].astype("float32"))
        return ((picture / 255.0 - 0.1307) / 0.3081)[None], int(self._labels[index])  # MNIST's mean and deviation


def make_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 5 * 5, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def make_loader(dataset: Any, args: argparse.Namespace, shuffle: bool) -> Iterable[Any]:
    """Stoker's loader with the batches on the device; or torch's, whose batches the step has to move."""
    options = {"batch_size": args.batch_size, "shuffle": shuffle, "num_workers": args.workers}
    if args.loader == "torch":
        return torch.utils.data.DataLoader(dataset, **options)
    return stoker.DataLoader(dataset, **options, device=args.device)


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    torch.manual_seed(args.seed)
    if args.threads:
        torch.set_num_threads(args.threads)
    net: nn.Module = make_net().to(args.device)
    if args.parallel:
        net = in_parallel(net)
    train_data, test_data = (Digits(args.data, train, args.samples if train else args.tests) for train in (True, False))
    print(f"{len(train_data)} digits to train with, {sum(1 for _ in train(net, train_data, args))} steps")
    print(f"{len(test_data)} digits to test with: {accuracy(net, test_data, args):.1%} right")
    if args.inference:
        time_inference(net, args)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on digits.")
    parser.add_argument("--data", type=Path, help="a folder with MNIST's files; without it digits are drawn")
    parser.add_argument("--samples", type=int, default=6000, help="digits to train with (60000 is all of MNIST)")
    parser.add_argument("--tests", type=int, default=1000, help="digits to test with")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--loader", choices=("stoker", "torch"), default="stoker")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parallel", action="store_true", help="nn.DataParallel over all GPUs")
    parser.add_argument("--precision", choices=DTYPES, default="fp32", help="what autocast computes in")
    parser.add_argument("--inference", type=int, nargs="+", metavar="BATCH_SIZE", help="time inference at these sizes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="of torch on the CPU; 0 leaves it to torch")
    return parser.parse_args(arguments)


def in_parallel(net: nn.Module) -> nn.DataParallel[nn.Module]:
    gpus = torch.cuda.device_count()
    if gpus < 2:
        print(f"nn.DataParallel has {gpus} GPUs to split over: it runs the model as it is")
    return nn.DataParallel(net)


def train(net: nn.Module, dataset: Digits, args: argparse.Namespace) -> Iterable[float]:
    """The loss of every step."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    place = torch.device(args.device).type
    scaler = torch.amp.GradScaler(place, enabled=args.precision == "fp16")  # fp16's small gradients would vanish
    loader = make_loader(dataset, args, shuffle=True)
    for epoch in range(args.epochs):
        begun_s, losses = time.perf_counter(), []
        for pictures, labels in loader:
            pictures, labels = pictures.to(args.device), labels.to(args.device)  # there already, with Stoker
            optimiser.zero_grad()
            with torch.autocast(place, DTYPES[args.precision], enabled=args.precision != "fp32"):
                loss = nn.functional.cross_entropy(net(pictures), labels)
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            losses.append(loss.item())
            yield losses[-1]
        seconds = time.perf_counter() - begun_s
        print(
            f"epoch {epoch}: loss {mean(losses):.4f}, {len(dataset) / seconds:,.0f} samples/s in {args.precision} on "
            f"{args.device}"
        )
    if isinstance(loader, stoker.DataLoader):
        print(loader.stats())


@torch.inference_mode()
def accuracy(net: nn.Module, dataset: Digits, args: argparse.Namespace) -> float:
    right = 0
    for pictures, labels in make_loader(dataset, args, shuffle=False):
        right += int((net(pictures.to(args.device)).argmax(1).cpu() == labels.cpu()).sum())
    return right / len(dataset)


@torch.inference_mode()
def time_inference(net: nn.Module, args: argparse.Namespace) -> None:
    """The same batch several times, through the model alone and through nn.DataParallel."""
    alone = net.module if isinstance(net, nn.DataParallel) else net
    ways: dict[str, nn.Module] = {"alone": alone, "DataParallel": nn.DataParallel(alone)}
    if torch.cuda.device_count() < 2:
        print("inference in parallel needs two GPUs: below, DataParallel runs the model as it is")
    print(f"{'batch size':>10}  " + "  ".join(f"{way + ', ms':>18}" for way in ways))
    for size in args.inference:
        batch = torch.zeros(size, 1, 28, 28, device=args.device)
        times = [f"{1e3 * mean(_times_s(model, batch)):18.3f}" for model in ways.values()]
        print(f"{size:>10}  " + "  ".join(times))


def _times_s(model: nn.Module, batch: torch.Tensor, repeats: int = 5) -> list[float]:
    times = []
    for _ in range(repeats + 1):
        begun_s = time.perf_counter()
        model(batch)
        if batch.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun_s)
    return times[1:]  # the first one warms up


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
