"""What a tuning tried, as a table in a terminal: the winner first, what cannot win with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.bench.settings import varied
from stoker.extras import brought_by
from stoker.report.table import cell, figure

if TYPE_CHECKING:
    from rich.table import Table

    from stoker.tuning import TriedSetting

_SETTING_COLUMNS = (
    ("batch_size", "batch"),
    ("workers", "processes"),
    ("lanes", "lanes"),
    ("prefetch", "prefetch"),
    ("start_method", "start"),
    ("share", "sharing"),
)
_ALWAYS = {"workers", "lanes"}
_MEASURED = ("trials", "samples/s", "step\nms", "CPU/sample\nms", "memory\nMB")


def tried_table(tried: Sequence[TriedSetting], title: str) -> Table:
    """One row a setting, in the order given; the first is the winner."""
    with brought_by("tools"):
        from rich import box
        from rich.table import Table
        from rich.text import Text

    shown = varied([one.setting for one in tried]) | _ALWAYS
    columns = [(field, heading) for field, heading in _SETTING_COLUMNS if field in shown]
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in (*(heading for _field, heading in columns), *_MEASURED):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for place, one in enumerate(tried):
        cells = [*(cell(one.group, field) for field, _heading in columns), *_measured(one)]
        mark = one.trouble or ("◄ best" if place == 0 else "")
        table.add_row(*map(Text, [*cells, mark]), style="bold" if place == 0 and not one.trouble else "")
    return table


def _measured(one: TriedSetting) -> list[str]:
    records = one.group.records
    if not records:
        return ["0", *[""] * (len(_MEASURED) - 1)]
    return [
        str(len(records)),
        figure(one.samples_per_s),
        figure(1e3 * one.step_s),
        figure(1e3 * one.cpu_s),
        figure(one.peak_bytes / 1e6),
    ]
