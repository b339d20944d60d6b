"""A diagnosis for a terminal: the verdict, the numbers behind it, what was tried, and what to change.

Everything is shown as text, never as rich's markup: names and messages come from users' code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.diagnosis import Diagnosis, TriedChange
from stoker.diagnosis.facts import WORTH_IT

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_findings(found: Diagnosis, console: Console) -> None:
    """Print all of it."""
    from rich.text import Text

    console.print(Text(found.verdict, style="bold"))
    console.print(_numbers(found))
    if found.tried:
        console.print(_trials(found))
    for line in closing(found):
        # A call that is to be pasted has no line breaks of ours.
        console.print(Text(line), soft_wrap=True)


def closing(found: Diagnosis) -> list[str]:
    """The last lines: the change to make, and what helps beside it."""
    lines = []
    if found.changes:
        best = found.changes[0]
        lines.append(f"Change: {best.change} – expect {_times(best.promise)} as fast.")
        if best.call:
            lines.append(f"    loader = {best.call}")
    elif found.withheld:
        lines.append(f"No change is promised anything: {found.withheld}.")
    elif found.tried:
        lines.append(f"No change that was tried makes it {_times(WORTH_IT)} as fast.")
    return lines + ([found.advice] if found.advice else [])


def _numbers(found: Diagnosis) -> Table:
    table = _table()
    table.add_column("measured", no_wrap=True)
    table.add_column("", overflow="fold")
    _fill(table, [list(row) for row in found.numbers])
    return table


def _trials(found: Diagnosis) -> Table:
    table = _table()
    table.add_column("tried", overflow="fold")
    table.add_column("expect", justify="right", no_wrap=True)
    table.add_column("rounds", overflow="fold")
    ranked = sorted(found.tried, key=lambda tried: -tried.promise)
    expected = ["withheld" if found.withheld else _expected(tried) for tried in ranked]
    _fill(table, [[str(tried.change), text, _rounds(tried)] for tried, text in zip(ranked, expected, strict=True)])
    return table


def _expected(tried: TriedChange) -> str:
    return "-" if tried.failure else _times(tried.promise)


def _rounds(tried: TriedChange) -> str:
    return f"failed, {tried.failure}" if tried.failure else ", ".join(_times(gain) for gain in tried.gains)


def _times(gain: float) -> str:
    return f"{gain:.2f} ×" if gain < 10 else f"{gain:.0f} ×"


def _table() -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, pad_edge=False)


def _fill(table: Table, rows: list[list[str]]) -> None:
    from rich.text import Text

    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
