"""Says what a batch is, so that two loaders can be compared to the last bit: types, dtypes, shapes, strides, bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

Described = Any


def described(value: Any) -> Described:
    """A value made of plain tuples that is equal exactly if the batches are."""
    if isinstance(value, torch.Tensor):
        return _described_tensor(value)
    if isinstance(value, np.ndarray):
        return type(value), value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes()
    if isinstance(value, Mapping):
        return type(value), tuple((key, described(item)) for key, item in value.items())
    if isinstance(value, list | tuple | deque):
        return type(value), tuple(map(described, value))
    return type(value), value


def _described_tensor(value: torch.Tensor) -> Described:
    if value.is_nested:  # its shape holds a symbol that is new for every tensor
        return type(value), str(value.layout), tuple(map(_described_tensor, value.unbind()))
    head = (type(value), str(value.dtype), tuple(value.shape), str(value.layout), value.requires_grad)
    if value.layout is not torch.strided:
        return (*head, _described_tensor(value.detach().to_dense()))
    if value.is_meta:
        return (*head, value.stride())
    plain = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return (*head, value.stride(), plain.view(torch.uint8).numpy().tobytes())


def outcomes(batches: Iterable[Any]) -> list[Described]:
    """Every batch described; an error stands for its batch as type and last line, and iteration goes on after it."""
    found: list[Described] = []
    iterator = iter(batches)
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return found
        except Exception as error:
            found.append(error_said(error))
            if len(found) > 2000:
                raise AssertionError("errors without end") from error
        else:
            found.append(described(batch))


def error_said(error: BaseException) -> Described:
    """Type and last line: what stands after a worker's traceback, or the plain text."""
    lines = str(error).strip().splitlines()
    last = lines[-1] if lines else ""
    name = f"{type(error).__name__}: "
    return "raised", type(error), last.split(name, 1)[1] if name in last else last


def tried(make: Callable[[], Iterable[Any]]) -> list[Described]:
    """As `outcomes`, of a loader whose making may fail."""
    try:
        batches: Iterator[Any] = iter(make())
    except Exception as error:
        return [error_said(error)]
    return outcomes(batches)
