"""Batches that are not rows: pickle protocol 5, with the buffers of tensors and arrays in the slot.

`pack` splits a batch into a small pickle and the large buffers in it; `unpack` joins them again over the slot's
memory, without a copy. Tensors pickle themselves by copying into the pickle, so they are taken apart here: dtype,
shape, strides and one buffer. Strides survive (channels last, a transposed view), except where a view skips most of a
large storage: that becomes contiguous instead of carrying what nobody sees. Only what Stoker's own workers wrote is
ever unpickled.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stoker.batches.large import stream_arrays
from stoker.contracts import Bytes
from stoker.slots import streams

_ALIGN = 64
_SMALL_BYTES = 65536  # a guess: below this, what a strided view drags along does not matter


@dataclass(frozen=True)
class Packed:
    """A batch taken apart: the pickle, and where each of its buffers lies in the slot."""

    pickled: bytes
    places: tuple[tuple[int, int], ...]  # (offset, bytes) of each buffer


def pack(batch: Any, slot: Callable[[int], Bytes], written: Bytes | None = None) -> tuple[Packed, int]:
    """Take a batch apart, its buffers into the slot; also says how many bytes of the slot they fill.

    `written` is the part of the slot that the batch was written into already: what lies there stays where it is.
    """
    buffers: list[memoryview] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=lambda buffer: buffers.append(buffer.raw())).dump(batch)
    places, copied, end = [], [], len(written) if written is not None else 0
    for buffer in buffers:
        place = _place_in(written, buffer)
        if place is None:
            place, end = end, end + -(-buffer.nbytes // _ALIGN) * _ALIGN
            copied.append((buffer, place))
        places.append((place, buffer.nbytes))
    if copied and end:
        memory = slot(end)
        for buffer, place in copied:
            _copy(buffer, memory[place : place + buffer.nbytes])
    return Packed(stream.getvalue(), tuple(places)), end


def _copy(buffer: memoryview, target: Bytes) -> None:
    if not buffer.nbytes:
        return
    source = np.frombuffer(buffer, np.uint8)
    if not (streams(buffer.nbytes, rows=1) and stream_arrays([source], target)):
        target[:] = source


def _place_in(memory: Bytes | None, buffer: memoryview) -> int | None:
    """Where in this memory the buffer lies, if it does."""
    if memory is None or not buffer.nbytes:
        return None
    place = np.frombuffer(buffer, np.uint8).ctypes.data - memory.ctypes.data
    return int(place) if place >= 0 and place + buffer.nbytes <= len(memory) else None


def unpack(packed: Packed, memory: Bytes) -> Any:
    """The batch again; its tensors and arrays are views of `memory`."""
    buffers = [memory[place : place + size] for place, size in packed.places]
    return pickle.loads(packed.pickled, buffers=buffers)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor:
            return NotImplemented
        if value.layout is not torch.strided or value.device.type != "cpu" or value.is_nested or value.is_quantized:
            return NotImplemented  # takes itself apart into plain tensors, which come here again
        if value.requires_grad:
            return _with_grad, (value.detach(),) if value.is_leaf else _refuse_graph()
        return _tensor_parts(value)


def _tensor_parts(value: Any) -> tuple[Any, ...]:
    import torch

    value = value.resolve_conj().resolve_neg()
    if value.numel() == 0:
        return _empty_tensor, (str(value.dtype).removeprefix("torch."), tuple(value.shape), value.stride())
    span = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    count = value.numel()
    if span * value.element_size() > max(2 * count * value.element_size(), _SMALL_BYTES):
        value, span = value.contiguous(), count
    flat = torch.as_strided(value, (span,), (1,))
    raw: Any = flat.view(torch.uint8).numpy()
    name = str(value.dtype).removeprefix("torch.")
    return _join_tensor, (pickle.PickleBuffer(raw), name, tuple(value.shape), value.stride())


def _join_tensor(raw: Any, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    import torch

    memory = raw if isinstance(raw, np.ndarray) else np.frombuffer(raw, np.uint8)
    flat = torch.from_numpy(memory).view(getattr(torch, dtype))
    return flat.as_strided(shape, strides)


def _empty_tensor(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    import torch

    return torch.empty_strided(shape, strides, dtype=getattr(torch, dtype))


def _with_grad(value: Any) -> Any:
    return value.requires_grad_()


def _refuse_graph() -> Any:
    raise RuntimeError(
        "a batch holds a tensor that needs a gradient and is the result of a computation; such tensors cannot leave a "
        "worker. Detach it in the dataset or in collate_fn, or use num_workers=0."
    )
