"""`stoker bench TARGET…`: how fast is this loaded, with which settings.

Parses the sweep, makes or imports the targets, runs what is left of the plan with a bar that knows the time left, and
prints the table. Every trial is saved before the next begins, so Ctrl-C loses one trial, and the same command goes on
where it was. What the numbers mean and how they are taken: `stoker.bench`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stoker.cli.bars import bar_on, find_targets, output
from stoker.cli.words import checked, listed

if TYPE_CHECKING:
    from rich.console import Console

    from stoker.bench.plan import Plan, Turn
    from stoker.bench.runs import Run, TrialRecord
    from stoker.bench.settings import Sweep
    from stoker.bench.targets import Target

_COMMAND = "bench"
_LARGEST_BUILT_IN = 20_000  # samples; an epoch that is longer repeats what is stored anyway


def bench(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help="module:function that returns a dataset or a loader; a folder of images; or faces, photos, "
            "preprocessed, simulated, tensors, with parameters as in simulated:sleep_ms=50,samples=1000.",
        ),
    ],
    batch_sizes: Annotated[str, typer.Option(help="Samples a batch, separated by commas.")] = "32",
    workers: Annotated[str, typer.Option(help="Worker processes; 'auto' lets Stoker choose.")] = "0,1,2,4",
    lanes: Annotated[str, typer.Option(help="Threads in each worker (Stoker only).")] = "1",
    prefetch: Annotated[str, typer.Option(help="prefetch_factor; 'default' is the loader's own.")] = "default",
    pin_memory: Annotated[str, typer.Option(help="'no', 'yes', or 'no,yes'.")] = "no",
    sleep: Annotated[str, typer.Option(help="Seconds a step of the pretended model takes, or 'none'.")] = "none",
    loaders: Annotated[str, typer.Option(help="Which loaders: torch, stoker, or both.")] = "torch,stoker",
    repeats: Annotated[int, typer.Option(min=1, help="How often each setting is measured, taking turns.")] = 5,
    batches: Annotated[int, typer.Option(min=0, help="Batches of a trial; 0 for the whole epoch.")] = 100,
    warmup: Annotated[int, typer.Option(min=0, help="Batches loaded before each trial that do not count.")] = 2,
    scale: Annotated[float, typer.Option(help="Factor for batch sizes and sleeps: the same shape, smaller.")] = 1.0,
    shuffle: Annotated[bool, typer.Option(help="Load in random order.")] = True,
    timeline: Annotated[int, typer.Option(min=0, help="Also note for so many batches who loaded what when.")] = 0,
    run: Annotated[Path | None, typer.Option(help="Folder of the records; runs/NAME if not given.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Where built-in datasets are kept.")] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds after which a trial is given up.")] = 600.0,
) -> None:
    """Measure loading over batch sizes, workers, lanes, models and loaders; save every trial."""
    from stoker.bench.plan import Plan

    sweep = checked(_COMMAND, _sweep, targets, batch_sizes, workers, lanes, prefetch, pin_memory, sleep, loaders)
    checked(_COMMAND, sweep.scaled, scale)
    plan = Plan(sweep, repeats, batches or None, warmup, shuffle, scale, timeline)
    _measure(plan, run or Path("runs") / _slug(targets), cache, timeout)


def _measure(plan: Plan, folder: Path, cache: Path | None, timeout_s: float) -> None:
    from stoker.bench.plan import check_continues, save_plan
    from stoker.bench.runs import Run
    from stoker.bench.sweep import facts_now

    console = output()
    facts = facts_now()
    run = Run(folder)
    checked(_COMMAND, check_continues, folder, plan, facts)
    targets = checked(_COMMAND, _resolve, plan, cache, console)
    checked(_COMMAND, plan.turns, {name for name, target in targets.items() if target.is_loader})
    save_plan(plan, folder, facts)
    try:
        _sweep_with_bar(plan, run, targets, facts, timeout_s, console)
    except KeyboardInterrupt:
        _print_result(run, console)
        console.print(f"Stopped. The same command goes on where it was: {run.path} is complete so far.", markup=False)
        raise typer.Exit(130) from None
    if not _print_result(run, console):
        raise typer.Exit(1)


def _sweep_with_bar(
    plan: Plan, run: Run, targets: dict[str, Target], facts: Any, timeout_s: float, console: Console
) -> None:
    from rich.markup import escape

    from stoker.bench.sweep import Remaining, Watcher, run_sweep, turns_left

    given = {name for name, target in targets.items() if target.is_loader}
    records, problems = run.load()
    for problem in problems:
        console.print(problem, markup=False, highlight=False, style="yellow")
    todo = turns_left(plan, given, records)
    remaining = Remaining()
    for record in records:
        remaining.add(record)
    if records:
        console.print(f"{len(records)} trials are in {run.path}, {len(todo)} are left.", markup=False)
    with bar_on(console) as bar:
        task = bar.add_task("", total=len(todo), left="")

        def begun(turn: Turn) -> None:
            words = turn.setting.label({"dataset", "loader", "workers", "batch_size"})
            bar.update(task, description=escape(f"{words}, repeat {turn.repeat + 1}"), left=_left(remaining, todo))
            bar.refresh()

        def done(record: TrialRecord) -> None:
            remaining.add(record)
            skipped(record.turn)

        def skipped(turn: Turn) -> None:
            todo.remove(turn)
            bar.update(task, advance=1, left=_left(remaining, todo))

        watcher = Watcher(tick=bar.refresh, begun=begun, done=done, skipped=skipped)
        run_sweep(plan, run, targets, facts, watcher, timeout_s=timeout_s)


def _left(remaining: Any, todo: list[Turn]) -> str:
    seconds = remaining.seconds(todo)
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"about {minutes}:{rest:02d} left"


def _resolve(plan: Plan, cache: Path | None, console: Console) -> dict[str, Target]:
    largest = max(plan.sweep.scaled(plan.scale).batch_sizes)
    samples = min(largest * plan.batches, _LARGEST_BUILT_IN) if plan.batches else None
    return find_targets(plan.sweep.datasets, samples, cache, console)


def _print_result(run: Run, console: Console) -> bool:
    """Print what the run holds by now; whether anything was measured."""
    from stoker.bench.groups import group
    from stoker.report.table import memory_note, notes_of, table_of
    from stoker.report.verdict import verdicts

    groups = group(run.load()[0])
    if not groups:
        return False
    console.print(table_of(groups, f"mean ± standard deviation over the repeats ({run.folder})", console.width))
    looks = memory_note(record for found in groups for record in found.records)
    for line in filter(None, (looks, *notes_of(groups), *verdicts(groups))):
        console.print(line, markup=False, highlight=False)
    console.print(f"stoker report {run.folder}  makes a page of it.", markup=False, highlight=False)
    return any(found.records for found in groups)


def _sweep(
    targets: list[str],
    batch_sizes: str,
    workers: str,
    lanes: str,
    prefetch: str,
    pin_memory: str,
    sleep: str,
    loaders: str,
) -> Sweep:
    from stoker.bench.settings import AUTO, LOADERS, Sweep

    return Sweep(
        datasets=tuple(dict.fromkeys(targets)),
        loaders=listed("--loaders", loaders, {name: name for name in LOADERS}),
        batch_sizes=listed("--batch-sizes", batch_sizes, {}, int, 1),
        workers=listed("--workers", workers, {AUTO: AUTO}, int, 0),
        lanes=listed("--lanes", lanes, {}, int, 1),
        prefetch=listed("--prefetch", prefetch, {"default": None}, int, 1),
        pin_memory=listed("--pin-memory", pin_memory, {"no": False, "yes": True}),
        sleeps_s=listed("--sleep", sleep, {"none": 0.0}, float, 0),
    )


def _slug(targets: list[str]) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(targets)).strip("-")[:60] or "run"
