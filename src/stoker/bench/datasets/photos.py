"""Photographs drawn by code: hills, sky and texture that cost what photographs cost to read and to decode.

What a loader feels of a photograph is its size in pixels and in bytes. Sizes vary around 500×375, every fourth stands
upright, and noise on all scales (each finer one weaker, as in nature) brings the files to about 110 KB; measured over
200: a median of 107 KB, from 76 to 148. A file depends on nothing but its number: an interrupted folder is completed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stoker.bench.whole_files import written_whole
from stoker.extras import brought_by

_CLASSES = 10
_QUALITY = 95
_SCALES = (3, 6, 12, 25, 50, 100, 200)
_GRAIN = 6.5

Pixels = NDArray[np.float32]


def draw_photos(folder: Path, count: int, *, progress: Callable[[int, int], None] | None = None) -> list[Path]:
    """Draw those of the first `count` photos that are missing; their paths."""
    with brought_by("tools"):
        from PIL import Image

    paths = []
    for number in range(count):
        path = folder / f"class_{number % _CLASSES}" / f"photo_{number:05d}.jpg"
        if not path.exists():
            with written_whole(path) as partial:
                Image.fromarray(_draw(number)).save(partial, format="JPEG", quality=_QUALITY, subsampling="4:4:4")
        paths.append(path)
        if progress is not None:
            progress(number + 1, count)
    return paths


def _draw(number: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng([7, number])
    wide, high = _size(rng)
    picture = _sky(rng, wide, high)
    for distance in (0.35, 0.55, 0.8):
        _add_hill(picture, distance, rng)
    picture += _texture(rng, wide, high)[..., None]
    picture += _GRAIN * rng.uniform(0.5, 1.5) * rng.standard_normal((high, wide, 1), dtype=np.float32)
    return picture.clip(0, 255).astype(np.uint8)


def _size(rng: np.random.Generator) -> tuple[int, int]:
    wide = int(np.clip(rng.normal(500, 45), 330, 640))
    high = int(np.clip(rng.normal(375, 35), 250, 480))
    return (high, wide) if rng.random() < 0.25 else (wide, high)


def _sky(rng: np.random.Generator, wide: int, high: int) -> Pixels:
    above, below = rng.uniform(60, 240, 3), rng.uniform(60, 240, 3)
    down = np.linspace(0, 1, high, dtype=np.float32)[:, None, None]
    sky: Pixels = (above + (below - above) * down).astype(np.float32)
    return np.repeat(sky, wide, axis=1)


def _add_hill(picture: Pixels, distance: float, rng: np.random.Generator) -> None:
    high, wide, _ = picture.shape
    across = np.linspace(0, 2 * np.pi, wide)
    ridge = sum(rng.normal(0, 0.06 / n) * np.sin(n * across + rng.uniform(0, 6)) for n in (1, 2, 3, 7, 15))
    top = (np.clip(distance + ridge, 0, 1) * high).astype(int)
    colour = (rng.uniform(20, 180, 3) * (1.2 - 0.6 * distance)).astype(np.float32)
    picture[np.arange(high)[:, None] >= top[None, :]] = colour


def _texture(rng: np.random.Generator, wide: int, high: int) -> Pixels:
    from PIL import Image

    total = np.zeros((high, wide), np.float32)
    for scale in _SCALES:
        coarse = rng.standard_normal((max(2, scale * high // wide), scale), dtype=np.float32)
        smooth = Image.fromarray(coarse).resize((wide, high), Image.Resampling.BICUBIC)
        total += np.asarray(smooth, np.float32) * np.float32(40.0 * scale**-0.35)
    return total
