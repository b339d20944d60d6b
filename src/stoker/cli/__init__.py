"""A person's door: the `stoker` command.

`demo`, `bench`, `tune`, `report`, `diagnose`, `top`  one file a subcommand: parse, call, print
`app`    all of them together
`words`  from the words of a command line to values;  `bars`  what is shown while something is measured or made

Nothing is decided here that a program could not decide too. The files of subcommands import only typer when they are
loaded, and torch, Pillow or rich when they are run, so that `stoker --help` answers at once. What the command needs
beyond a loader is an extra, and this file needs nothing, so that a command without it can say so.
"""

from __future__ import annotations

import sys

from stoker.errors import MissingExtra
from stoker.extras import brought_by


def main() -> None:
    """Run the command line; where its packages are not installed, say in one line how to get them."""
    try:
        _run()
    except MissingExtra as missing:
        sys.exit(f"stoker: {missing}")


def _run() -> None:
    with brought_by("tools"):
        import rich  # noqa: F401  every subcommand prints with it

        from stoker.cli.app import app
    app()
