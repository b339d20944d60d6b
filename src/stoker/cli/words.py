"""From the words of a command line to values, and from what is wrong with them to a line that says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import typer

T = TypeVar("T")


def listed(
    option: str, text: str, words: dict[str, Any], number: Callable[[str], Any] | None = None, least: int = 0
) -> Any:
    """'1,2,auto' as a tuple; ValueError naming the option and the part that is wrong."""
    return tuple(dict.fromkeys(_one(option, part.strip(), words, number, least) for part in text.split(",")))


def _one(option: str, part: str, words: dict[str, Any], number: Callable[[str], Any] | None, least: int) -> Any:
    if part in words:
        return words[part]
    try:
        value = number(part) if number is not None else None
    except ValueError:
        value = None
    if value is None or not value >= least:
        kinds = [f"numbers from {least}"] if number is not None else []
        raise ValueError(f"{option}: {part!r} is not among {', '.join([*kinds, *words])}")
    return value


def checked(command: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call it; what it says is wrong with the input is printed, and the command ends with status 2."""
    try:
        return function(*arguments)
    except ValueError as error:
        fail(command, str(error))


def fail(command: str, message: str, status: int = 2) -> NoReturn:
    """Say what is wrong, and end the command."""
    typer.echo(f"stoker {command}: {message}", err=True)
    raise typer.Exit(status)
