"""Settings that `stoker tune` found, kept in a small TOML file that `DataLoader(dataset, tuned="stoker.toml")` reads.

    format = 1
    [loader]     what to pass: batch_size, processes, threads, start_method, share, prefetch_factor
    [machine]    where it was found: cores
    [found]      for people: by which command, how fast; nothing reads it

A file decides or an argument does, never both: an argument that says something else than the file is refused with both
values, because whichever won, somebody would be surprised. Equal ones are fine. Keys that are not known are refused
too: a misspelt `proceses` that is passed over would be looked for long. A machine with other cores than the file's is
no error (the settings work, and may still be good): it is logged.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from stoker.auto.processor import cores
from stoker.errors import TunedError
from stoker.options import SHARES, START_METHODS, Workers

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same reader, from PyPI
    import tomli as tomllib

log = logging.getLogger("stoker.tuned")

FORMAT = 1
_ONE_OF = {"start_method": START_METHODS, "share": SHARES}
_LEAST = {"batch_size": 1, "processes": 0, "threads": 0, "prefetch_factor": 1, "cores": 1}


@dataclass(frozen=True)
class Tuned:
    """What a file says. None: not said, so that the argument or its default holds."""

    processes: int
    threads: int = 0
    start_method: str | None = None
    share: str | None = None
    prefetch_factor: int | None = None
    batch_size: int | None = None
    cores: int | None = None
    found: Mapping[str, str | int | float] = field(default_factory=dict)

    @property
    def workers(self) -> Workers:
        return Workers(self.processes, self.threads, self.start_method, self.share or "auto")  # type: ignore[arg-type]

    def to_toml(self) -> str:
        """The text of the file."""
        loader = {name: getattr(self, name) for name in _LOADER if getattr(self, name) is not None}
        machine = {} if self.cores is None else {"cores": self.cores}
        tables = (("loader", loader), ("machine", machine), ("found", self.found))
        return "\n".join(
            [
                '# Found by `stoker tune`. Use it: stoker.DataLoader(dataset, tuned="stoker.toml")',
                f"format = {FORMAT}",
                *(_table(name, values) for name, values in tables if values),
                "",
            ]
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all."""
        partial = Path(f"{os.fspath(path)}.partial")
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(self.to_toml(), encoding="utf-8")
        partial.replace(path)


_LOADER = ("batch_size", "processes", "threads", "start_method", "share", "prefetch_factor")


def _table(name: str, values: Mapping[str, Any]) -> str:
    return "\n".join(("", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())))


def _value(value: str | int | float) -> str:
    """JSON's strings and numbers are TOML's, but for the delete character, which TOML wants escaped."""
    if isinstance(value, str):
        value = value.encode(errors="replace").decode()  # names of files may hold what no encoding knows
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007F")


def read_tuned(path: str | os.PathLike[str]) -> Tuned:
    """What the file says; TunedError, with what to do, if it cannot be used."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TunedError(
            f"tuned={os.fspath(path)!r}: there is no such file (looked in {Path.cwd()}). "
            "`stoker tune TARGET` makes one."
        ) from None
    except (OSError, ValueError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise TunedError(f"tuned={os.fspath(path)!r} cannot be read as TOML: {error}") from None
    try:
        return _checked(content)
    except ValueError as error:
        raise TunedError(f"tuned={os.fspath(path)!r}: {error}") from None


def _checked(content: dict[str, Any]) -> Tuned:
    if content.get("format") != FORMAT:
        raise ValueError(
            f"format is {content.get('format')!r}, and this Stoker reads {FORMAT}; `stoker tune` writes it anew"
        )
    _known("the file", content, ("format", "loader", "machine", "found"))
    loader, machine, found = (_a_table(content, name) for name in ("loader", "machine", "found"))
    _known("[loader]", loader, _LOADER)
    _known("[machine]", machine, ("cores",))
    if "processes" not in loader:
        raise ValueError("[loader] has no processes, the number of worker processes (0: none)")
    for name, value in (loader | machine).items():
        _check_value(name, value)
    return Tuned(**loader, **machine, found=found)


def _a_table(content: dict[str, Any], name: str) -> dict[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"{name} should be a table, [{name}], but is {table!r}")
    return table


def _known(where: str, table: dict[str, Any], names: tuple[str, ...]) -> None:
    unknown = [name for name in table if name not in names]
    if unknown:
        raise ValueError(f"{where} has {', '.join(map(repr, unknown))}, which is not among {', '.join(names)}")


def _check_value(name: str, value: Any) -> None:
    if name in _ONE_OF:
        if value not in _ONE_OF[name]:
            raise ValueError(f"{name} should be one of {', '.join(_ONE_OF[name])}, but is {value!r}")
    elif type(value) is not int or value < _LEAST[name]:
        raise ValueError(f"{name} should be a whole number from {_LEAST[name]}, but is {value!r}")


class Arguments(Protocol):
    """The arguments of a loader that a file may decide, as they were given."""

    @property
    def batch_size(self) -> int | None: ...

    @property
    def num_workers(self) -> int | str: ...

    @property
    def workers(self) -> Workers | None: ...

    @property
    def prefetch_factor(self) -> int | None: ...

    @property
    def multiprocessing_context(self) -> Any: ...

    @property
    def batch_sampler(self) -> Any: ...


def decided_by(path: str | os.PathLike[str], given: Arguments) -> tuple[int | None, Workers, int | None]:
    """batch_size, workers and prefetch_factor, as the file says; TunedError if the arguments say otherwise."""
    tuned = read_tuned(path)
    _check_who_loads(os.fspath(path), tuned, given)
    if tuned.cores is not None and tuned.cores != cores():
        log.info(
            "%s was tuned on %d cores, here are %d: `stoker tune` again may find better", path, tuned.cores, cores()
        )
    size = given.batch_size
    if tuned.batch_size is not None and given.batch_sampler is None:  # a batch_sampler makes batches of its own size
        _agree(os.fspath(path), "batch_size", tuned.batch_size, size, default=1)
        size = tuned.batch_size
    _agree(os.fspath(path), "prefetch_factor", tuned.prefetch_factor, given.prefetch_factor, default=None)
    return size, tuned.workers, tuned.prefetch_factor or given.prefetch_factor


def _check_who_loads(path: str, tuned: Tuned, given: Arguments) -> None:
    if given.workers is not None and given.workers != tuned.workers:  # equal: made anew from a loader's attributes
        raise TunedError(f"workers={given.workers} and tuned={path!r} both say who loads: leave one out")
    _agree(path, "num_workers", tuned.processes, given.num_workers, default=0)
    context = given.multiprocessing_context
    method = context if isinstance(context, str | None) else context.get_start_method()
    if tuned.start_method is not None and method not in (None, tuned.start_method):
        raise TunedError(
            f"multiprocessing_context={given.multiprocessing_context!r} and tuned={path!r} (start_method = "
            f"{tuned.start_method!r}) both say how workers start: leave one out"
        )


def _agree(path: str, name: str, in_file: Any, given: Any, default: Any) -> None:
    if given in (default, in_file) or in_file is None:
        return
    raise TunedError(
        f"{name}={given!r} was given, but tuned={path!r} says {in_file!r}: leave the argument out, or run "
        "`stoker tune` again for it"
    )
