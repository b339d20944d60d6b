"""Small records as bytes: one tag byte, then the value; sizes and counts are one byte, or 255 and eight bytes.

For the items of a SharedList that are not all of one kind. Nothing that is read here can run code, as a pickle could:
only text, bytes, numbers, None, and tuples, lists and dicts of those come out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import chain
from typing import Any, NoReturn

_MAX_DEPTH = 64  # of nested records, far below Python's recursion limit, so that what was packed can be read
_INT64 = struct.Struct("=q")
_FLOAT64 = struct.Struct("=d")


def refuse_type(place: int, item: object) -> NoReturn:
    kind = f"{type(item).__module__}.{type(item).__qualname__}".removeprefix("builtins.")
    raise TypeError(
        f"item {place} of a SharedList holds a {kind}, which cannot be packed. Supported, without subclasses: str, "
        "bytes, int, float, bool, None, and tuples, lists and dicts of those. Convert it first: str(path) for a path, "
        "array.tolist() or scalar.item() for NumPy and torch, tuple(record) for a named tuple."
    )


def encode_item(item: object, place: int) -> bytes:
    parts: list[bytes] = []
    _encode(item, parts.append, place, 0)
    return b"".join(parts)


def _encode(item: Any, put: Callable[[bytes], None], place: int, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"item {place} of a SharedList is nested deeper than {_MAX_DEPTH} levels, or contains itself")
    tag = TAGS.get(type(item))
    if tag is None:
        refuse_type(place, item)
    if tag in b"tld":
        put(tag + _size(len(item)))
        for part in chain.from_iterable(item.items()) if tag == b"d" else item:
            _encode(part, put, place, depth + 1)
    else:
        put(_encode_scalar(tag, item))


def _encode_scalar(tag: bytes, item: Any) -> bytes:
    if tag == b"f":
        return tag + _FLOAT64.pack(item)
    if tag == b"c":
        return _CONSTANTS[item]
    raw: bytes = item
    if tag == b"s":
        raw = item.encode("utf-8", "surrogatepass")
    elif tag == b"i":
        raw = item.to_bytes(item.bit_length() // 8 + 1, "little", signed=True)
    return tag + _size(len(raw)) + raw


def _size(size: int) -> bytes:
    return bytes((size,)) if size < 255 else b"\xff" + _INT64.pack(size)


def decode(data: bytes, at: int) -> tuple[Any, int]:
    """The value that starts at `at`, and where the next one starts."""
    tag, at = data[at], at + 1
    if tag in _VALUES:
        return _VALUES[tag], at
    if tag == _FLOAT_TAG:
        return _FLOAT64.unpack_from(data, at)[0], at + 8
    size, at = data[at], at + 1
    if size == 255:
        size, at = _INT64.unpack_from(data, at)[0], at + 8
    if tag in _RECORD_TAGS:
        return _decode_record(tag, size, data, at)
    return _SCALARS[tag](data[at : at + size]), at + size


def _decode_record(tag: int, size: int, data: bytes, at: int) -> tuple[Any, int]:
    parts = []
    for _ in range(2 * size if tag == _DICT_TAG else size):
        part, at = decode(data, at)
        parts.append(part)
    if tag == _DICT_TAG:
        return dict(zip(parts[::2], parts[1::2], strict=True)), at
    return (tuple(parts) if tag == _TUPLE_TAG else parts), at


TAGS: dict[type, bytes] = {
    str: b"s", bytes: b"b", int: b"i", float: b"f", bool: b"c", type(None): b"c", tuple: b"t", list: b"l", dict: b"d",
}  # fmt: skip
_CONSTANTS: dict[object, bytes] = {None: b"N", True: b"T", False: b"F"}
_VALUES = {ord(tag): value for value, tag in _CONSTANTS.items()}
_FLOAT_TAG, _TUPLE_TAG, _DICT_TAG, _RECORD_TAGS = ord("f"), ord("t"), ord("d"), b"tld"
_SCALARS: dict[int, Callable[[bytes], Any]] = {
    ord("s"): lambda raw: raw.decode("utf-8", "surrogatepass"),
    ord("b"): bytes,
    ord("i"): lambda raw: int.from_bytes(raw, "little", signed=True),
}
