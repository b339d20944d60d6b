"""A run as one HTML file: the verdict, charts to point at, tables to sort and filter; it needs no network.

Everything is in the file: our style and script (beside this module), plotly.js from the installed package, the charts
as JSON. The page's own policy forbids every request, so nothing can be loaded by accident or by a hostile record. Names
in records are anybody's text: in HTML they are escaped, in the JSON no "<" is left that could end the script.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from stoker.bench.groups import METRICS, Group, group
from stoker.bench.runs import TrialRecord
from stoker.bench.statistics import quantile
from stoker.bench.whole_files import written_whole
from stoker.extras import brought_by
from stoker.report.charts import Chart, charts_of
from stoker.report.table import cell, figure, with_deviation
from stoker.report.verdict import verdicts

_SETTING = {
    "dataset": "dataset",
    "model": "model",
    "loader": "loader",
    "batch_size": "batch",
    "workers": "workers",
    "lanes": "threads",
    "prefetch": "prefetch",
    "pin_memory": "pinned",
}
Cell = tuple[str, float | None]  # what is shown, what is sorted by (None: the text itself)


def page_of(records: Sequence[TrialRecord], title: str, problems: Sequence[str] = ()) -> str:
    """The whole page as text."""
    groups = group(records)
    charts = charts_of(records, groups)
    return Template(_own("page.html")).substitute(
        title=html.escape(title),
        style=_own("page.css"),
        script=_own("page.js"),
        plotly=_plotly(),
        verdict="\n".join(f"<li>{html.escape(line)}</li>" for line in [*verdicts(groups), *problems]),
        charts="\n".join(_chart_html(chart) for chart in charts),
        settings=_table("settings", _setting_heads(), [_setting_row(found) for found in groups]),
        trials=_table("trials", [*_SETTING.values(), *_TRIAL_HEADS], [_trial_row(record) for record in records]),
        failures=_failures(groups),
        facts=_facts(records),
        data=_json({chart.name: [shown for _name, shown in chart.figures] for chart in charts}),
    )


def save_page(records: Sequence[TrialRecord], path: Path, title: str, problems: Sequence[str] = ()) -> None:
    """Write the page, whole or not at all."""
    with written_whole(path) as partial:
        partial.write_text(page_of(records, title, problems), encoding="utf-8")


def _own(name: str) -> str:
    return (resources.files("stoker.report") / name).read_text(encoding="utf-8")


def _plotly() -> str:
    with brought_by("tools"):
        from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    # Inside a script element the parser looks for nothing but its end.
    return text.replace("</script", "<\\/script")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _chart_html(chart: Chart) -> str:
    options = "".join(
        f'<option value="{number}">{html.escape(name)}</option>' for number, (name, _) in enumerate(chart.figures)
    )
    return (
        f'<section class="chart" id="{chart.name}"><h3>{html.escape(chart.title)}</h3>'
        f'<label class="choice">shown <select aria-label="shown">{options}</select></label>'
        f'<div class="plot" data-chart="{chart.name}"></div></section>'
    )


def _setting_heads() -> list[str]:
    measured = [f"{metric.title} ({metric.unit})" for metric in METRICS.values()]
    return [*_SETTING.values(), "repeats", *measured, "doubt"]


def _setting_row(found: Group) -> list[Cell]:
    if found.records:
        summaries = [found.metric(name) for name in METRICS]
        measured: list[Cell] = [(with_deviation(summary), summary.mean) for summary in summaries]
    else:
        measured = [("-", None)] * len(METRICS)
    doubt = found.advice
    if found.failure is not None and not found.records:
        doubt = f"failed: {found.failure.type}: {found.failure.message}"
    return [*_setting_cells(found), (str(len(found.records)), len(found.records)), *measured, (doubt, None)]


def _setting_cells(found: Group) -> list[Cell]:
    cells: list[Cell] = []
    for field in _SETTING:
        value = getattr(found.setting, field, None)
        cells.append((cell(found, field), float(value) if isinstance(value, int) else None))
    return cells


_TRIAL_HEADS = (
    "repeat",
    "kind",
    "result",
    "samples",
    "throughput (samples/s)",
    "time (s)",
    "start-up (ms)",
    "first batch (ms)",
    "wait p50 (ms)",
    "wait p99 (ms)",
    "peak memory (MB)",
    "processor a sample (ms)",
    "load before",
    "measured at",
)


def _trial_row(record: TrialRecord) -> list[Cell]:
    settings = _setting_cells(Group(record.setting, ()))
    head: list[Cell] = [(str(record.repeat), record.repeat), (record.kind, None)]
    tail: list[Cell] = [(f"{record.load_before:g}", record.load_before), (record.measured_at, None)]
    if record.trial is None:
        assert record.failure is not None
        failed: list[Cell] = [(f"{record.failure.type}: {record.failure.message}", None)]
        return [*settings, *head, *failed, *[("-", None)] * 9, *tail]
    trial = record.trial
    values = (
        trial.samples,
        trial.samples_per_s,
        trial.seconds,
        1e3 * record.startup_s,
        1e3 * trial.first_batch_s,
        1e3 * quantile(trial.waits_s, 0.5),
        1e3 * quantile(trial.waits_s, 0.99),
        record.peak_pss_bytes / 1e6,
        1e3 * record.cpu_s_per_sample,
    )
    return [*settings, *head, ("ok", None), *((figure(value), value) for value in values), *tail]


def _table(name: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    head = "".join(f'<th scope="col"><button type="button">{html.escape(text)}</button></th>' for text in heads)
    body = "\n".join(f"<tr>{''.join(_cell_html(*found) for found in row)}</tr>" for row in rows)
    return (
        f'<label class="filter">filter <input type="search" data-table="{name}" placeholder="words, all must occur">'
        f'</label> <span class="count" data-count="{name}"></span>'
        f'<div class="scroll"><table id="{name}"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
    )


def _cell_html(text: str, value: float | None) -> str:
    if value is None:
        return f"<td>{html.escape(text)}</td>"
    return f'<td class="number" data-value="{value!r}">{html.escape(text)}</td>'


def _failures(groups: Iterable[Group]) -> str:
    """Each failure once, with the settings that had it and the traceback of the first."""
    found: dict[str, list[Group]] = {}
    for member in groups:
        if member.failure is not None:
            found.setdefault(f"{member.setting.dataset}: {member.failure}", []).append(member)
    parts = [_failure(text, members) for text, members in found.items()]
    return f"<h2>Failures</h2>{''.join(parts)}" if parts else ""


def _failure(text: str, members: Sequence[Group]) -> str:
    names = "".join(f"<li>{html.escape(member.setting.label(_SETTING))}</li>" for member in members)
    trace = members[0].failure.traceback if members[0].failure is not None else ""
    summary = f"{text} ({len(members)} setting{'s' if len(members) > 1 else ''})"
    return (
        f"<details><summary>{html.escape(summary)}</summary><ul>{names}</ul><pre>{html.escape(trace)}</pre></details>"
    )


def _facts(records: Sequence[TrialRecord]) -> str:
    rows: dict[str, dict[str, None]] = {}
    for record in records:
        for name, value in {**record.machine, **record.versions}.items():
            rows.setdefault(name, {})[str(value)] = None
    cells = (f"<dt>{html.escape(name)}</dt><dd>{html.escape(', '.join(values))}</dd>" for name, values in rows.items())
    return f"<dl>{''.join(cells)}</dl>"
