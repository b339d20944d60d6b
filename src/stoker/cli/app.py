"""The command with all its subcommands, as typer knows it."""

from __future__ import annotations

from typing import Annotated

import typer

from stoker.cli import bench, demo, diagnose, report, top, tune

app = typer.Typer(
    name="stoker",
    help="Stoker keeps accelerators fed: a data loader for training models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # the usual traceback: it can be searched for, and hides nothing
)
app.command()(demo.demo)
app.command()(bench.bench)
app.command()(tune.tune)
app.command()(report.report)
app.command()(diagnose.diagnose)
app.command()(top.top)


def _print_version(wanted: bool) -> None:
    if wanted:
        from stoker import __version__

        typer.echo(f"stoker {__version__}")
        raise typer.Exit


@app.callback()
def _stoker(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Stoker keeps accelerators fed: a data loader for training models."""
