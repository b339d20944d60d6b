"""The run's charts as data for plotly.js: what `plots` and `steps` draw, to be pointed at and zoomed.

A chart is a title and figures, one for each dataset and model; the page lets a reader choose. A figure is what
plotly.js takes, `{"data": […], "layout": {…}}`. Colours of text and grid are left to the page, which knows whether it
is light or dark.

plotly.js takes some HTML in texts (<b>, <a href>), so every text that comes from a record is escaped here.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stoker.bench.groups import METRICS, Group, timelines
from stoker.bench.runs import TrialRecord
from stoker.bench.settings import Setting, varied
from stoker.report.facets import Line, by_name, hue, panel_title, panels, x_values
from stoker.report.plots import KINDS, X_TITLES, Kind
from stoker.report.steps import lanes_of, loop_of

Figure = dict[str, Any]
_WAIT, _MODEL = "#9a9a9a", "#2a9d5c"
_BATCH_COLOURS = ("#0072b2", "#56b4e9", "#e69f00", "#cc79a7")
_DASHES = ("solid", "dot", "dash", "dashdot")
_TIMELINE_STEPS = 40


@dataclass(frozen=True)
class Chart:
    """A chart with a choice of figures by name."""

    name: str
    title: str
    figures: tuple[tuple[str, Figure], ...]


def charts_of(records: Sequence[TrialRecord], groups: Sequence[Group]) -> list[Chart]:
    """All charts that the records have something for."""
    charts = [Chart(kind.name, kind.title, _kind_figures(kind, groups)) for kind in KINDS]
    charts.append(Chart("waits", "Wait before every batch, one panel a worker count", _waits_figures(groups)))
    charts.append(Chart("timeline", "Who waits for whom", _timeline_figures(records, groups)))
    return [chart for chart in charts if chart.figures]


def safe(text: str) -> str:
    """The text as plotly.js shows it literally."""
    return html.escape(text, quote=False)


def _kind_figures(kind: Kind, groups: Sequence[Group]) -> tuple[tuple[str, Figure], ...]:
    shown = panels(groups, kind.x)
    values = x_values([group for panel in shown for line in panel.lines for group in line.groups], kind.x)
    if len(values) < 2:
        return ()
    metric = METRICS[kind.metric]
    x_axis: Figure = {"title": {"text": X_TITLES[kind.x]}}
    if kind.x == "workers":
        x_axis |= {"type": "category", "categoryorder": "array", "categoryarray": [str(value) for value in values]}
    layout = {
        "xaxis": x_axis,
        "yaxis": {"title": {"text": f"{metric.title} ({metric.unit})"}, "rangemode": "tozero"},
        "height": 380,
    }
    return tuple(
        (
            panel.title,
            {"data": [_trace(kind, line, number) for number, line in enumerate(panel.lines)], "layout": layout},
        )
        for panel in shown
    )


def _trace(kind: Kind, line: Line, number: int) -> Figure:
    summaries = [group.metric(kind.metric) for group in line.groups]
    places = [getattr(group.setting, kind.x) for group in line.groups]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": safe(line.name),
        "x": [str(place) for place in places] if kind.x == "workers" else places,
        "y": [summary.mean for summary in summaries],
        "error_y": {"type": "data", "array": [summary.deviation for summary in summaries], "thickness": 1.2},
        "line": {"color": line.colour, "dash": _DASHES[number // 8 % len(_DASHES)]},
    }


def _waits_figures(groups: Sequence[Group]) -> tuple[tuple[str, Figure], ...]:
    def title_of(setting: Setting) -> str:
        return panel_title(setting) + (f", batch {setting.batch_size}" if setting.batch_size else "")

    places = by_name([group for group in groups if group.records], title_of)
    return tuple((title, _waits_figure(members)) for title, members in places.items())


def _waits_figure(groups: Sequence[Group]) -> Figure:
    counts: list[Any] = list(x_values(groups, "workers")) or [None]
    fields = {"loader"} | (varied([group.setting for group in groups]) - {"workers"})
    layout: Figure = {
        "grid": {"rows": len(counts), "columns": 1, "pattern": "independent", "ygap": 0.35},
        "height": 120 + 170 * len(counts),
    }
    data: list[Figure] = []
    names: set[str] = set()
    for row, count in enumerate(counts, start=1):
        members = [group for group in groups if group.setting.workers == count]
        data += [_waits_trace(group, fields, row, names) for group in members]
        layout |= _waits_axes(members, row, members[0].setting.label({"workers"}), last=row == len(counts))
    return {"data": data, "layout": layout}


def _waits_trace(group: Group, fields: set[str], row: int, names: set[str]) -> Figure:
    name = safe(group.setting.label(fields))
    first_of_name = name not in names
    names.add(name)
    waits_ms = [round(1e3 * wait, 4) for wait in group.typical.measured.waits_s]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "legendgroup": name,
        "showlegend": first_of_name,
        "x": list(range(len(waits_ms))),
        "y": waits_ms,
        "xaxis": f"x{row}" if row > 1 else "x",
        "yaxis": f"y{row}" if row > 1 else "y",
        "marker": {"size": 4},
        "line": {"color": hue(group.setting.loader), "width": 1.3},
    }


def _waits_axes(groups: Sequence[Group], row: int, title: str, last: bool) -> Figure:
    """Axes of one panel; the scale is made for all batches but the first, which double-clicking shows too."""
    suffix = str(row) if row > 1 else ""
    later = [wait for group in groups for wait in group.typical.measured.waits_s[1:]]
    top = 1.15e3 * max(later, default=1.0)
    return {
        f"xaxis{suffix}": {"title": {"text": "batch"} if last else {}},
        f"yaxis{suffix}": {"title": {"text": f"{title}<br>wait (ms)" if title else "wait (ms)"}, "range": [0, top]},
    }


def _timeline_figures(records: Sequence[TrialRecord], groups: Sequence[Group]) -> tuple[tuple[str, Figure], ...]:
    shown = timelines(records, groups)
    fields = {"loader", "workers"} | varied([record.setting for record in shown])
    return tuple((record.setting.label(fields), _timeline_figure(record)) for record in shown)


def _timeline_figure(record: TrialRecord) -> Figure:
    steps = list(loop_of(record))[:_TIMELINE_STEPS]
    until_s = steps[-1][2]
    lanes = lanes_of(record.spans)
    waits = [("training loop", begin, got, number) for number, (begin, got, _) in enumerate(steps)]
    data = [_bars("waiting", _WAIT, waits)]
    if record.setting.model_name != "none":
        models = [("training loop", got, done, number) for number, (_, got, done) in enumerate(steps)]
        data.append(_bars("model", _MODEL, models))
    for number, spans in enumerate(lanes):
        rows = [(f"worker {number}", span.start_s, span.end_s, span.batch) for span in spans if span.start_s < until_s]
        colours = [_BATCH_COLOURS[batch % len(_BATCH_COLOURS)] for *_, batch in rows]
        data.append({**_bars(f"worker {number}", colours, rows), "showlegend": False})
    layout = {
        "barmode": "overlay",
        "height": 190 + 40 * len(lanes),
        "xaxis": {"title": {"text": "time since the pass began (s)"}},
        "yaxis": {"autorange": "reversed"},
    }
    return {"data": data, "layout": layout}


def _bars(name: str, colour: str | list[str], rows: Sequence[tuple[str, float, float, int]]) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [lane for lane, *_ in rows],
        "base": [round(begin, 6) for _, begin, _, _ in rows],
        "x": [round(end - begin, 6) for _, begin, end, _ in rows],
        "text": [str(batch) for *_, batch in rows],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "hovertemplate": name + ", batch %{text}: %{x:.4f} s<extra></extra>",
        "marker": {"color": colour},
    }
