"""Running loaders as a table in a terminal, with a word on each: is its model fed, or does it wait?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.bench.running import Running
from stoker.extras import brought_by
from stoker.report.verdict import FREE, HELD_UP

if TYPE_CHECKING:
    from rich.table import Table

_SILENT_S = 5.0  # a page is written every second, if there are steps


def table_of_running(loaders: Sequence[Running]) -> Table:
    """One row a loader."""
    with brought_by("tools"):
        from rich import box
        from rich.table import Table
        from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("pid", "command", "loader", "dataset"):
        table.add_column(heading, overflow="fold")
    for heading in ("workers", "steps", "samples/s", "waiting", "ready", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for one in loaders:
        # Text, not str: a command may hold what rich takes for markup; and no control characters reach the terminal.
        table.add_row(*(Text(_printable(cell)) for cell in cells_of(one)))
    return table


def cells_of(one: Running) -> list[str]:
    """What a row says."""
    return [
        str(one.pid),
        one.command,
        str(one.loader),
        one.dataset,
        f"{one.workers} × {one.lanes}" if one.lanes > 1 else str(one.workers),
        f"{one.steps:,}",
        f"{one.samples_per_s:,.0f}",
        f"{one.wait_share:.0%}",
        str(one.ready) if one.workers or one.lanes > 1 else "inline",
        f"{one.memory_bytes / 1e6:,.0f} MB",
        word_on(one),
    ]


def word_on(one: Running) -> str:
    """How this loader's model fares."""
    if one.age_s > _SILENT_S:
        word = f"no step for {one.age_s:,.0f} s"
    elif one.wait_share >= HELD_UP:
        word = "waiting for data"
    else:
        word = "fed" if one.wait_share <= FREE else "on the edge"
    word = f"{word}, {one.restarts} restarts" if one.restarts else word
    return f"{word}; auto {one.auto}" if one.auto else word


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
