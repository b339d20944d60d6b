"""Samples that are ready: float32 3×224×224 from a memory-mapped file. Nothing to decode, 602 KB to move.

The file holds `stored` samples; it is written under a partial name and renamed, so one that exists is complete. Every
process maps it for itself, privately: torch wants its tensors writable, and the file must stay as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stoker.bench.whole_files import written_whole

if TYPE_CHECKING:
    from torch import Tensor

SHAPE = (3, 224, 224)


class Preprocessed:
    """Samples and labels, `samples` long over a file of `stored`."""

    def __init__(self, path: Path, samples: int, stored: int) -> None:
        self.path, self.samples, self.stored = path, samples, stored
        self._rows: NDArray[np.float32] | None = None

    @property
    def rows(self) -> NDArray[np.float32]:
        """What is stored, as one array over the file."""
        if self._rows is None:
            self._rows = np.memmap(self.path, np.float32, mode="c", shape=(self.stored, *SHAPE))
        return self._rows

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        import torch

        if not 0 <= index < self.samples:
            raise IndexError(f"sample {index} of {self.samples}")
        return torch.from_numpy(self.rows[index % self.stored]), index % 1000


def make_preprocessed(
    folder: Path, samples: int, stored: int, *, progress: Callable[[int, int], None] | None = None
) -> Preprocessed:
    """The dataset, its file written if it is not there yet."""
    path = folder / f"preprocessed-{stored}.f32"
    if not path.exists():
        rng = np.random.default_rng(0)
        with written_whole(path) as partial, partial.open("wb") as file:
            for done in range(1, stored + 1):
                file.write(rng.standard_normal(SHAPE, dtype=np.float32).data)
                if progress is not None:
                    progress(done, stored)
    return Preprocessed(path, samples, stored)
