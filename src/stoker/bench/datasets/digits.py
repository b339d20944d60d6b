"""Handwritten digits: the four files of MNIST where somebody has them, else digits drawn by code.

Both give the same two arrays, pictures (n×28×28, uint8, light on dark) and labels (n, int64), so that whatever is
trained on one trains on the other. A drawn digit is a font's, turned, moved and scaled by what (seed, index) says: easy
for a small network after a few hundred steps, and not at once.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stoker.extras import brought_by

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

SIDE = 28
_PART = {True: "train", False: "t10k"}
_UBYTE = 8  # the code for bytes in an idx file's third byte; the fourth is the number of dimensions

Pictures = NDArray[np.uint8]
Labels = NDArray[np.int64]


def load_digits(folder: Path | None, train: bool, count: int) -> tuple[Pictures, Labels]:
    """The first `count` digits to train or to test with: MNIST's if a folder is given, else drawn."""
    if folder is None:
        return draw_digits(count, seed=0 if train else 1)
    pictures, labels = read_mnist(folder, train)
    return pictures[:count], labels[:count]


def draw_digits(count: int, seed: int = 0) -> tuple[Pictures, Labels]:
    """Digits, drawn."""
    labels = np.random.default_rng([seed, 0]).integers(0, 10, count)
    glyphs = [_glyph(digit) for digit in range(10)]
    pictures = np.stack([_written(glyphs[label], seed, index) for index, label in enumerate(labels)])
    return pictures, labels


def read_mnist(folder: Path, train: bool) -> tuple[Pictures, Labels]:
    """MNIST's own files, gzipped or not."""
    pictures = read_idx(_find(folder, f"{_PART[train]}-images-idx3-ubyte"))
    labels = read_idx(_find(folder, f"{_PART[train]}-labels-idx1-ubyte"))
    if len(pictures) != len(labels):
        raise ValueError(f"{folder} holds {len(pictures)} pictures but {len(labels)} labels: files of two collections?")
    return pictures, labels.astype(np.int64)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes in the idx format: two zeros, type, dimensions, each length as 4 bytes, then the bytes."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(data) < 4 or data[:3] != bytes((0, 0, _UBYTE)):
        raise ValueError(f"{path} is not an idx file of bytes: it begins with {data[:4]!r}")
    dimensions = data[3]
    shape = np.frombuffer(data, ">u4", dimensions, 4).astype(int)
    expected, held = int(shape.prod()), len(data) - 4 - 4 * dimensions
    if held != expected:
        raise ValueError(f"{path} should hold {expected:,} bytes after its head, but holds {held:,}: it was cut short")
    return np.frombuffer(data, np.uint8, expected, 4 + 4 * dimensions).reshape(shape)


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz", folder / name.replace("-idx", ".idx")):
        if path.exists():
            return path
    raise FileNotFoundError(f"no {name} in {folder}, gzipped or not: MNIST is four files with such names")


def _glyph(digit: int) -> PilImage:
    """A digit in the middle of a square, large."""
    with brought_by("tools"):
        from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("L", (4 * SIDE, 4 * SIDE))
    font = ImageFont.load_default(size=3 * SIDE)
    ImageDraw.Draw(picture).text((2 * SIDE, 2 * SIDE), str(digit), fill=255, font=font, anchor="mm", stroke_width=2)
    return picture


def _written(glyph: PilImage, seed: int, index: int) -> Pictures:
    from PIL import Image

    rng = np.random.default_rng([seed, 1, index])
    side = int(rng.uniform(22, 32))
    turned = glyph.rotate(rng.uniform(-18, 18), Image.Resampling.BILINEAR).resize((side, side))
    picture = Image.new("L", (SIDE, SIDE))
    left, top = ((SIDE - side) // 2 + rng.integers(-3, 4, 2)).tolist()
    picture.paste(turned, (left, top))
    noisy: Pictures = (np.asarray(picture, np.float32) + rng.normal(0, 12, (SIDE, SIDE))).clip(0, 255).astype(np.uint8)
    return noisy
