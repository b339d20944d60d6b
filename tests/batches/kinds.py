"""Six samples of every kind that a dataset may give: what `default_collate` takes, and what it refuses."""

from __future__ import annotations

import datetime
import enum
import tempfile
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tests.datasets import Point, record

ROWS = 6
Make = Callable[[int], Any]


class Shade(enum.IntEnum):
    DARK = 0
    LIGHT = 1


class Bag(dict[str, Any]):
    """A dict of the user's own."""


class Row(list[Any]):
    """A list of the user's own."""


class Marked(torch.Tensor):
    """A tensor of the user's own."""


TENSOR_DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16", "complex64",
    "complex128", "complex32", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip
ARRAY_DTYPES = [
    "bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", ">f4", "<U3", "S3", "O",
    "M8[s]", "m8[s]", "longdouble",
]  # fmt: skip


def _tensor(dtype: str, *shape: int) -> Make:
    return lambda i: (torch.arange(12) + i).to(getattr(torch, dtype))[: int(np.prod(shape))].reshape(shape)


def _array(dtype: str, *shape: int) -> Make:
    return lambda i: (np.arange(12) % 2 + i).astype(dtype)[: int(np.prod(shape))].reshape(shape)


def _memmapped(i: int) -> Any:
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, np.float32, "w+", shape=(3, 2))
    mapped[:] = i
    return mapped


def _sparse(i: int) -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.tensor([1.0, float(i)]), (4,), check_invariants=True)


def _nested(i: int) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(i + 1)], layout=torch.jagged)


def _square(i: int) -> torch.Tensor:
    return torch.arange(24.0).reshape(2, 3, 4) + i


KINDS: dict[str, Make] = {
    **{f"tensor {dtype}": _tensor(dtype, 2, 3) for dtype in TENSOR_DTYPES},
    **{f"tensor {dtype} without dimensions": _tensor(dtype) for dtype in ("bool", "float32", "bfloat16", "uint16")},
    **{f"array {dtype}": _array(dtype, 2, 3) for dtype in ARRAY_DTYPES},
    **{f"array {dtype} without dimensions": _array(dtype) for dtype in ("bool", "f4", "i8", "O")},
    **{f"scalar {dtype}": (lambda i, dtype=dtype: _array(dtype, 1)(i)[0]) for dtype in ARRAY_DTYPES},
    "tensor empty": lambda i: torch.empty(0),
    "tensor empty in the middle": lambda i: torch.empty(2, 0, 3, dtype=torch.int16),
    "array empty": lambda i: np.empty((0, 2), np.float32),
    "tensor of one byte": lambda i: torch.tensor([i], dtype=torch.uint8),
    "tensor that needs a gradient": lambda i: torch.ones(2, requires_grad=True),
    "parameter": lambda i: torch.nn.Parameter(torch.ones(2), requires_grad=False),
    "tensor subclass": lambda i: torch.ones(2).as_subclass(Marked),
    "tensor conjugated": lambda i: torch.tensor([1 + 2j, i + 1j]).conj(),
    "tensor negated": lambda i: torch.tensor([1 + 2j, i + 1j]).conj().imag,
    "tensor quantized": lambda i: torch.quantize_per_tensor(torch.ones(3) * i, 0.5, 0, torch.qint8),
    "tensor meta": lambda i: torch.empty(2, device="meta"),
    "tensor channels last": lambda i: _square(i).permute(2, 0, 1),
    "tensor channels last of one channel": lambda i: _square(i)[:, :, :1].permute(2, 0, 1),
    "tensor transposed": lambda i: _square(i)[0].t(),
    "tensor with steps": lambda i: _square(i)[..., ::2],
    "tensor expanded": lambda i: torch.tensor([[float(i)]]).expand(3, 4),
    "tensor from an offset": lambda i: _square(i)[1, 1:],
    "tensor sometimes permuted": lambda i: _square(i).permute(2, 0, 1) if i >= 4 else torch.ones(4, 2, 3),
    "tensor permuted at first": lambda i: _square(i).permute(2, 0, 1) if i < 4 else torch.ones(4, 2, 3),
    "array fortran": lambda i: np.asfortranarray(np.arange(6.0).reshape(2, 3) + i),
    "array transposed": lambda i: (np.arange(24.0).reshape(2, 3, 4) + i).transpose(2, 0, 1),
    "array with steps": lambda i: np.arange(12)[::2] + 0 * i,
    "array backwards": lambda i: (np.arange(12) + i)[::-1],
    "array backwards of one": lambda i: (np.arange(1) + i)[::-1],
    "array sometimes backwards": lambda i: np.arange(3) if i < 5 else np.arange(3)[::-1],
    "array read-only": lambda i: np.frombuffer(bytes([i] * 8), np.uint8).copy().astype("<i4"),
    "array broadcast": lambda i: np.broadcast_to(np.float32(i), (3, 2)).copy(),
    "memmap": _memmapped,
    "masked array": lambda i: np.ma.masked_array([1.0, 2.0, i], [False, True, False]),
    "matrix": lambda i: np.arange(4.0).reshape(2, 2).view(np.matrix),
    "structured array": lambda i: np.zeros(2, [("a", "i4"), ("b", "f4")]),
    "int": lambda i: i - 3,
    "int large": lambda i: 2**62 + i,
    "int of 63 bits": lambda i: 2**63 - 1 - i,
    "int one too large": lambda i: 2**63 + i,
    "int far too large": lambda i: 2**70 + i,
    "int sometimes too large": lambda i: 2**63 if i == 4 else i,
    "float": lambda i: [0.1, -0.0, float("nan"), float("inf"), 1e308, 5e-324][i],
    "bool": lambda i: i % 2 == 0,
    "int or bool": lambda i: i if i % 2 else bool(i),
    "bool or int": lambda i: bool(i) if i % 2 == 0 else i,
    "int or float": lambda i: i if i % 2 == 0 else i + 0.5,
    "float or int": lambda i: i + 0.5 if i % 2 == 0 else i,
    "float in the second half": lambda i: i if i < 2 else i + 0.5,
    "number or tensor": lambda i: i if i % 2 == 0 else torch.tensor(i),
    "tensor or number": lambda i: torch.tensor(i) if i % 2 == 0 else i,
    "tensor or array": lambda i: torch.ones(2) if i % 2 == 0 else np.ones(2, np.float32),
    "array or tensor": lambda i: np.ones(2, np.float32) if i % 2 == 0 else torch.ones(2),
    "array or number": lambda i: np.ones(2) if i % 2 == 0 else 3.0,
    "scalar or number": lambda i: np.float32(i) if i % 2 == 0 else float(i),
    "scalars of several dtypes": lambda i: [np.float32, np.float64, np.int8][i % 3](i),
    "tensors of several dtypes, narrow first": lambda i: torch.ones(2, dtype=[torch.float32, torch.float64][i % 2]),
    "tensors of several dtypes, wide first": lambda i: torch.ones(2, dtype=[torch.float64, torch.float32][i % 2]),
    "tensors of whole numbers or not": lambda i: torch.ones(2, dtype=[torch.int64, torch.float32][i % 2]),
    "arrays of several dtypes": lambda i: np.ones(2, ["f4", "f8"][i % 2]),
    "arrays of whole numbers or not": lambda i: np.ones(2, ["i8", "f4"][i % 2]),
    "complex": lambda i: complex(i, 1),
    "enum": lambda i: Shade(i % 2),
    "text": lambda i: "" if i == 2 else f"{i} äöü \ud800",
    "bytes": lambda i: bytes([i] * i),
    "text or bytes": lambda i: f"{i}" if i % 2 else b"x",
    "text or number": lambda i: f"{i}" if i % 2 else i,
    "number or text": lambda i: i if i % 2 else f"{i}",
    "bytearray": lambda i: bytearray(b"abc"),
    "none": lambda i: None,
    "sometimes none": lambda i: None if i == 3 else i,
    "none inside": lambda i: {"a": i, "b": None},
    "set": lambda i: {i},
    "frozen object": lambda i: datetime.date(2020, 1, i + 1),
    "generator of numbers": lambda i: range(3),
    "tuple": lambda i: (i, float(i), torch.ones(2)),
    "tuple empty": lambda i: (),
    "list": lambda i: [i, [float(i), "x"], ({"deep": np.float16(i)},)],
    "list empty": lambda i: [],
    "dict": lambda i: {"a": i, 3: f"{i}", ("t", 1): [b"x"], None: torch.ones(1)},
    "dict empty": lambda i: {},
    "dict of text only": lambda i: {"a": "x", "b": ("y", ["z", b"z"])},
    "tuple of text": lambda i: ("x", ("y", {"z": "z"})),
    "named tuple": lambda i: Point(i, Point(torch.ones(1) * i, "x")),
    "record": record,
    "ordered dict": lambda i: OrderedDict(b=i, a=torch.ones(4, 3, 2).permute(2, 0, 1)),
    "default dict": lambda i: defaultdict(int, a=i),
    "user dict": lambda i: UserDict(a=i),
    "own dict": lambda i: Bag(a=i, b="x"),
    "own list": lambda i: Row([i, "x"]),
    "deque": lambda i: deque([i, 2]),
    "own containers inside": lambda i: {"bag": Bag(a=i), "row": (Row([i]), OrderedDict(x=1.0))},
    "tuple or list": lambda i: (i, 1) if i % 2 else [i, 1],
    "dict with more keys later": lambda i: {"a": i} if i % 2 == 0 else {"a": i, "b": 1},
    "dict with fewer keys later": lambda i: {"a": i, "b": 1} if i % 2 == 0 else {"a": i},
    "dict with other keys": lambda i: {"a": i} if i % 2 == 0 else {"b": i},
    "dict in another order": lambda i: {"a": i, "b": 1} if i % 2 == 0 else {"b": 1, "a": i},
    "dict in another order from the second batch": lambda i: {"a": i, "b": 1} if i < 4 else {"b": 1, "a": i},
    "tuple longer later": lambda i: (i,) if i % 2 == 0 else (i, 1),
    "ragged tensors": lambda i: torch.ones(2 + i),
    "ragged tensors of other dimensions": lambda i: torch.ones(2) if i % 2 else torch.ones(2, 1),
    "ragged arrays": lambda i: np.ones(2 + i),
    "ragged in the last row": lambda i: torch.ones(2) if i < 5 else torch.ones(3),
    "ragged inside": lambda i: {"a": [torch.ones(2 + i % 2), i]},
    "ragged lists": lambda i: [1] * (i + 1),
    "other shape in the second batch": lambda i: torch.ones(2 if i < 4 else 3),
    "other dtype in the second batch": lambda i: np.ones(2, "f4" if i < 4 else "f8"),
    "other kind in the second batch": lambda i: i if i < 4 else {"x": "y"},
    "sparse": _sparse,
    "nested": _nested,
    "class": lambda i: int,
    "function": lambda i: len,
}
"""Kind of sample -> the sample for row 0 to 5."""
