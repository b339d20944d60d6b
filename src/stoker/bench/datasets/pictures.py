"""Pictures of any size in folders, made ready as for a network trained on ImageNet.

Opened with Pillow at every access, the shorter side scaled to 256, the middle 224×224 cut out, float32, normalised: the
usual steps before inference, in plain code. The label is the place of the picture's folder in their sorted names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stoker.extras import brought_by

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage
    from torch import Tensor

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
SCALED, SIDE = 256, 224
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)[:, None, None]  # of ImageNet's channels, as everybody uses them
_SPREAD = np.array([0.229, 0.224, 0.225], np.float32)[:, None, None]


class PictureFolder:
    """Every picture under a folder, or these of them, as (float32 3×224×224, label)."""

    def __init__(self, folder: Path, paths: Sequence[Path] | None = None) -> None:
        with brought_by("tools"):
            import PIL  # noqa: F401  here, so that no worker has to say it
        self.paths = sorted(_pictures(folder)) if paths is None else list(paths)
        if not self.paths:
            raise FileNotFoundError(
                f"no pictures under {folder}: looked for {', '.join(ENDINGS)} in it and in all folders below. "
                "Give a folder that holds some, or a built-in dataset such as photos."
            )
        self.names = sorted({path.parent.name for path in self.paths})
        self._label_of = {name: label for label, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        path = self.paths[index]
        with Image.open(path) as file:
            return ready(file.convert("RGB")), self._label_of[path.parent.name]


class Again:
    """The first `stored` samples of a dataset, over and over, up to a length of `samples`."""

    def __init__(self, dataset: Any, samples: int, stored: int) -> None:
        self.dataset, self.samples, self.stored = dataset, samples, stored

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.samples:
            raise IndexError(f"sample {index} of {self.samples}")
        return self.dataset[index % self.stored]


def ready(picture: PilImage) -> Tensor:
    """Scaled, cut, normalised."""
    import torch
    from PIL import Image

    factor = SCALED / min(picture.size)
    wide, high = (max(SIDE, round(length * factor)) for length in picture.size)
    scaled = picture.resize((wide, high), Image.Resampling.BILINEAR)
    left, top = (wide - SIDE) // 2, (high - SIDE) // 2
    pixels = np.asarray(scaled.crop((left, top, left + SIDE, top + SIDE)), np.float32).transpose(2, 0, 1)
    return torch.from_numpy(np.ascontiguousarray((pixels / 255.0 - _MEAN) / _SPREAD))


def _pictures(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file()]
