"""`stoker report runs/x`: the page of a run, and its plots, from what was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stoker.cli.words import fail


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders that `stoker bench` has written.")],
    out: Annotated[Path | None, typer.Option(help="The page; RUN/report.html if not given.")] = None,
    plots: Annotated[bool, typer.Option(help="Also draw PNG and SVG files into RUN/plots.")] = False,
    title: Annotated[str | None, typer.Option(help="The page's title.")] = None,
) -> None:
    """Make one HTML page with charts, tables and the verdict of a run."""
    from stoker.bench.groups import group
    from stoker.bench.runs import load_runs
    from stoker.report.page import save_page

    try:
        records, problems = load_runs(runs)
    except FileNotFoundError as error:
        fail("report", str(error))
    for problem in problems:
        typer.echo(problem, err=True)
    if not records:
        fail("report", f"{runs[0]} holds no readable trial: run `stoker bench` again")
    path = out or runs[0] / "report.html"
    save_page(records, path, title or f"Stoker: {', '.join(run.name for run in runs)}", problems)
    typer.echo(str(path))
    if plots:
        from stoker.report.plots import save_plots

        for drawn in save_plots(records, group(records), runs[0] / "plots"):
            typer.echo(str(drawn))
