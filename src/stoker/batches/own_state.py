"""States of the user's own datasets, samplers and iterators: who has one, and how it is asked for.

Other libraries have a `state_dict` too, and mean something else by it (litdata's and MosaicML's take arguments), or
raise because nobody has called what they expect to be called first. Torch's loader never asks, so asking must not harm
a run: only what can be called without arguments counts as a state, and an error of the call is kept in the state's
place, as `Untold`, until somebody wants to save it.

From a worker process a state travels `Sealed`: pickled by itself, so that one which cannot be pickled is known there,
and opened by whoever saves it and by nobody else.
"""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import dataclass
from typing import Any

from stoker.errors import StateError


@dataclass(frozen=True)
class Untold:
    """In the place of a state that could not be had: why."""

    why: str


@dataclass(frozen=True)
class Sealed:
    """A state, pickled."""

    data: bytes


def has_state(thing: Any) -> bool:
    """Whether this can save and restore its own place, without being told more."""
    save, load = getattr(thing, "state_dict", None), getattr(thing, "load_state_dict", None)
    return callable(save) and callable(load) and _takes(save, 0) and _takes(load, 1)


def state_of(thing: Any) -> Any:
    """A copy of its state now, or why there is none."""
    try:
        return copy.deepcopy(thing.state_dict())
    except Exception as error:  # the user's code, or a state that cannot be copied
        return _untold(thing, error)


def restore(thing: Any, state: Any) -> None:
    """Bring it back to its place; StateError, with its own words, if it cannot take the state."""
    try:
        thing.load_state_dict(state)
    except Exception as error:  # the user's code, given what may have been damaged
        raise StateError(
            f"{type(thing).__name__} refused its part of the state ({type(error).__name__}: {error}): it was damaged, "
            "or is of another version of that class"
        ) from error


def sealed_state_of(thing: Any) -> Sealed | Untold:
    """The same, ready to travel to another process."""
    try:
        return Sealed(pickle.dumps(thing.state_dict(), 5))
    except Exception as error:  # the user's code, or a state that cannot be pickled
        return _untold(thing, error)


def sealed(state: Any, thing: Any) -> Sealed | Untold:
    """A state that was had already, ready to travel to another process."""
    try:
        return Sealed(pickle.dumps(state, 5))
    except Exception as error:
        return _untold(thing, error)


def opened(state: Any) -> Any:
    """A state as it was before it was sealed."""
    return pickle.loads(state.data) if isinstance(state, Sealed) else state


def check_told(state: Any) -> None:
    """Refuse a state, or one with parts, that could not be had."""
    for part in (state, *(state.values() if isinstance(state, dict) else ())):
        if isinstance(part, Untold):
            raise StateError(
                f"there is no state to save: {part.why}. Mend that state_dict, or remove it: without one the loader "
                "finds the place again by itself."
            )


def _untold(thing: Any, error: Exception) -> Untold:
    return Untold(f"the state of {type(thing).__name__} could not be had ({type(error).__name__}: {error})")


def _takes(function: Any, count: int) -> bool:
    """Whether it can be called with so many arguments; what does not say so is believed."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # no signature, as some functions of C have none
        return True
    return True
