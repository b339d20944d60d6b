"""A set of named options that can be frozen: what `Options` and each of its namespaces are.

Values live in a dictionary that knows its keys and their types: an unknown key or a value of another type is refused at
once, not when a model is built hours later. They are read and written as attributes (`options.device_iterations`).
Names that begin with an underscore are ordinary attributes.

Once used by a loader or a model, the set is frozen: whoever changes it afterwards would change nothing, so it raises. A
deep copy thaws.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from stoker.poptorch.errors import Misuse, OptionError
from stoker.whole_numbers import check_whole

S = TypeVar("S", bound="Settings")


class Settings:
    """Named options with fixed keys and types."""

    _values: dict[str, Any]
    _is_frozen: bool

    def __init__(self, **defaults: Any) -> None:
        self.__dict__.update(_values=defaults, _is_frozen=False)

    def set(self: S, **changes: Any) -> S:
        """Change options that exist; the new value has the type of the old one."""
        self._check_thawed()
        for name, value in changes.items():
            if name not in self._values:
                raise Misuse(f"there is no option {name!r} here; there are {', '.join(sorted(self._values))}")
            _check_type(name, value, self._values[name])
            self._values[name] = value
        return self

    def createOrSet(self: S, **changes: Any) -> S:
        """The same, for options that need not exist yet."""
        self._check_thawed()
        for name, value in changes.items():
            if name in self._values:
                _check_type(name, value, self._values[name])
            self._values[name] = value
        return self

    def exists(self, option: str) -> bool:
        """Whether an option is there: some are only after they were set, as `random_seed`."""
        return option in self._values

    def deleteIfExists(self, option: str) -> None:
        """Forget an option."""
        self._check_thawed()
        self._values.pop(option, None)

    def toDict(self) -> dict[str, Any]:
        """All options by name."""
        return dict(self._values)

    def freeze(self) -> None:
        """Refuse changes from now on: somebody uses these options."""
        for part in (self, *self._parts()):
            part.__dict__["_is_frozen"] = True

    def _parts(self) -> list[Settings]:
        return [value for value in self.__dict__.values() if isinstance(value, Settings)]

    def _check_thawed(self) -> None:
        if self._is_frozen:
            raise OptionError(
                "these options are frozen: a loader or a model uses them already and would not see the change. Set "
                "them before, or change a copy: options.clone()."
            )

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name.startswith("_") or name not in values:
            raise OptionError(f"there is no option {name!r} in {type(self).__name__}")
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":  # popdist puts classes of its own over the namespaces
            object.__setattr__(self, name, value)
            return
        self._check_thawed()
        if name.startswith("_"):
            self.__dict__[name] = value
        else:
            self.set(**{name: value})

    def __deepcopy__(self: S, memo: dict[int, Any]) -> S:
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        twin.__dict__["_is_frozen"] = False
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __call__(self, option: str) -> Any:
        return getattr(self, option)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


def _check_type(name: str, value: Any, old: Any) -> None:
    if isinstance(value, type(old)) and not (isinstance(value, bool) and not isinstance(old, bool)):
        return
    raise Misuse(
        f"{name} should be of type {type(old).__name__}, as its present value {old!r} is, but got {value!r} "
        f"({type(value).__name__})"
    )


def check_flag(name: str, value: Any) -> bool:
    """The value if it is True or False; else an error that names it."""
    if not isinstance(value, bool):
        raise Misuse(f"{name} should be True or False, but got {value!r}")
    return value


def check_count(name: str, value: Any, least: int = 1) -> int:
    """The value if it is a whole number of at least `least`; else an error that names it."""
    try:
        return check_whole(name, value, least)
    except (TypeError, ValueError) as error:
        raise Misuse(str(error)) from None
