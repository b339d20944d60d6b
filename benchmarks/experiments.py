"""Four well-known experiments about data loading, measured, drawn and written down by one command each.

    python benchmarks/experiments.py a               faces, 100 batches × 5 repeats, workers 0-4
    python benchmarks/experiments.py b               50 ms of loading, 15 ms of model, workers 0-4
    python benchmarks/experiments.py c               batch sizes × workers × sleep × {preprocessed, photos}
    python benchmarks/experiments.py d               loader, synthetic and real throughput of a small conv net
    python benchmarks/experiments.py a b c d         all, about twelve minutes on two cores
    python benchmarks/experiments.py c --scale 0.125 at another size (results then go to their own folder)
    python benchmarks/experiments.py a --again       forget the saved trials first
    python benchmarks/experiments.py a b c d --render   no measuring: plots and pages from the saved records

Trials are saved one by one in benchmarks/results/experiments/; a run that was stopped goes on where it was. Plots go to
docs/experiments/plots, and the part between the markers of docs/experiments/*.md is rendered from the records.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from experiment_pages import PAGES, body_of, draw_throughputs
from render import replace_between

from stoker.bench.datasets import DatasetOptions
from stoker.bench.groups import group
from stoker.bench.isolated import Length
from stoker.bench.plan import Plan, Turn, check_continues, rounds, save_plan
from stoker.bench.runs import Run, TrialRecord
from stoker.bench.settings import LOADERS, SYNTHETIC, TORCH, Setting, Sweep
from stoker.bench.sweep import Watcher, facts_now, preload, prepare_loader, record_trial, run_sweep
from stoker.bench.targets import Target, resolve
from stoker.report.plots import KINDS, kind_figure, save_figure
from stoker.report.steps import timeline_figure, waits_figures

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "experiments"
DOCS = HERE.parent / "docs" / "experiments"
MODEL = "small conv net"
GRID_SCALE = 1 / 32


@dataclass(frozen=True)
class Experiment:
    """A plan, and which plots its page shows."""

    plan: Plan
    kinds: tuple[str, ...]
    waits: bool = False
    timeline: bool = False


EXPERIMENTS = {
    "a": Experiment(
        Plan(Sweep(("faces:samples=3200",), workers=(0, 1, 2, 3, 4))),
        ("time-over-workers",),
    ),
    "b": Experiment(
        Plan(
            Sweep(("simulated:sleep_ms=50,samples=200",), batch_sizes=(1,), workers=(0, 1, 2, 3, 4), sleeps_s=(0.015,)),
            batches=60,
            timeline=12,
        ),
        ("step-over-workers",),
        timeline=True,
    ),
    "c": Experiment(
        Plan(
            Sweep(
                ("preprocessed:samples=1024", "photos:samples=1024"),
                batch_sizes=(32, 128, 256, 512, 1024),
                workers=(1, 2, 4, 8),
                sleeps_s=(0.0, 2.0),
            ),
            repeats=2,
            batches=18,
            warmup=1,
            scale=GRID_SCALE,
        ),
        ("loading-over-batch-size", "first-batch-over-workers", "throughput-over-workers"),
        waits=True,
    ),
}
THROUGHPUTS = Plan(Sweep(("tensors:samples=2000,shape=1x128x128",), batch_sizes=(16,), workers=(0, 1, 2)), batches=40)


def main(arguments: list[str]) -> int:
    """Measure what is left, draw, render."""
    options = _parse(arguments)
    for name in options.names:
        folder = RESULTS / (name if options.scale is None else f"{name}-{options.scale:g}")
        if options.again and not options.render:
            shutil.rmtree(folder, ignore_errors=True)
        run = Run(folder)
        if not options.render:
            _measure_throughputs(run) if name == "d" else _measure_plan(EXPERIMENTS[name].plan, run, options.scale)
        records = run.load()[0]
        if options.scale is None:
            _draw(name, records)
            _write_page(name, records)
        else:
            print(body_of(name, records))
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure four experiments about data loading.")
    parser.add_argument("names", nargs="+", choices=[*EXPERIMENTS, "d"], metavar="{a,b,c,d}")
    parser.add_argument("--scale", type=float, help="factor for batch sizes and sleeps, instead of the page's")
    parser.add_argument("--again", action="store_true", help="forget the saved trials and measure anew")
    parser.add_argument("--render", action="store_true", help="no measuring: plots and pages from saved records")
    return parser.parse_args(arguments)


def _measure_plan(plan: Plan, run: Run, scale: float | None) -> None:
    plan = plan if scale is None else replace(plan, scale=scale)
    facts = facts_now()
    check_continues(run.folder, plan, facts)
    options = DatasetOptions(progress=_tell_making)
    targets = {text: resolve(text, options) for text in plan.sweep.datasets}
    save_plan(plan, run.folder, facts)
    run_sweep(plan, run, targets, facts, Watcher(done=_tell))


def _measure_throughputs(run: Run) -> None:
    """Loader alone, model alone on one batch from memory, and both: rounds that take turns."""
    facts = facts_now()
    check_continues(run.folder, THROUGHPUTS, facts)
    preload()
    [text] = THROUGHPUTS.sweep.datasets
    target = resolve(text, DatasetOptions())
    save_plan(THROUGHPUTS, run.folder, facts)
    measured = {record.turn.name for record in run.load()[0] if record.trial is not None}
    for turn in rounds(_throughput_settings(text), THROUGHPUTS.repeats, timeline=False):
        if turn.name not in measured:
            length = Length(THROUGHPUTS.batches, THROUGHPUTS.warmup)
            record = record_trial(turn, partial(_prepare_model, target, turn.setting), length, facts)
            run.append(record)
            _tell(record)


def _throughput_settings(text: str) -> list[Setting]:
    sweep = THROUGHPUTS.sweep
    [size] = sweep.batch_sizes
    loaders = [
        Setting(text, loader, size, workers, model=model)
        for model in ("", MODEL)
        for workers in sweep.workers
        for loader in LOADERS
    ]
    return [Setting(text, SYNTHETIC, size, model=MODEL), *loaders]


def _prepare_model(
    target: Target, setting: Setting, folder: Path | None
) -> tuple[Iterable[Any], Callable[[Any], object] | None]:
    step = training_step() if setting.model else None
    if setting.loader == SYNTHETIC:
        inline = Setting(setting.dataset, TORCH, setting.batch_size, 0)
        batch = next(iter(prepare_loader(target, inline, True, None)[0]))
        return [batch] * (THROUGHPUTS.batches or 1), step
    return prepare_loader(target, setting, True, folder)[0], step


def training_step() -> Callable[[Any], object]:
    """One step of training a small convolutional network on 1×128×128 pictures of ten classes."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 5, 3),
        nn.MaxPool2d(2),
        nn.Conv2d(5, 12, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )
    net(torch.zeros(1, 1, 128, 128))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

    def step(batch: Any) -> None:
        pictures, labels = batch
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(pictures), labels).backward()
        optimiser.step()

    return step


def _draw(name: str, records: list[TrialRecord]) -> None:
    groups = group(records)
    folder = DOCS / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    if name == "d":
        _save(draw_throughputs(groups), folder / "d-throughputs")
        return
    experiment = EXPERIMENTS[name]
    for kind in KINDS:
        figure = kind_figure(kind, groups) if kind.name in experiment.kinds else None
        if figure is not None:
            _save(figure, folder / f"{name}-{kind.name}")
    for title, figure in waits_figures(groups) if experiment.waits else ():
        _save(figure, folder / f"{name}-{title}")
    for title, figure in timeline_figure([record for record in records if record.spans]) if experiment.timeline else ():
        _save(figure, folder / f"{name}-{title}")


def _save(figure: Any, path: Path) -> None:
    """As a PNG of 96 colours: a plot has few, and the file is kept in the repository."""
    from PIL import Image

    [png] = save_figure(figure, path, ("png",))
    with Image.open(png) as picture:
        few = picture.convert("RGB").quantize(96)
    few.save(png, optimize=True)


def _write_page(name: str, records: list[TrialRecord]) -> None:
    page = DOCS / PAGES[name]
    text = replace_between(page.read_text(encoding="utf-8"), f"experiments/{name}", body_of(name, records))
    page.write_text(text, encoding="utf-8")
    print(page)


def _tell(record: TrialRecord) -> None:
    result = f"{record.trial.samples_per_s:,.0f} samples/s" if record.trial is not None else f"failed: {record.failure}"
    print(f"{_words(record.turn)}: {result}", flush=True)


def _words(turn: Turn) -> str:
    return f"repeat {turn.repeat + 1}, {turn.setting.label({'dataset', 'loader', 'workers', 'batch_size', 'model'})}"


def _tell_making(what: str, done: int, total: int) -> None:
    if done == total:
        print(f"{total} {what} are ready", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
