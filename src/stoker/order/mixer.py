"""The one source of chance in the room: a 64-bit mixer, and keys made with it.

Everything random here (permutations, rotations, a sample's generator) is a pure function of a few whole numbers, so
that two machines, or one machine before and after a restart, agree without exchanging anything. The function is the
finaliser of SplitMix64: two multiplications and three shifts, a bijection of 64-bit words, passing the usual
statistical batteries. It is not cryptography: whoever sees an order can work out the seed.

A key is folded word by word, `h ← mix(h ^ word)`. Each fold is a bijection of the word, so keys that differ in their
last word only never collide. `Purpose` is always one of the words: the shuffle of blocks and the shuffle inside a
window never share a key, whatever the seed and the epoch.

**Pinned.** Numbers that come out of here are written into checkpoints as promises. The constants, the order of the
words and the members of `Purpose` never change; a new need gets a new member.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stoker.whole_numbers import check_whole

Words = npt.NDArray[np.uint64]

WORD = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


class Purpose(enum.IntEnum):
    """What a key is for. The numbers are pinned."""

    SHUFFLE = 1
    BLOCKS = 2
    WINDOW = 3
    ROTATION = 4
    SAMPLE = 5
    LEFTOVERS = 6
    RESERVE = 7


class Key(NamedTuple):
    """Whose chance it is: a run's seed, an epoch of it, and the purpose."""

    seed: int
    epoch: int
    purpose: Purpose


def mix(word: int) -> int:
    """A bijection of 64-bit words that looks like a random one."""
    word = (word + _STEP) & WORD
    word = ((word ^ (word >> 30)) * _FIRST) & WORD
    word = ((word ^ (word >> 27)) * _SECOND) & WORD
    return word ^ (word >> 31)


def mix_words(words: Words) -> Words:
    """`mix` of every element."""
    out = words + _word(_STEP)
    out ^= out >> _word(30)
    out *= _word(_FIRST)
    out ^= out >> _word(27)
    out *= _word(_SECOND)
    return out ^ (out >> _word(31))


def fold(*words: int) -> int:
    """One 64-bit word out of several, in which the order of the words matters."""
    folded = 0
    for word in words:
        folded = mix(folded ^ (word & WORD))
    return folded


def as_word(number: int) -> int:
    """The lowest 64 bits of a number: chance is keyed by words, and torch's seeds may be negative."""
    return number & WORD


def check_seed(seed: int) -> int:
    """The seed itself, if it is a whole number that fits 64 bits: two seeds that differ must not mean the same."""
    return _check_word("seed", seed)


def check_epoch(epoch: int) -> int:
    """The epoch itself, if it is a whole number from 0."""
    return _check_word("epoch", epoch)


def _check_word(name: str, value: int) -> int:
    word = check_whole(name, value)
    if not 0 <= word <= WORD:
        raise ValueError(f"{name} should be from 0 to 2**64 - 1, but got {word}")
    return word


def _word(value: int) -> Words:
    # An array without dimensions: a NumPy scalar costs twice as much in an operation with a short array.
    return np.array(value, dtype=np.uint64)
