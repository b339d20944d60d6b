"""`stoker tune TARGET`: the best settings for this dataset on this machine, found in about a minute.

Searches with short trials (how: `stoker.tuning`), prints the winning call and what was tried, and writes the
settings as TOML, which `stoker.DataLoader(dataset, tuned="stoker.toml")` reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.cli.bars import bar_on, find_targets, output
from stoker.cli.words import checked, fail, listed

if TYPE_CHECKING:
    from rich.console import Console

    from stoker.bench.runs import TrialRecord
    from stoker.bench.settings import Setting
    from stoker.bench.targets import Target
    from stoker.tuning import Aim, Tuning

_COMMAND = "tune"


def tune(
    target: Annotated[
        str,
        typer.Argument(
            help="module:function that returns a dataset or a loader; a folder of images; or a built-in dataset, as in "
            "`stoker bench`."
        ),
    ],
    goal: Annotated[
        str,
        typer.Option(
            "--for",
            help="throughput: most samples a second; step: shortest step; cpu: fewest CPU seconds at no loss of speed.",
        ),
    ] = "throughput",
    batch_sizes: Annotated[str, typer.Option(help="Samples a batch, to choose from; 32, or the loader's own.")] = "",
    step_ms: Annotated[
        str,
        typer.Option(
            help="What your model takes for a step: one for each batch size, or one for the first, which grows with it."
        ),
    ] = "",
    budget_s: Annotated[float, typer.Option(help="Seconds that the search may take.")] = 60.0,
    max_bytes: Annotated[
        str, typer.Option(help="Memory that all processes together may take, as in 2e9, 800MB or 4GiB.")
    ] = "",
    workers: Annotated[str, typer.Option(help="Numbers of processes to try; chosen by cores if not given.")] = "",
    threads: Annotated[
        str, typer.Option(help="Numbers of threads to try; 1 for a dataset that two threads may not use at once.")
    ] = "",
    prefetch: Annotated[str, typer.Option(help="Values of prefetch_factor to try.")] = "",
    start_methods: Annotated[str, typer.Option(help="fork, forkserver, spawn; the platform's if not given.")] = "",
    shuffle: Annotated[bool, typer.Option(help="Load in random order.")] = True,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("stoker.toml"),
    run: Annotated[Path | None, typer.Option(help="Also save every trial there, for `stoker report`.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Where built-in datasets are kept.")] = None,
) -> None:
    """Search workers, threads, prefetch and batch size for the best settings; print the call, write stoker.toml."""
    tries = workers, threads, prefetch, start_methods
    aim = checked(_COMMAND, _aim, goal, batch_sizes, step_ms, budget_s, max_bytes, tries, shuffle)
    console = output()
    found = checked(_COMMAND, find_targets, [target], None, cache, console)[target]
    watch = _Watch(console, aim.budget_s, run)
    try:
        tuning = checked(_COMMAND, watch.tune, found, aim)
    except KeyboardInterrupt:
        fail(_COMMAND, f"stopped after {len(watch.records)} trials; {out} was not written.", 130)
    _print(tuning, out, console)
    checked(_COMMAND, _save, tuning, out)


def _aim(
    goal: str,
    batch_sizes: str,
    step_ms: str,
    budget_s: float,
    max_bytes: str,
    tries: tuple[str, str, str, str],
    shuffle: bool,
) -> Aim:
    from stoker.options import START_METHODS
    from stoker.tuning import Aim

    processes, threads, prefetch, start_methods = tries
    methods = {name: name for name in START_METHODS}
    return Aim(
        goal=goal,  # type: ignore[arg-type]  # checked there
        batch_sizes=_numbers("--batch-sizes", batch_sizes, 1),
        steps_s=tuple(ms / 1e3 for ms in listed("--step-ms", step_ms, {}, float)) if step_ms else (),
        budget_s=budget_s,
        max_bytes=_bytes(max_bytes) if max_bytes else None,
        processes=_numbers("--workers", processes, 0),
        threads=_numbers("--threads", threads, 1),
        prefetch=_numbers("--prefetch", prefetch, 1),
        start_methods=listed("--start-methods", start_methods, methods) if start_methods else (),
        shuffle=shuffle,
    )


def _numbers(option: str, text: str, least: int) -> tuple[int, ...]:
    values: tuple[int, ...] = listed(option, text, {}, int, least) if text else ()
    return values


_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9, "": 1}


def _bytes(text: str) -> int:
    unit = next(unit for unit in _UNITS if text.endswith(unit))
    try:
        size = int(float(text.removesuffix(unit)) * _UNITS[unit])
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise ValueError(f"--max-bytes: {text!r} is no size; 2e9, 800MB and 4GiB are")
    return size


@dataclass
class _Watch:
    """Shows a search on a bar of its time, and saves its trials if there is a folder for them."""

    console: Console
    budget_s: float
    folder: Path | None
    records: list[TrialRecord] = field(default_factory=list)
    best_per_s: float = 0.0

    def tune(self, target: Target, aim: Aim) -> Tuning:
        import time

        from stoker.tuning import Teller, tune

        begun_at = time.monotonic()
        with bar_on(self.console, counted=False) as bar:
            task = bar.add_task("looking at a few samples", total=self.budget_s, left="")
            bar.refresh()

            def tick() -> None:
                bar.update(task, completed=min(self.budget_s, time.monotonic() - begun_at))
                bar.refresh()

            def begun(setting: Setting) -> None:
                words = setting.label({"workers", "lanes", "batch_size", "prefetch", "start_method", "share"})
                bar.update(task, description=words, left=self._so_far())
                tick()

            return tune(target, aim, teller=Teller(tick, begun, self._keep))

    def _keep(self, record: TrialRecord) -> None:
        from stoker.bench.runs import Run

        self.records.append(record)
        if record.trial is not None:
            self.best_per_s = max(self.best_per_s, record.trial.samples_per_s)
        if self.folder is not None:
            Run(self.folder).append(record)

    def _so_far(self) -> str:
        return f"{len(self.records)} trials, best {self.best_per_s:,.0f} samples/s" if self.records else ""


def _print(tuning: Tuning, out: Path, console: Console) -> None:
    from stoker.report.table import memory_note
    from stoker.report.tried import tried_table

    trials = sum(len(tried.group.records) for tried in tuning.tried)
    title = (
        f"{tuning.target}: {len(tuning.tried)} settings, {trials} trials, {tuning.took_s:.0f} s (best trial of each)"
    )
    console.print(tried_table(tuning.tried, title))
    lines = (
        memory_note(record for tried in tuning.tried for record in tried.group.records),
        f"Best for {tuning.aim.goal}:",
        f"  {tuning.call}",
        f'or, with {out}:  stoker.DataLoader(dataset, tuned="{out}")',
    )
    for line in lines:  # a call that is to be copied has no line breaks
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _save(tuning: Tuning, out: Path) -> None:
    try:
        tuning.save(out)
    except OSError as error:
        raise ValueError(f"{out} cannot be written: {error}") from None
