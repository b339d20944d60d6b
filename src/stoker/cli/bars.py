"""What is shown while something is measured or made: a console, a bar, the targets being made under one.

Bars are refreshed by hand: a thread of rich's would be forked into every trial.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from stoker.bench.targets import Target


def output() -> Console:
    """Where results are printed."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=140)  # a file has no edge at which lines must break


def bar_on(console: Console, *, counted: bool = True) -> Any:
    """A bar with a description, the time that has passed, and a field `left` for more; `counted` adds 3/12."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        *((MofNCompleteColumn(),) if counted else ()),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    return Progress(*columns, console=console, auto_refresh=False, transient=True)


def find_targets(texts: Iterable[str], samples: int | None, cache: Path | None, console: Console) -> dict[str, Target]:
    """The targets that these texts name, made now where they are built in and not there yet.

    TargetError, a ValueError, for one that names nothing.
    """
    from stoker.bench.datasets import DatasetOptions, default_cache
    from stoker.bench.targets import resolve

    with bar_on(console) as bar:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(f"making {what}", total=total, left="")
            bar.update(tasks[what], completed=done)
            if done % 16 == 0 or done == total:
                bar.refresh()

        options = DatasetOptions(cache or default_cache(), samples, progress)
        return {text: resolve(text, options) for text in texts}
