"""Pictures of a run: one number over workers or over batch size, with the standard deviation of the repeats as bars.

Each kind of picture is a row of a table (what over what); which panels and lines there are says `stoker.report.facets`.
A kind that the records have nothing for (one batch size only) is not drawn. Worker counts stand at equal distances,
because 1, 2, 4, 8 and "auto" have no common scale; batch sizes stand at their values, so that what grows linearly is
a straight line. Legends stand below the panels, where they cover nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.bench.groups import METRICS, Group, timelines
from stoker.bench.runs import TrialRecord
from stoker.extras import brought_by
from stoker.report.facets import Panel, panels, x_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 2
_PANEL_INCHES = (4.6, 3.1)
_DODGE = 0.12  # how far apart the first and the last line stand, of the distance between two values
_MARKERS = "osD^v<>P*X"
X_TITLES = {"workers": "workers", "batch_size": "batch size (samples)"}


@dataclass(frozen=True)
class Kind:
    """A picture: a metric over a field of the setting."""

    name: str
    metric: str
    x: str
    title: str


KINDS = (
    Kind("time-over-workers", "seconds", "workers", "Time of a pass over the number of workers"),
    Kind("throughput-over-workers", "samples_per_s", "workers", "Throughput over the number of workers"),
    Kind("throughput-over-batch-size", "samples_per_s", "batch_size", "Throughput over batch size"),
    Kind("loading-over-batch-size", "wait_ms", "batch_size", "Loading time of a batch over batch size"),
    Kind("step-over-workers", "step_ms", "workers", "Time of a step after the first over the number of workers"),
    Kind("first-batch-over-workers", "first_batch_ms", "workers", "Time to the first batch over the number of workers"),
    Kind("memory-over-workers", "memory_mb", "workers", "Peak memory over the number of workers"),
)


def save_plots(
    records: Sequence[TrialRecord], groups: Sequence[Group], folder: Path, formats: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Draw everything that the records have something for; the files."""
    from stoker.report.steps import timeline_figure, waits_figures

    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for name, figure in (*_kind_figures(groups), *waits_figures(groups)):
        paths += save_figure(figure, folder / name, formats)
    for name, drawn in timeline_figure(timelines(records, groups)):
        paths += save_figure(drawn, folder / name, formats)
    return paths


def _kind_figures(groups: Sequence[Group]) -> Iterator[tuple[str, Figure]]:
    for kind in KINDS:
        figure = kind_figure(kind, groups)
        if figure is not None:
            yield kind.name, figure


def kind_figure(kind: Kind, groups: Sequence[Group]) -> Figure | None:
    """One picture; None if x has fewer than two values."""
    shown = panels(groups, kind.x)
    values = x_values([group for panel in shown for line in panel.lines for group in line.groups], kind.x)
    if len(values) < 2:
        return None
    figure: Figure
    figure, axes = new_figure(kind.title, len(shown))
    for ax, panel in zip(axes, shown, strict=True):
        _draw_panel(ax, panel, kind, values)
    add_legend(figure, axes)
    return figure


def new_figure(
    title: str,
    count: int,
    columns: int = _COLUMNS,
    height: float = _PANEL_INCHES[1],
    ratios: Sequence[float] | None = None,
) -> tuple[Any, list[Any]]:
    """A figure with `count` panels under a title; `ratios` are the heights of its rows."""
    with brought_by("tools"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    wide = min(columns, count)
    rows = -(-count // wide)
    # One panel alone gets more width: its title and legend need it.
    figure = Figure(
        figsize=(max(_PANEL_INCHES[0] * wide, 6.0 if columns > 1 else 8.5), height * rows + 0.9), layout="constrained"
    )
    FigureCanvasAgg(figure)
    figure.suptitle(plain(title), fontsize=12)
    axes = figure.subplots(rows, wide, squeeze=False, height_ratios=ratios).ravel().tolist()
    for spare in axes[count:]:
        spare.set_visible(False)
    for ax in axes[:count]:
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes[:count]


def _draw_panel(ax: Axes, panel: Panel, kind: Kind, values: Sequence[int | str]) -> None:
    metric = METRICS[kind.metric]
    categorical = kind.x == "workers"
    place = {value: number if categorical else value for number, value in enumerate(values)}
    # Lines stand a little beside each other, so that no bar hides another.
    step = _DODGE * (1.0 if categorical else max(float(value) for value in values) / 6) / max(1, len(panel.lines) - 1)
    for number, line in enumerate(panel.lines):
        summaries = [group.metric(kind.metric) for group in line.groups]
        beside = (number - (len(panel.lines) - 1) / 2) * step
        ax.errorbar(
            [float(place[getattr(group.setting, kind.x)]) + beside for group in line.groups],
            [summary.mean for summary in summaries],
            yerr=[summary.deviation for summary in summaries],
            label=plain(line.name),
            color=line.colour,
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=4.5,
            capsize=3,
            linewidth=1.4,
        )
    ax.set_title(plain(panel.title), fontsize=10)
    ax.set_xlabel(X_TITLES[kind.x])
    ax.set_ylabel(f"{metric.title} ({metric.unit})")
    ax.set_ylim(bottom=0)
    if categorical:
        ax.set_xticks(range(len(values)), [str(value) for value in values])


def add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend below all panels, each name once."""
    entries: dict[str, Any] = {}
    for ax in axes:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    if entries:
        columns = min(len(entries), 4 if len(axes) > 1 else 2)
        figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, fontsize=8.5)


def save_figure(figure: Figure, path: Path, formats: Sequence[str]) -> list[Path]:
    """The figure in these formats, without the date: the same records give the same files."""
    from matplotlib import rc_context

    paths = [path.with_name(f"{path.name}.{ending}") for ending in formats]
    with rc_context({"svg.hashsalt": "stoker"}):  # names inside an SVG would be random otherwise
        for target in paths:
            figure.savefig(target, dpi=110, metadata={"Date": None} if target.suffix == ".svg" else None)
    return paths


def plain(text: str) -> str:
    """The text as it is: matplotlib would take a pair of dollars for a formula."""
    return text.replace("$", r"\$")
