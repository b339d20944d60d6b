"""Batches that are views of their slots, by every kind of crew, and a look at all that they hold."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.datasets import Made, picture

import stoker
from stoker import Workers

CREWS = {
    "inline": Workers(),
    "threads": Workers(processes=0, threads=3),
    "processes": Workers(processes=2, start_method="fork"),
    "lanes": Workers(processes=2, threads=3, start_method="fork", share="rows"),
    "whole batches": Workers(processes=2, start_method="fork", share="batches"),
}
each_crew = pytest.mark.parametrize("workers", CREWS.values(), ids=CREWS)


def pictures(count: int, workers: Workers, **more: Any) -> stoker.DataLoader[Any]:
    return stoker.DataLoader(Made(count, picture), 4, workers=workers, **more)


def firsts(batch: torch.Tensor) -> list[int]:
    """The value of each row, after a look at every byte of it."""
    assert all(row.eq(row.flatten()[0]).all() for row in batch)
    return [int(row.flatten()[0]) for row in batch]
