"""A run as a table in a terminal: means ± standard deviations over the repeats, doubts marked, failures told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stoker.bench.groups import Group
from stoker.bench.runs import TrialRecord
from stoker.bench.settings import varied
from stoker.bench.statistics import Summary
from stoker.extras import brought_by

if TYPE_CHECKING:
    from rich.table import Table

_SETTING_COLUMNS = (
    ("dataset", "dataset"),
    ("model", "model"),
    ("loader", "loader"),
    ("batch_size", "batch"),
    ("workers", "workers"),
    ("lanes", "threads"),
    ("prefetch", "prefetch"),
    ("start_method", "start"),
    ("share", "sharing"),
    ("pin_memory", "pinned"),
)
_ALWAYS = {"loader", "workers"}
_METRIC_COLUMNS = (
    ("samples_per_s", "samples/s"),
    ("wait_share", "waiting\n%"),
    ("first_batch_ms", "1st batch\nms"),
    ("memory_mb", "memory\nMB"),
    ("cpu_ms", "CPU/sample\nms"),
)
_WIDE, _NARROW_METRICS = 105, 3


def table_of(groups: Sequence[Group], title: str, width: int = 120) -> Table:
    """One row a setting; only what varies has a column, beside loader and workers. Narrow ones leave out costs."""
    with brought_by("tools"):
        from rich import box
        from rich.table import Table
        from rich.text import Text

    shown = setting_columns(groups)
    metrics = _METRIC_COLUMNS if width >= _WIDE else _METRIC_COLUMNS[:_NARROW_METRICS]
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for _field, heading in shown:
        table.add_column(heading, overflow="fold")
    for _name, heading in metrics:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for group in groups:
        # Text, not str: a dataset's name may hold what rich takes for markup.
        cells = [cell(group, field) for field, _heading in shown]
        table.add_row(
            *(Text(text) for text in [*cells, *_measured(group, [name for name, _heading in metrics]), _mark(group)])
        )
    return table


def setting_columns(groups: Iterable[Group]) -> list[tuple[str, str]]:
    """The fields of settings that deserve a column, with their headings."""
    differing = varied([group.setting for group in groups]) | _ALWAYS
    return [(field, heading) for field, heading in _SETTING_COLUMNS if field in differing]


def cell(group: Group, field: str) -> str:
    """One field of a group's setting, for a table."""
    value = group.setting.model_name if field == "model" else getattr(group.setting, field)
    if value is None:
        return "-"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def notes_of(groups: Iterable[Group]) -> list[str]:
    """A line for each failure, with the settings that had it, and for each group that is unstable."""
    groups = list(groups)
    fields = {field for field, _heading in setting_columns(groups)}
    failed: dict[str, list[str]] = {}
    for group in groups:
        if group.failure is not None and not group.records:
            failed.setdefault(f"{group.setting.dataset}: {group.failure}", []).append(group.setting.label(fields))
    remarks = [f"failed, {_some(names)}: {text}" for text, names in failed.items()]
    return remarks + [f"unstable, {group.setting.label(fields)}: {group.advice}" for group in groups if group.advice]


def memory_note(records: Iterable[TrialRecord]) -> str:
    """How often memory was looked at: what a peak is worth. Empty if nothing was measured."""
    looks = sorted(record.memory_samples for record in records if record.trial is not None)
    if not looks:
        return ""
    number = f"{looks[0]}" if looks[0] == looks[-1] else f"{looks[0]} to {looks[-1]}"
    return f"peak memory: the most of {number} looks a trial; what was there between two looks only is not in it"


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} settings ({names[0]} and others)"


def figure(value: float) -> str:
    """Three figures: 0.0843, 1.24, 15.1, 172, 1,234."""
    if value == 0:
        return "0"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def with_deviation(summary: Summary) -> str:
    """'172 ± 3', the deviation with the mean's decimals; the mean alone if there was one repeat."""
    shown = figure(summary.mean)
    if summary.count < 2:
        return shown
    if "e" in shown:
        return f"{shown} ± {summary.deviation:.1e}"
    return f"{shown} ± {summary.deviation:,.{len(shown.partition('.')[2])}f}"


def _measured(group: Group, names: Sequence[str]) -> list[str]:
    if not group.records:
        return ["failed", *[""] * (len(names) - 1)]
    without_model = group.setting.model_name == "none"  # then all of a pass is waiting
    return ["-" if name == "wait_share" and without_model else with_deviation(group.metric(name)) for name in names]


def _mark(group: Group) -> str:
    if group.failure is not None and not group.records:
        return "✗"
    return "" if group.is_stable else "unstable"
