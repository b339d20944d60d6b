"""Pictures of single passes: every wait of the training loop, and who waited for whom.

    waits      one panel a worker count: the wait before every batch. With torch's loader, peaks every n batches.
    timeline   one panel a setting: what each worker loaded when, and whether the model worked or waited.

The first batch of a pass includes the start of the workers and is often a hundred times dearer than the rest; the
scale is made for the rest, and where the first does not fit, an arrow says how long it was. A timeline without notes of
workers (`stoker bench --timeline`) shows the training loop alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from stoker.bench.groups import Group
from stoker.bench.runs import Span, TrialRecord
from stoker.bench.settings import GIVEN, varied
from stoker.report.facets import by_name, hue, panel_title, x_values
from stoker.report.plots import add_legend, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WAIT, _MODEL = "#b8b8b8", "#2a9d5c"
_BATCH_COLOURS = ("#0072b2", "#56b4e9", "#e69f00", "#cc79a7")
_PANELS = 6
_STEPS = 16  # of a timeline: more cannot be told apart
_HEAD_ROOM = 1.15


def waits_figures(groups: Sequence[Group]) -> Iterator[tuple[str, Figure]]:
    """One figure for each dataset and model, of the largest batch size: there the peaks are highest."""
    shown = [group for group in groups if group.records and group.typical.measured.batches > 1]
    places = by_name(shown, panel_title)
    for number, (title, members) in enumerate(places.items()):
        largest = max(group.setting.batch_size or 0 for group in members)
        chosen = [group for group in members if (group.setting.batch_size or 0) == largest]
        size = f", batches of {largest}" if largest else ""
        yield f"waits-{number}", _waits_figure(f"Wait before every batch: {title}{size}", chosen)


def _waits_figure(title: str, groups: Sequence[Group]) -> Figure:
    counts = x_values(groups, "workers") or [GIVEN]
    figure, axes = new_figure(title, len(counts), height=2.3)
    fields = {"loader"} | (varied([group.setting for group in groups]) - {"workers"})
    for ax, count in zip(axes, counts, strict=True):
        members = [group for group in groups if group.setting.workers == count or count == GIVEN]
        beyond = _draw_waits(ax, members, fields)
        name = "1 worker" if count == 1 else f"{count} workers" if count != GIVEN else "loader as given"
        ax.set_title(name, fontsize=10, loc="left")
        ax.set_title(plain(beyond), fontsize=8, loc="right", color="#444444")
    add_legend(figure, axes)
    return figure  # type: ignore[no-any-return]


def _draw_waits(ax: Axes, groups: Sequence[Group], fields: set[str]) -> str:
    """The lines of one panel; what is said of first batches that lie beyond its scale."""
    top = 0.0
    firsts = []
    for group in groups:
        waits_ms = [1e3 * wait for wait in group.typical.measured.waits_s]
        name = group.setting.label(fields)
        line = {"color": hue(group.setting.loader), "linewidth": 1.0, "marker": ".", "markersize": 3.0}
        ax.plot(range(len(waits_ms)), waits_ms, label=plain(name), **line)  # type: ignore[arg-type]
        top = max(top, *waits_ms[1:])
        firsts.append((waits_ms[0], name))
    ax.set_ylim(0, top * _HEAD_ROOM or 1.0)
    ax.set_xlabel("batch")
    ax.locator_params(axis="x", integer=True)
    ax.set_ylabel("wait (ms)")
    beyond = [f"{name} {first_ms:,.0f} ms" for first_ms, name in firsts if first_ms > top * _HEAD_ROOM]
    return f"first batch: {', '.join(beyond)}" if beyond else ""


def timeline_figure(records: Sequence[TrialRecord]) -> Iterator[tuple[str, Figure]]:
    """Timelines of up to six settings; none if no record has a batch."""
    records = [record for record in records if record.measured.batches]
    if not records:
        return
    shown = _chosen(records)
    rows = [1.6 + len(lanes_of(record.spans)) for record in shown]
    height = 0.42 * sum(rows) / len(rows) + 0.35
    figure, axes = new_figure("Who waits for whom", len(shown), columns=1, height=height, ratios=rows)
    fields = {"loader", "workers"} | varied([record.setting for record in shown])
    until_s = 0.0
    for ax, record in zip(axes, shown, strict=True):
        until_s = max(until_s, _draw_timeline(ax, record))
        ax.set_title(plain(record.setting.label(fields)), fontsize=10)
    for ax in axes:
        ax.set_xlim(0, until_s)  # one scale for all: what is slower is longer
    add_legend(figure, axes)
    yield "timeline", figure


def _chosen(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Of the first dataset, those with notes of workers if there are any, the slowest model, the largest batches."""
    shown = [record for record in records if record.setting.dataset == records[0].setting.dataset]
    shown = [record for record in shown if record.spans] or shown
    for field in ("sleep_s", "batch_size"):
        most = max(getattr(record.setting, field) or 0 for record in shown)
        shown = [record for record in shown if (getattr(record.setting, field) or 0) == most]
    return shown[:_PANELS]


def _draw_timeline(ax: Axes, record: TrialRecord) -> float:
    """One panel; where it ends."""
    until_s = _draw_loop(ax, record)
    lanes = lanes_of(record.spans)
    for lane, spans in enumerate(lanes, start=1):
        _draw_worker(ax, lane, [span for span in spans if span.start_s < until_s])
    names = ["training loop", *(f"worker {number}" for number in range(len(lanes)))]
    if len(lanes) == 1 and record.setting.workers == 0:
        names[1] = "loading"
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel("time since the pass began (s)")
    ax.grid(axis="y", visible=False)
    return until_s


def lanes_of(spans: Sequence[Span]) -> list[list[Span]]:
    """The spans of each worker, workers in the order in which they began."""
    lanes: dict[int, list[Span]] = {}
    for span in spans:
        lanes.setdefault(span.worker, []).append(span)
    return list(lanes.values())


def _draw_worker(ax: Axes, lane: int, spans: Sequence[Span]) -> None:
    for span in spans:
        colour = _BATCH_COLOURS[span.batch % len(_BATCH_COLOURS)]
        ax.broken_barh([(span.start_s, span.end_s - span.start_s)], (lane - 0.35, 0.7), facecolors=colour)
        _number(ax, span.batch, span.start_s, span.end_s, lane)


def _draw_loop(ax: Axes, record: TrialRecord) -> float:
    """Waiting and model of the training loop's steps; where the picture ends."""
    steps = list(loop_of(record))[:_STEPS]
    waits = [(begin, got - begin) for begin, got, _done in steps]
    models = [(got, done - got) for _begin, got, done in steps]
    ax.broken_barh(waits, (-0.35, 0.7), facecolors=_WAIT, label="waiting for data")
    if record.setting.model_name != "none":
        ax.broken_barh(models, (-0.35, 0.7), facecolors=_MODEL, label="model")
    until_s = steps[-1][2]
    for number, (_begin, got, done) in enumerate(steps):
        if done - got > 0.02 * until_s:
            _number(ax, number, got, done, 0)
        else:
            ax.vlines(got, -0.35, 0.35, color="#333333", linewidth=0.8)  # a batch came, and nothing was done with it
    return until_s


def loop_of(record: TrialRecord) -> Iterator[tuple[float, float, float]]:
    """For every step: asked, got the batch, done with the model; seconds since the pass began."""
    trial = record.measured
    at_s = trial.start_s
    for number, (wait_s, model_s) in enumerate(zip(trial.waits_s, trial.models_s, strict=True)):
        begin_s = 0.0 if number == 0 else at_s
        got_s = at_s + wait_s
        at_s = got_s + model_s
        yield begin_s, got_s, at_s


def _number(ax: Any, batch: int, begin_s: float, end_s: float, lane: int) -> None:
    """The batch's number in its bar, where the axis leaves room for it."""
    ax.text(
        (begin_s + end_s) / 2, lane, str(batch), ha="center", va="center", fontsize=6.5, clip_on=True, color="black"
    )
