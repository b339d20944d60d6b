"""A keyed permutation of [0, n) that needs no table: position → index by arithmetic alone, and back.

A shuffled list of ten million numbers takes seconds and hundreds of MB (benchmarks/order.py shows torch's), and has
to be made again after a restart. Here the index at one position is computed when it is asked for. The permutation is
a Feistel network over a rectangle of a rows and b columns, a·b ≥ n, with additions modulo a and b instead of XOR:

    x = row · b + column
    repeat:  row ← (row + hash(column)) mod a;  then the same with row and column in each other's place

Each round can be undone whatever the hash is, so the whole is a bijection of [0, a·b). Results outside [0, n) are sent
through again until they come out inside (cycle walking), which keeps it a bijection, of [0, n). Because a ≈ b ≈ √n the
rectangle is larger than n by about √n only, so one sample in √n walks twice; a power of two could be larger by half,
and a batch would take as many passes as its unluckiest sample.

a is even, because moves modulo two odd numbers reach even permutations only. Six rounds, because with four, samples
that lie b positions apart (the same column) can be told from random ones: a chi-square test of their distance is off by
10 to 300 standard deviations for n from 2^20 to 2^24, with six by none. Small n gets more rounds, since few rows mean
few hash values to differ in; `_rounds_for` has where tests of pairs and triples over 400 000 keys saw nothing any more.

`stream` gives independent permutations under one key, another for each element if it is an array: that is how
thousands of windows of a block shuffle are served by one vectorised call. n goes up to 2^63: a and b fit 32 bits,
nothing overflows 64.

**Pinned** by tests/golden/order_permutation.json. Changing anything here changes the order of every run under way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy import add, bitwise_xor, multiply, remainder, right_shift  # by name: looked up 50 times a batch

from stoker.order.mixer import Key, Words, fold, mix_words

Numbers = npt.NDArray[np.int64]
Streams = int | Numbers | None

MOST = 1 << 63

_SPREAD = np.array(0x9E3779B97F4A7C15, dtype=np.uint64)
_HALF = np.array(32, dtype=np.uint64)
# A round takes the top 40 bits of its hash and leaves the low ones, which a multiplication hardly mixes. With n = 10^9
# a remainder is then likelier than another by 1 part in 2^25, with n = 2^63 by 1 in 2^8, before the other rounds.
_LOW = np.array(24, dtype=np.uint64)


class _Rectangle(NamedTuple):
    n: Words
    rows: Words
    columns: Words


class _Round(NamedTuple):
    before: Words
    factor: Words


_Step = Callable[[Words, _Rectangle, tuple[_Round, ...], Words | None], Words]


def permute(positions: npt.ArrayLike, n: int, key: Key, stream: Streams = None) -> Numbers:
    """The index at each position. `stream` (one number, or one for each position) chooses among permutations."""
    return _walk(_forward, positions, n, key, stream)


def unpermute(indices: npt.ArrayLike, n: int, key: Key, stream: Streams = None) -> Numbers:
    """The position of each index: what `permute` would take to give it."""
    return _walk(_backward, indices, n, key, stream)


def permute_by_size(positions: Numbers, sizes: Numbers, key: Key, streams: Numbers) -> Numbers:
    """`permute` where each element has its own n. Fast when there are few different sizes."""
    if sizes.size and (sizes == sizes[0]).all():  # a batch inside one window, nearly always
        return permute(positions, int(sizes[0]), key, streams)
    out = np.empty_like(positions)
    for size in np.unique(sizes):
        chosen = sizes == size
        out[chosen] = permute(positions[chosen], int(size), key, streams[chosen])
    return out


def as_positions(positions: npt.ArrayLike, n: int) -> Numbers:
    """The positions as int64, all of them inside [0, n), or a ValueError that names the first that is not."""
    numbers = np.asarray(positions, dtype=np.int64)
    # Seen as unsigned, a negative number is a huge one: one comparison finds both ends.
    if numbers.size and int(numbers.view(np.uint64).max()) >= n:
        wrong = numbers[numbers.view(np.uint64) >= n].flat[0]
        raise ValueError(f"position {wrong} is outside of an order of {n} samples: positions go from 0 to {n - 1}")
    return numbers


def _walk(step: _Step, numbers: npt.ArrayLike, n: int, key: Key, stream: Streams) -> Numbers:
    inside = as_positions(numbers, n)
    if inside.size == 0:
        return inside.copy()
    rectangle, rounds = _rectangle(n), _rounds(key, _rounds_for(n))
    tweak = _tweak(stream, inside)
    out = step(inside.reshape(-1).view(np.uint64), rectangle, rounds, tweak)
    left = (out >= rectangle.n).nonzero()[0]
    while left.size:
        out[left] = step(out[left], rectangle, rounds, tweak if tweak is None else tweak[left])
        left = left[out[left] >= rectangle.n]
    return out.view(np.int64).reshape(inside.shape)


def _forward(numbers: Words, rectangle: _Rectangle, rounds: tuple[_Round, ...], tweak: Words | None) -> Words:
    row = numbers // rectangle.columns
    column = numbers - row * rectangle.columns
    size, other = rectangle.rows, rectangle.columns
    hashed, shifted = np.empty_like(numbers), np.empty_like(numbers)
    for constants in rounds:
        _hash(column, constants, tweak, hashed, shifted)
        add(row, hashed, row)
        remainder(row, size, row)
        row, column, size, other = column, row, other, size
    return row * rectangle.columns + column  # the number of rounds is even, so rows are rows again


def _backward(numbers: Words, rectangle: _Rectangle, rounds: tuple[_Round, ...], tweak: Words | None) -> Words:
    row = numbers // rectangle.columns
    column = numbers - row * rectangle.columns
    size, other = rectangle.rows, rectangle.columns
    hashed, shifted = np.empty_like(numbers), np.empty_like(numbers)
    for constants in reversed(rounds):
        row, column, size, other = column, row, other, size
        _hash(column, constants, tweak, hashed, shifted)
        remainder(hashed, size, hashed)
        add(row, size - hashed, row)
        remainder(row, size, row)
    return row * rectangle.columns + column


def _hash(numbers: Words, constants: _Round, tweak: Words | None, hashed: Words, shifted: Words) -> None:
    """Hash into `hashed`, with `shifted` as scratch: in short arrays an allocation costs as much as the work."""
    before, factor = constants
    if tweak is None:
        bitwise_xor(numbers, before, hashed)
    else:
        add(numbers, tweak, hashed)
        bitwise_xor(hashed, before, hashed)
    multiply(hashed, _SPREAD, hashed)
    right_shift(hashed, _HALF, shifted)
    bitwise_xor(hashed, shifted, hashed)
    multiply(hashed, factor, hashed)
    right_shift(hashed, _LOW, hashed)


def _tweak(stream: Streams, numbers: Numbers) -> Words | None:
    if stream is None:
        return None
    streams = np.broadcast_to(np.asarray(stream, dtype=np.int64), numbers.shape).reshape(-1)
    return mix_words(streams.astype(np.uint64))


def _rounds_for(n: int) -> int:
    return 16 if n < 64 else 10 if n < 1024 else 6


@functools.lru_cache(maxsize=256)
def _rectangle(n: int) -> _Rectangle:
    if n > MOST:
        raise ValueError(f"an order can hold at most 2**63 samples, because indices are 64-bit, but got n={n}")
    rows = math.isqrt(n - 1) + 1
    rows += rows % 2
    columns = -(-n // rows)
    return _Rectangle(*(np.array(value, dtype=np.uint64) for value in (n, rows, columns)))


@functools.lru_cache(maxsize=256)
def _rounds(key: Key, count: int) -> tuple[_Round, ...]:
    words = [fold(key.seed, key.epoch, key.purpose, number) for number in range(2 * count)]
    pairs = zip(words[::2], words[1::2], strict=True)
    return tuple(_Round(np.array(a, dtype=np.uint64), np.array(b | 1, dtype=np.uint64)) for a, b in pairs)
