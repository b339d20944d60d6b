"""Where two batches differ, in words.

Equality of batches is stricter than `==`: a list is not a tuple, int32 is not int64, -0.0 is not 0.0, and NaN is NaN.
Tensors and arrays are compared by their bytes, containers member by member, anything else by `==`; objects whose class
does not say what equal means are compared by their attributes. The first difference found is told with its path, so
that a failing check points into the batch rather than printing two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from stoker.plan import StepBatch


def difference(expected: Any, got: Any, where: str = "batch") -> str | None:
    """The first place where the two differ, as a sentence; None if they are the same to the last bit."""
    if type(expected) is not type(got):
        return f"{where} is {_kind(got)}, expected {_kind(expected)}"
    return _rule_for(expected)(expected, got, where)


def _rule_for(value: Any) -> Callable[[Any, Any, str], str | None]:
    for kind, rule in _RULES:
        if isinstance(value, kind):
            return rule
    by_identity = getattr(type(value), "__eq__", None) is getattr(object, "__eq__", None)
    return _attributes if by_identity and hasattr(value, "__dict__") else _plain


def _tensors(expected: torch.Tensor, got: torch.Tensor, where: str) -> str | None:
    if (expected.dtype, expected.shape) != (got.dtype, got.shape):
        return f"{where} is {_kind(got)}, expected {_kind(expected)}"
    return _unequal(expected, got, where) if _tensor_bytes(expected) != _tensor_bytes(got) else None


def _arrays(expected: np.ndarray[Any, Any], got: np.ndarray[Any, Any], where: str) -> str | None:
    if (expected.dtype, expected.shape) != (got.dtype, got.shape):
        return f"{where} is {_kind(got)}, expected {_kind(expected)}"
    if expected.dtype.hasobject:
        return difference(expected.tolist(), got.tolist(), where)
    return _unequal(expected, got, where) if expected.tobytes() != got.tobytes() else None


def _mappings(expected: Mapping[Any, Any], got: Mapping[Any, Any], where: str) -> str | None:
    if list(expected) != list(got):
        return f"{where} has the keys {list(got)}, expected {list(expected)}"
    found = (difference(value, got[key], f"{where}[{key!r}]") for key, value in expected.items())
    return next(filter(None, found), None)


def _sequences(expected: Any, got: Any, where: str) -> str | None:
    if len(expected) != len(got):
        return f"{where} has {len(got)} members, expected {len(expected)}"
    pairs = enumerate(zip(expected, got, strict=True))
    found = (difference(one, other, f"{where}[{place}]") for place, (one, other) in pairs)
    return next(filter(None, found), None)


def _steps(expected: StepBatch, got: StepBatch, where: str) -> str | None:
    parts, others = ({"data": step.data, "mask": step.mask, "plan": step.plan} for step in (expected, got))
    return _mappings(parts, others, f"vars({where})")


def _attributes(expected: Any, got: Any, where: str) -> str | None:
    return _mappings(vars(expected), vars(got), f"vars({where})")


def _plain(expected: Any, got: Any, where: str) -> str | None:
    same = expected == got or (expected != expected and got != got)  # NaN is the one value that is not itself
    return None if same and repr(expected) == repr(got) else _unequal(expected, got, where)


_RULES: tuple[tuple[Any, Callable[[Any, Any, str], str | None]], ...] = (
    (torch.Tensor, _tensors),
    (np.ndarray, _arrays),
    (Mapping, _mappings),
    ((list, tuple), _sequences),
    (StepBatch, _steps),
)


def _tensor_bytes(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    return plain.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _unequal(expected: Any, got: Any, where: str) -> str:
    return f"{where} is {_short(got)}, expected {_short(expected)}"


def _kind(value: Any) -> str:
    name = type(value).__name__
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return f"a {name} of {value.dtype}, shape {tuple(value.shape)}"
    return f"a {name} ({_short(value)})"


def _short(value: Any, most: int = 120) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
