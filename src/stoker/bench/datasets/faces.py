"""A folder of real JPEG files, drawn by code, and the dataset a course exercise would write for it.

A loader must be tried on files that cost what files cost: opened, read, entropy-decoded, converted. Downloading a
face collection for that would need a network and a licence; drawing one needs neither. The layout is that of
"Labeled Faces in the Wild" (NAME/NAME_0001.jpg, 250×250, 4:2:0), the names are invented, and grain is added so that
the files are as large, and as slow to decode, as photographs of that size (about 10-15 KB).

    person  skin, hair, eyes, build    from (seed, person)
    photo   light, pose, mouth, grain  from (seed, person, number)

So one person's photos resemble each other, and a file depends on nothing but the seed and its name: a folder can be
completed after an interruption, and two machines with the same Pillow draw the same bytes. Files are written under a
partial name and then renamed; a file that exists is complete and is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stoker.bench.whole_files import written_whole
from stoker.extras import brought_by

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage
    from PIL.ImageDraw import ImageDraw as PilDraw
    from torch import Tensor

SIDE = 250
_QUALITY = 85  # with the grain below: measured, a median of 12.9 KB
_GRAIN = 4.5
_FACES_PER_PERSON = 2.3  # the mean of the collection whose layout this follows

Colour = tuple[int, int, int]
Progress = Callable[[int, int], None]


class FacesDataset:
    """The photos of a folder as (picture, label) pairs; the label is the person's place in the sorted names.

    Opened and decoded with Pillow at every access, as plain code does. Without a `transform` the picture is a float32
    tensor 3×250×250 between 0 and 1.
    """

    def __init__(self, folder: Path | str, transform: Callable[[PilImage], Any] | None = None) -> None:
        with brought_by("tools"):
            import PIL  # noqa: F401  here, so that no worker has to say it
        self.paths = sorted(Path(folder).glob("*/*.jpg"))
        if not self.paths:
            raise FileNotFoundError(f"no NAME/NAME_0001.jpg files under {folder}; draw_faces(folder, 600) makes some")
        self.names = sorted({path.parent.name for path in self.paths})
        self.transform = transform or to_tensor
        self._label_of = {name: label for label, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        path = self.paths[index]
        with Image.open(path) as photo:
            picture = photo.convert("RGB")
        return self.transform(picture), self._label_of[path.parent.name]


def to_tensor(picture: PilImage) -> Tensor:
    """A picture as a float32 tensor, channels first, 0 to 1."""
    import torch

    pixels = torch.from_numpy(np.array(picture))
    return pixels.permute(2, 0, 1).contiguous().to(torch.float32).div_(255.0)


def draw_faces(folder: Path | str, count: int, *, seed: int = 0, progress: Progress | None = None) -> list[Path]:
    """Draw the photos missing from the first `count` of this seed; `progress(done, count)` is called after each."""
    paths = []
    for done, photo in enumerate(islice(_photos(seed), count), start=1):
        path = Path(folder) / photo.name / f"{photo.name}_{photo.number:04d}.jpg"
        if not path.exists():
            _save(_draw(photo, seed), path)
        paths.append(path)
        if progress is not None:
            progress(done, count)
    return paths


class _Photo(NamedTuple):
    name: str
    person: int
    number: int


def _photos(seed: int) -> Iterator[_Photo]:
    rng = np.random.default_rng([seed, 0])
    taken: set[str] = set()
    while True:
        name = f"{_word(rng)}_{_word(rng)}"
        if name in taken:
            continue
        taken.add(name)
        for number in range(1, 1 + int(rng.geometric(1 / _FACES_PER_PERSON))):
            yield _Photo(name, len(taken) - 1, number)


def _word(rng: np.random.Generator) -> str:
    syllables = ("ba", "den", "fi", "gor", "hal", "ju", "kel", "lo", "mi", "nar", "os", "pe", "ri", "su", "tav", "wen")
    return "".join(rng.choice(syllables, size=int(rng.integers(2, 4)))).capitalize()


def _save(picture: PilImage, path: Path) -> None:
    with written_whole(path) as partial:
        picture.save(partial, format="JPEG", quality=_QUALITY, subsampling="4:2:0")


class _Person(NamedTuple):
    skin: Colour
    hair: Colour
    iris: Colour
    shirt: Colour
    half_width: int
    half_height: int
    hair_length: int


def _person(seed: int, person: int) -> _Person:
    rng = np.random.default_rng([seed, 1, person])
    tone = rng.uniform(0.25, 1.0)
    grey = rng.uniform(0.1, 0.9)
    return _Person(
        skin=_colour(tone * np.array([245, 205, 175]) + rng.normal(0, 6, 3)),
        hair=_colour(grey * np.array([200, 160, 110]) + rng.normal(0, 10, 3)),
        iris=_colour(rng.uniform(20, 140, 3)),
        shirt=_colour(rng.uniform(20, 230, 3)),
        half_width=int(rng.integers(46, 58)),
        half_height=int(rng.integers(62, 76)),
        hair_length=int(rng.integers(0, 70)),
    )


def _draw(photo: _Photo, seed: int) -> PilImage:
    with brought_by("tools"):
        from PIL import Image, ImageDraw, ImageFilter

    look = _person(seed, photo.person)
    rng = np.random.default_rng([seed, 2, photo.person, photo.number])
    picture = Image.fromarray(_background(rng))
    pen = ImageDraw.Draw(picture)
    x, y = 125 + int(rng.integers(-8, 9)), 122 + int(rng.integers(-6, 7))
    _draw_head(pen, look, x, y)
    _draw_eyes(pen, look, x, y - 12, rng)
    _draw_nose_and_mouth(pen, look, x, y, rng)
    soft = picture.filter(ImageFilter.GaussianBlur(0.9))  # hard edges of polygons don't occur in photographs
    return Image.fromarray(_light(np.asarray(soft), rng))


def _background(rng: np.random.Generator) -> NDArray[np.uint8]:
    from PIL import Image

    # Mostly brightness, a little hue: what is out of focus behind a head.
    blobs = rng.uniform(30, 220, 3) + rng.normal(0, 35, (9, 9, 1)) + rng.normal(0, 12, (9, 9, 3))
    coarse = np.clip(blobs, 0, 255).astype(np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)).copy()


def _draw_head(pen: PilDraw, look: _Person, x: int, y: int) -> None:
    wide, high = look.half_width, look.half_height
    pen.ellipse((x - 105, y + high + 8, x + 105, y + high + 190), fill=look.shirt)
    pen.ellipse((x - wide - 12, y - high - 18, x + wide + 12, y + look.hair_length), fill=look.hair)
    pen.rectangle((x - 22, y + high - 22, x + 22, y + high + 24), fill=_shade(look.skin, 0.85))
    for side in (-1, 1):
        pen.ellipse((x + side * wide - 9, y - 14, x + side * wide + 9, y + 18), fill=_shade(look.skin, 0.9))
    pen.ellipse((x - wide, y - high, x + wide, y + high), fill=look.skin)
    pen.pieslice((x - wide, y - high - 4, x + wide, y + high - 30), 195, 345, fill=look.hair)


def _draw_eyes(pen: PilDraw, look: _Person, x: int, y: int, rng: np.random.Generator) -> None:
    glance, lid = int(rng.integers(-3, 4)), int(rng.integers(5, 9))
    for side in (-1, 1):
        eye = x + side * 22
        pen.ellipse((eye - 12, y - lid, eye + 12, y + lid), fill=(238, 236, 232), outline=_shade(look.skin, 0.5))
        pen.ellipse((eye + glance - 5, y - 5, eye + glance + 5, y + 5), fill=look.iris)
        pen.ellipse((eye + glance - 2, y - 2, eye + glance + 2, y + 2), fill=(8, 8, 10))
        pen.arc((eye - 15, y - 20, eye + 15, y - 4), 200, 340, fill=_shade(look.hair, 0.7), width=4)


def _draw_nose_and_mouth(pen: PilDraw, look: _Person, x: int, y: int, rng: np.random.Generator) -> None:
    pen.line((x - 2, y - 4, x - 8, y + 20, x + 7, y + 21), fill=_shade(look.skin, 0.72), width=3)
    smile, open_by = int(rng.integers(6, 18)), int(rng.integers(0, 9))
    lips = _colour(np.array(_shade(look.skin, 0.75)) + np.array([35, -15, -10]))
    pen.chord((x - 24, y + 38 - smile, x + 24, y + 38 + smile), 10, 170, fill=lips)
    if open_by > 3:
        pen.chord((x - 17, y + 38 - smile // 2, x + 17, y + 36 + smile), 15, 165, fill=(240, 236, 228))


def _light(pixels: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Light from one side, and the grain of a sensor: the same in all channels, as brightness noise is."""
    slope = rng.uniform(-0.25, 0.25, 2).astype(np.float32)
    ramp = np.linspace(-1, 1, SIDE, dtype=np.float32)
    light: NDArray[np.float32] = 1.0 + slope[0] * ramp[:, None] + slope[1] * ramp[None, :]
    grain = _GRAIN * rng.standard_normal((SIDE, SIDE), dtype=np.float32)
    lit: NDArray[np.float32] = pixels * light[..., None] + grain[..., None]
    return lit.clip(0, 255).astype(np.uint8)


def _shade(colour: Colour, factor: float) -> Colour:
    return _colour(factor * np.array(colour))


def _colour(values: NDArray[np.float64]) -> Colour:
    red, green, blue = np.clip(values, 0, 255).astype(int).tolist()
    return red, green, blue
