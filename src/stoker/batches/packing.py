"""Batches that are not rows: pickle protocol 5, with the buffers of tensors and arrays in the slot.

`pack` splits a batch into a small pickle and the large buffers in it; `unpack` joins them again over the slot's
memory, without a copy. Tensors pickle themselves by copying into the pickle, so they are taken apart here: dtype,
shape, strides and one buffer. Strides survive (channels last, a transposed view), except where a view skips most of a
large storage: that becomes contiguous instead of carrying what nobody sees.

Tensors that overlap in one storage (`{"x": x, "first": x[0]}`) overlap in the slot too, so that a write into one is
seen in the other, as where torch moves batches between processes. Arrays are copied one by one, as torch does it. Only
what Stoker's own workers wrote is ever unpickled.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stoker.batches.large import stream_arrays
from stoker.contracts import Bytes
from stoker.nested import is_plain_tensor
from stoker.slots import pays_to_stream

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
    pickler = _dump(batch)
    places, copied, end = [(0, 0)] * len(pickler.buffers), [], len(written) if written is not None else 0
    for patch in _patches(pickler):
        place = None if written is None else _place_in(written, patch)
        if place is None:
            place = end + patch.shift
            end = place + -(-patch.size // _ALIGN) * _ALIGN
            copied += [(piece, place + offset) for piece, offset in patch.pieces]
        for number, offset in patch.buffers:
            places[number] = (place + offset, pickler.buffers[number].nbytes)
    if copied and end:
        memory = slot(end)
        for piece, place in copied:
            _copy(piece, memory[place : place + piece.nbytes])
    return Packed(pickler.stream.getvalue(), tuple(places)), end


class _Patch(NamedTuple):
    """Memory without holes that one or more buffers cover; offsets are from its beginning."""

    size: int
    buffers: list[tuple[int, int]]  # (number, offset) of each
    pieces: list[tuple[memoryview, int]]  # (what to copy, offset): nothing is copied twice
    shift: int = 0  # from a multiple of the alignment: parts of a storage keep theirs


def _dump(batch: Any) -> _Pickler:
    """Pickle a batch; views that skip much and are alone in their memory are made contiguous, in a second go."""
    pickler = _Pickler()
    pickler.dump(batch)
    if not pickler.skipping:
        return pickler
    alone = {patch.buffers[0][0] for patch in _patches(pickler) if len(patch.buffers) == 1}
    if not alone & pickler.skipping:
        return pickler
    again = _Pickler(contiguous=alone & pickler.skipping)
    again.dump(batch)
    return again


def _patches(pickler: _Pickler) -> Iterator[_Patch]:
    """The buffers, those together that overlap in one storage."""
    storages = pickler.storages
    if len(set(storages.values())) == len(storages):  # as in most batches: every tensor has its own
        for number, buffer in enumerate(pickler.buffers):
            yield _Patch(buffer.nbytes, [(number, 0)], [(buffer, 0)])
        return
    spans = [_Span(*_range_of(buffer), number) for number, buffer in enumerate(pickler.buffers)]
    groups: dict[Any, list[_Span]] = {}
    for span in spans:
        storage = pickler.storage_of(span.number)
        groups.setdefault(("array", span.number) if storage is None else storage, []).append(span)
    for group in groups.values():
        yield from _overlapping(sorted(group), pickler.buffers)


class _Span(NamedTuple):
    begin: int
    end: int
    number: int


def _overlapping(spans: list[_Span], buffers: list[memoryview]) -> Iterator[_Patch]:
    """Patches of one storage's spans, which come in order."""
    joined: list[_Span] = []
    for span in spans:
        if joined and span.begin >= max(one.end for one in joined):
            yield _patch(joined, buffers)
            joined = []
        joined.append(span)
    yield _patch(joined, buffers)


def _patch(spans: list[_Span], buffers: list[memoryview]) -> _Patch:
    begin = done = spans[0].begin
    pieces = []
    for span in spans:
        if span.end > done:
            pieces.append((buffers[span.number][done - span.begin :], done - begin))
            done = span.end
    shift = begin % _ALIGN if len(spans) > 1 else 0
    return _Patch(done - begin, [(span.number, span.begin - begin) for span in spans], pieces, shift)


def _range_of(buffer: memoryview) -> tuple[int, int]:
    begin = np.frombuffer(buffer, np.uint8).ctypes.data if buffer.nbytes else 0
    return begin, begin + buffer.nbytes


def _copy(buffer: memoryview, target: Bytes) -> None:
    if not buffer.nbytes:
        return
    source = np.frombuffer(buffer, np.uint8)
    if not (pays_to_stream(buffer.nbytes, rows=1) and stream_arrays([source], target)):
        target[:] = source


def _place_in(memory: Bytes, patch: _Patch) -> int | None:
    """Where in this memory the patch lies, if it does."""
    if not patch.size:
        return None
    place = _range_of(patch.pieces[0][0])[0] - memory.ctypes.data
    return int(place) if place >= 0 and place + patch.size <= len(memory) else None


def unpack(packed: Packed, memory: Bytes) -> Any:
    """The batch again; its tensors and arrays are views of `memory`."""
    buffers = [memory[place : place + size] for place, size in packed.places]
    return pickle.loads(packed.pickled, buffers=buffers)


class _Pickler(pickle.Pickler):
    """Takes tensors apart, and remembers which buffers are of one storage."""

    def __init__(self, contiguous: Set[int] = frozenset()) -> None:
        self.stream = io.BytesIO()
        super().__init__(self.stream, protocol=5, buffer_callback=self._note)
        self.buffers: list[memoryview] = []
        self.storages: dict[int, int] = {}  # of tensors' buffers: where the storage begins
        self.skipping: set[int] = set()  # buffers of views that skip most of what they span
        self._contiguous = contiguous  # such buffers, to be made contiguous
        self._owners: dict[int, Any] = {}  # the tensors, which keep those addresses from being used again

    def storage_of(self, number: int) -> int | None:
        """What a buffer lies in: two storages may begin at the same address, made from one array."""
        owner = self._owners.get(number)
        if owner is None:
            return None
        return int((owner if _is_storage(owner) else owner.untyped_storage())._cdata)

    def _note(self, buffer: pickle.PickleBuffer) -> None:
        self.buffers.append(buffer.raw())

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None:
            return NotImplemented
        if type(value) is torch.Tensor:
            return self._tensor(value)
        if _is_storage(value) and value.device.type == "cpu":  # of tensors of other types
            return self._storage(value)
        if type(value) is torch.TypedStorage:
            return _typed_storage, (value._untyped_storage, str(value.dtype).removeprefix("torch."))
        return NotImplemented

    def _tensor(self, value: Any) -> Any:
        import torch

        if not is_plain_tensor(value):
            return NotImplemented  # takes itself apart into plain tensors, which come here again
        if value.requires_grad:
            return _with_grad, (value.detach(),) if value.is_leaf else _refuse_graph()
        value = value.resolve_conj().resolve_neg()
        name = str(value.dtype).removeprefix("torch.")
        shape = value.shape
        if value.numel() == 0:
            return _empty_tensor, (name, tuple(shape), value.stride())
        number, item_bytes = len(self.buffers), value.element_size()  # of the buffer that comes next
        if number in self._contiguous:
            value = value.contiguous()
        self._owners[number] = value
        self.storages[number] = value.data_ptr() - value.storage_offset() * item_bytes
        strides = value.stride()
        if not value.is_contiguous():
            span = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, strides, strict=True))
            if span * item_bytes > max(2 * value.numel() * item_bytes, _SMALL_BYTES):
                self.skipping.add(number)
            value = torch.as_strided(value, (span,), (1,))
        return _join_tensor, (pickle.PickleBuffer(_array(value)), name, tuple(shape), strides)

    def _storage(self, value: Any) -> Any:
        import torch

        flat: Any = torch.empty(0, dtype=torch.uint8).set_(value).numpy()
        self._owners[len(self.buffers)] = value
        self.storages[len(self.buffers)] = value.data_ptr()
        return _join_storage, (pickle.PickleBuffer(flat),)


def _is_storage(value: Any) -> bool:
    return type(value) is sys.modules["torch"].UntypedStorage


def _array(value: Any) -> Any:
    """A contiguous tensor as an array, whatever its numbers are."""
    try:
        return value.numpy()
    except TypeError:  # NumPy has no such numbers: bfloat16, float8
        import torch

        return value.reshape(-1).view(torch.uint8).numpy()


def _join_storage(raw: Any) -> Any:
    import torch

    memory = raw if isinstance(raw, np.ndarray) else np.frombuffer(raw, np.uint8)
    return torch.from_numpy(memory).untyped_storage()


def _typed_storage(storage: Any, dtype: str) -> Any:
    torch: Any = sys.modules["torch"]
    return torch.TypedStorage(wrap_storage=storage, dtype=getattr(torch, dtype), _internal=True)


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
