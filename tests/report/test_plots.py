"""Plots show the records' numbers, with error bars, units and a legend that covers nothing."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import pytest
from tests.report.scripted import HOSTILE, record, records

from stoker.bench.groups import METRICS, group, timelines
from stoker.bench.settings import Setting
from stoker.report.facets import hue, panels, x_values
from stoker.report.plots import KINDS, kind_figure, save_figure, save_plots
from stoker.report.steps import loop_of, timeline_figure, waits_figures

KIND = {kind.name: kind for kind in KINDS}


@pytest.fixture(autouse=True, scope="module")
def fonts_are_open(tmp_path_factory: pytest.TempPathFactory) -> None:
    """matplotlib keeps its fonts open for the life of the program; let it open them before anything is counted."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1, 1))
    figure.suptitle("± ×\u4e00")  # the last is in no font of matplotlib's own, so its last resort is opened too
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figure.savefig(tmp_path_factory.mktemp("fonts") / "x.png")


def test_a_run_gives_every_plot_in_both_formats(tmp_path: Path) -> None:
    made = records(sleeps_s=(0.5,))
    paths = save_plots(made, group(made), tmp_path)
    names = {path.stem for path in paths}
    assert names == {*KIND, "waits-0", "timeline"}
    assert {path.suffix for path in paths} == {".png", ".svg"}
    assert all(path.stat().st_size > 2000 for path in paths)


def test_the_same_records_give_the_same_png(tmp_path: Path) -> None:
    drawn = []
    for name in ("x", "y"):
        figure = kind_figure(KIND["time-over-workers"], group(records()))
        assert figure is not None
        drawn.append([path.read_bytes() for path in save_figure(figure, tmp_path / name, ("png", "svg"))])
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_points_are_means_and_bars_are_deviations(kind: object) -> None:
    groups = group(records())
    figure = kind_figure(kind, groups)  # type: ignore[arg-type]
    assert figure is not None
    for ax, panel in zip(figure.axes, panels(groups, kind.x), strict=True):  # type: ignore[attr-defined]
        metric = METRICS[kind.metric]  # type: ignore[attr-defined]
        assert f"({metric.unit})" in ax.get_ylabel()
        assert ax.get_title() == panel.title
        for line, container in zip(panel.lines, ax.containers, strict=True):
            summaries = [found.metric(metric.name) for found in line.groups]
            points, _caps, [bars] = container.lines  # type: ignore[attr-defined]
            assert points.get_ydata().tolist() == pytest.approx([summary.mean for summary in summaries])
            lengths = [segment[1][1] - segment[0][1] for segment in bars.get_segments()]
            assert lengths == pytest.approx([2 * summary.deviation for summary in summaries], abs=1e-9)


def test_what_does_not_vary_is_not_drawn() -> None:
    single = [found for found in records() if found.setting.batch_size == 8]
    assert kind_figure(KIND["throughput-over-batch-size"], group(single)) is None


def test_no_text_of_a_plot_lies_on_another() -> None:
    for kind in KINDS:
        figure = kind_figure(kind, group(records()))
        assert figure is not None
        figure.canvas.draw()
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        boxes = [figure.legends[0].get_window_extent(renderer)]
        for ax in figure.axes:
            boxes += [ax.xaxis.label.get_window_extent(renderer), ax.title.get_window_extent(renderer)]
            boxes += [ax.yaxis.label.get_window_extent(renderer)]
        boxes.append(figure._suptitle.get_window_extent(renderer))  # type: ignore[attr-defined]
        clashes = [(one, two) for place, one in enumerate(boxes) for two in boxes[place + 1 :] if one.overlaps(two)]
        assert clashes == [], kind.name


def test_every_worker_count_has_a_panel_of_waits_and_the_first_batch_is_told() -> None:
    (_, first), _ = waits_figures(group(records()))
    assert [ax.get_title(loc="left") for ax in first.axes if ax.get_visible()] == ["0 workers", "1 worker", "2 workers"]
    assert first.axes[0].get_title(loc="right").startswith("first batch: torch")
    lines = first.axes[2].get_lines()
    assert [len(line.get_ydata()) for line in lines] == [8, 8]  # type: ignore[arg-type]


def test_a_timeline_shows_the_loop_and_a_lane_for_each_worker() -> None:
    [(_, figure)] = timeline_figure(timelines(records()))
    [ax] = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["training loop", "worker 0", "worker 1"]


def test_steps_of_the_loop_follow_each_other_without_a_gap() -> None:
    steps = list(loop_of(record(Setting("d", "torch", 8, 1, sleep_s=0.5), 0, 64.0)))
    assert steps[0][0] == 0.0
    assert all(one[2] == two[0] for one, two in itertools.pairwise(steps))
    assert steps[-1][2] == pytest.approx(1.0 + 8 * 0.5)


def test_hostile_names_are_drawn_as_text(tmp_path: Path) -> None:
    figure = kind_figure(KIND["time-over-workers"], group(records(HOSTILE)))
    assert figure is not None
    [path] = save_figure(figure, tmp_path / "x", ("svg",))
    assert "<img" not in path.read_text()
    assert figure.axes[0].get_title() == f"{HOSTILE}, no model".replace("$", r"\$")


def test_loaders_keep_their_colours_and_numbers_stand_before_words() -> None:
    [panel] = panels(group(records(sleeps_s=(0.0,))), "workers")
    assert {line.name: line.colour for line in panel.lines}["stoker, batch 16"] == hue("stoker")
    assert len({line.colour for line in panel.lines}) == 4
    auto = group([record(Setting("d", "stoker", 8, count), 0, 64.0) for count in ("auto", 10, 2)])
    assert x_values(auto, "workers") == [2, 10, "auto"]
