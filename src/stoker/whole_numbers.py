"""Whole numbers as arguments: one check, one way to say what is wrong with them."""

from __future__ import annotations

import operator
from typing import Any


def check_whole(name: str, value: Any, least: int | None = None, what: str = "") -> int:
    """The number, if it is whole and at least `least`; NumPy's count as well, `True` does not.

    `what` is said beside the name of the number: what it is a number of.
    """
    unit = f" ({what})" if what else ""
    try:
        whole = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        whole = None
    if whole is None:
        raise TypeError(f"{name} should be a whole number{unit}, but got {value!r} ({type(value).__name__})")
    if least is not None and whole < least:
        raise ValueError(f"{name} should be at least {least}{unit}, but got {value}")
    return whole


def keep_whole(owner: object, name: str, least: int, what: str = "") -> None:
    """Check a field of a frozen dataclass; NumPy's numbers become Python's."""
    object.__setattr__(owner, name, check_whole(name, getattr(owner, name), least, what))
