"""`stoker top`: the loaders that run on this machine now, and which of their models wait for data."""

from __future__ import annotations

from typing import Annotated, Any

import typer

_NOBODY = (
    "No Stoker loader is running here for this user (one is seen when its pass has lasted a second; "
    "STOKER_TOP=0 in its environment hides it)."
)


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one table and leave.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Show running loaders: speed, waiting, queue and memory; Ctrl-C leaves."""
    from rich.console import Console

    console = Console()
    if once:
        console.print(_look())
        return
    _watch(console, every)


def _watch(console: Any, every_s: float) -> None:
    import time

    from rich.live import Live

    try:
        with Live(_look(), console=console, auto_refresh=False, screen=console.is_terminal) as live:
            while True:
                time.sleep(every_s)
                live.update(_look(), refresh=True)
    except KeyboardInterrupt:
        return


def _look() -> Any:
    from stoker.bench.running import running
    from stoker.report.running import table_of_running

    loaders = running()
    return table_of_running(loaders) if loaders else _NOBODY
