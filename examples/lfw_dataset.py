"""Faces from a folder of JPEG files: how many workers does loading want?

    python examples/lfw_dataset.py                                    one batch, to see that it works
    python examples/lfw_dataset.py -visualize_batch                   a grid of one batch, with names: batch.png
    python examples/lfw_dataset.py -get_timing -num_workers 2         100 batches, five times: mean ± deviation
    python examples/lfw_dataset.py -sweep 0 1 2 4                     the same for each count: sweep.png
    python examples/lfw_dataset.py -sweep 0 1 2 4 -heavy              with an augmentation that costs more
    python examples/lfw_dataset.py -path_to_folder ~/lfw -get_timing  "Labeled Faces in the Wild", or lfw.tgz itself

Without a folder, 600 faces are drawn once (about 20 s) and kept in the cache folder.

An exercise that many courses set: write the dataset, look at a batch, vary the workers, draw the error bars. What to
look for: with no augmentation at all, one worker more than there are idle cores helps nobody; with a heavy one, every
core does. The two loaders see the same samples in the same order, and take turns.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.data
from PIL import Image, ImageEnhance, ImageFilter

import stoker
from stoker.bench import Group, Setting, Summary, TrialRecord, group, measure, summarise
from stoker.bench.datasets import default_cache
from stoker.bench.datasets.faces import draw_faces, to_tensor
from stoker.bench.datasets.lfw import faces_folder
from stoker.bench.datasets.pictures import Again
from stoker.report.plots import KINDS, kind_figure, save_figure

DRAWN = 600
REPEATS = 5
PER_ROW = 8


class LFWDataset(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """The pictures under `folder`, one folder a person, as (picture, number of the person)."""

    def __init__(self, folder: Path, transform: Callable[[Image.Image], Image.Image]) -> None:
        self.paths = sorted(folder.glob("*/*.jpg"))
        self.names = sorted({path.parent.name for path in self.paths})
        self.transform = transform
        self._person = {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        with Image.open(path) as file:
            picture = self.transform(file.convert("RGB"))
        return to_tensor(picture), self._person[path.parent.name]


class RandomAffine:
    """Turns, moves, scales and shears a picture about its middle, a little and at random.

    The draws come from `stoker.rng()`: they belong to the sample, so no worker count and no resume changes them.
    """

    def __init__(self, degrees: float = 10.0, move: float = 0.08, scale: float = 0.1, shear: float = 0.1) -> None:
        self.degrees, self.move, self.scale, self.shear = degrees, move, scale, shear

    def __call__(self, picture: Image.Image) -> Image.Image:
        rng = stoker.rng()
        angle = np.deg2rad(rng.uniform(-self.degrees, self.degrees))
        scale = rng.uniform(1 - self.scale, 1 + self.scale)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        slant = np.array([[1.0, rng.uniform(-self.shear, self.shear)], [0.0, 1.0]])
        middle = np.array(picture.size) / 2
        shift = rng.uniform(-self.move, self.move, 2) * picture.size
        back = np.linalg.inv(scale * turn @ slant)  # Pillow asks where each pixel comes from
        start = middle - back @ (middle + shift)
        matrix = (*back[0], start[0], *back[1], start[1])
        return picture.transform(picture.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


class Heavy:
    """A random affine change of twice the size, then light, contrast, colour and focus: some ten times the work."""

    def __init__(self) -> None:
        self._affine = RandomAffine(25.0, 0.15, 0.25, 0.2)

    def __call__(self, picture: Image.Image) -> Image.Image:
        rng, wide, high = stoker.rng(), *picture.size
        larger = picture.resize((2 * wide, 2 * high), Image.Resampling.BICUBIC)
        changed = self._affine(larger).resize((wide, high), Image.Resampling.LANCZOS)
        for change in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            changed = change(changed).enhance(rng.uniform(0.7, 1.3))
        return changed.filter(ImageFilter.GaussianBlur(rng.uniform(0.1, 1.5)))


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    torch.set_num_threads(1)  # as in workers: small tensors gain nothing, and threads that wait for cores lose a lot
    folder = find_folder(args.path_to_folder, args.cache, args.draw)
    dataset = LFWDataset(folder, Heavy() if args.heavy else RandomAffine())
    print(f"{len(dataset)} pictures of {len(dataset.names)} people in {folder}")
    if args.visualize_batch:
        show_batch(make_loader("stoker", dataset, args.num_workers, args), dataset.names, args.out)
    long_enough = Again(dataset, max(len(dataset), args.batch_size * args.batches_to_check), len(dataset))
    if args.get_timing:
        summary = timing(lambda: make_loader(args.loader, long_enough, args.num_workers, args), args.batches_to_check)
        print(
            f"{args.loader}, {args.num_workers} workers: {args.batches_to_check} batches of {args.batch_size} in "
            f"{summary.mean:.3f} ± {summary.deviation:.3f} s ({REPEATS} times)"
        )
    if args.sweep:
        draw_sweep(sweep(long_enough, args), args.out)
    if not (args.visualize_batch or args.get_timing or args.sweep):
        pictures, people = next(iter(make_loader("stoker", dataset, args.num_workers, args)))
        print(f"a batch: {tuple(pictures.shape)} {pictures.dtype}, of {dataset.names[people[0]]} and others")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How many workers does loading faces want?")
    parser.add_argument("-path_to_folder", type=Path, help="people's folders of JPEG files, or lfw.tgz; else drawn")
    parser.add_argument("-batch_size", type=int, default=32)
    parser.add_argument("-num_workers", type=int, default=0)
    parser.add_argument("-visualize_batch", action="store_true", help="save a grid of one batch, with names")
    parser.add_argument("-get_timing", action="store_true", help=f"time -batches_to_check batches {REPEATS} times")
    parser.add_argument("-batches_to_check", type=int, default=100)
    parser.add_argument("-sweep", type=int, nargs="+", metavar="WORKERS", help="time each count, draw the error bars")
    parser.add_argument("-heavy", action="store_true", help="an augmentation that costs more")
    parser.add_argument("-loader", choices=("stoker", "torch"), default="stoker", help="whom -get_timing times")
    parser.add_argument("-draw", type=int, default=DRAWN, help="how many faces to draw without a folder")
    parser.add_argument("-cache", type=Path, default=default_cache(), help="where drawn faces are kept")
    parser.add_argument("-out", type=Path, default=Path("."), help="where pictures go")
    return parser.parse_args(arguments)


def find_folder(given: Path | None, cache: Path, count: int) -> Path:
    if given is not None:
        return faces_folder(given.expanduser(), cache, lambda done, total: None)
    folder = cache / f"faces-{count}"
    draw_faces(folder, count, progress=lambda done, total: done % 100 or print(f"drawing faces: {done} of {total}"))
    return folder


def make_loader(kind: str, dataset: Any, workers: int, args: argparse.Namespace) -> Iterable[Any]:
    """Stoker's loader or torch's, told the same."""
    make: Any = stoker.DataLoader if kind == "stoker" else torch.utils.data.DataLoader
    generator = torch.Generator().manual_seed(0)
    return make(dataset, batch_size=args.batch_size, shuffle=True, num_workers=workers, generator=generator)


def timing(make: Callable[[], Iterable[Any]], batches: int) -> Summary:
    """Seconds for so many batches, a new pass each time: starting the workers counts, as it does in an epoch."""
    return summarise([measure(make(), limit=batches).seconds for _ in range(REPEATS)])


def sweep(dataset: Any, args: argparse.Namespace) -> list[Group]:
    """Both loaders at every count, in rounds, so that a machine's moods meet all of them."""
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are meant
    augmentation = "heavy augmentation" if args.heavy else "random affine"
    words = (
        f"{args.batches_to_check} batches of {args.batch_size} faces, {augmentation}, ± deviation of {REPEATS} passes"
    )
    records = []
    for repeat, workers, kind in itertools.product(range(REPEATS), args.sweep, ("torch", "stoker")):
        trial = measure(make_loader(kind, dataset, workers, args), limit=args.batches_to_check)
        records.append(TrialRecord(Setting(words, kind, args.batch_size, workers), repeat, trial=trial))
        print(f"round {repeat + 1} of {REPEATS}: {kind}, {workers} workers: {trial.seconds:.2f} s", flush=True)
    return group(records)


def draw_sweep(groups: list[Group], out: Path) -> None:
    """The time over the number of workers, with the standard deviation of the repeats as bars."""
    for each in groups:
        seconds = each.metric("seconds")
        print(f"{each.setting.label({'loader', 'workers'})}: {seconds.mean:.3f} ± {seconds.deviation:.3f} s")
    figure = kind_figure(KINDS[0], groups)
    if figure is None:
        print("a sweep over one count has no curve: give more")
        return
    print(*save_figure(figure, out / "sweep", ("png",)))


def show_batch(loader: Iterable[Any], names: list[str], out: Path) -> None:
    """One batch as a grid of pictures, each with its person's name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    pictures, people = next(iter(loader))
    rows = -(-len(pictures) // PER_ROW)
    figure = Figure(figsize=(1.7 * PER_ROW, 1.95 * rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"one batch of {len(pictures)}, augmented")
    axes = figure.subplots(rows, PER_ROW, squeeze=False).ravel()
    for ax in axes:
        ax.axis("off")
    for ax, picture, person in zip(axes, pictures, people, strict=False):
        ax.imshow(picture.permute(1, 2, 0).numpy())
        ax.set_title(names[person].replace("_", " "), fontsize=8)
    print(*save_figure(figure, out / "batch", ("png",)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
