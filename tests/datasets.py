"""Datasets that a spawned worker can import."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from tests.plain import Made as Made
from tests.plain import number as number
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class Point(NamedTuple):
    x: Any
    y: Any


def picture(index: int) -> torch.Tensor:
    """48 KiB: large enough to be handed out as a view of its slot."""
    return torch.full((3, 64, 64), float(index))


def record(index: int) -> dict[str, Any]:
    """Every kind of leaf at once."""
    return {
        "image": np.full((2, 3), index, np.uint8),
        "pair": (torch.arange(index, index + 4, dtype=torch.float32), float(index)),
        "label": index % 3,
        "name": f"sample {index}",
        "point": Point(index, [np.float32(index), b"%d" % index]),
        "odd": bool(index % 2),
    }


def ragged_every_fifth(index: int) -> torch.Tensor | list[int]:
    """Batches of which some are misfits."""
    return torch.full((3,), index) if index % 5 else [index, index, index]


def text_or_number(index: int) -> tuple[str, int]:
    return f"{index:x}" * (index % 4), index


class Numbers(IterableDataset[int]):
    """Each worker's share of range(length), which is cut so that workers end at different times."""

    def __init__(self, length: int, told: int | None = None) -> None:
        self.length, self.told = length, told

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        if info is None:
            return iter(range(self.length))
        shares = [0] + [self.length * (worker + 1) ** 2 // info.num_workers**2 for worker in range(info.num_workers)]
        return iter(range(shares[info.id], shares[info.id + 1]))


class SizedNumbers(Numbers):
    def __len__(self) -> int:
        return self.length if self.told is None else self.told


class Awaited(Dataset[Any]):
    """Samples that can only be awaited."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    async def __agetitem__(self, index: int) -> torch.Tensor:
        await asyncio.sleep(0)
        return torch.full((3,), index)


class AwaitedOrNot(Awaited):
    """Samples that can be awaited, or just asked for."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), index)


class InRuns(Made):
    """Asked for many samples at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.make(index) for index in indices]


class FillsRows(Dataset[Any]):
    """Fills a row itself; `__getitem__` gives equal samples, marked so that a test can tell who made which."""

    def __init__(self, length: int, dtype: torch.dtype = torch.float32) -> None:
        self.length, self.dtype = length, dtype

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": torch.full((2, 2), float(index), dtype=self.dtype), "label": index, "by": 0}

    def read_into(self, index: int, row: dict[str, Any]) -> None:
        row["image"][...] = index
        row["label"][...] = index
        row["by"][...] = 1


class FillsNamedRows(FillsRows):
    """Its samples hold text, which no row can."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**super().__getitem__(index), "name": f"sample {index}"}


class RefusesSix(FillsRows):
    """One of its samples cannot be had, whichever way."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 6:
            raise ValueError("six cannot be loaded")
        return super().__getitem__(index)

    def read_into(self, index: int, row: dict[str, Any]) -> None:
        if index == 6:
            raise ValueError("six cannot be loaded")
        super().read_into(index, row)
