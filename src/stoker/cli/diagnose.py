"""`stoker diagnose TARGET`: is the loader the bottleneck, where in it does the time go, and what would help.

Imports the target, measures with a line that says what is being measured, prints the verdict and the numbers, and saves
all of it if asked to. How it is measured and judged: `stoker.diagnosis`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stoker.cli.bars import output
from stoker.cli.words import fail

if TYPE_CHECKING:
    from stoker.diagnosis import Diagnosis


def diagnose(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="module:function that returns a loader and a step function, which takes a batch; or a loader alone.",
        ),
    ],
    step_ms: Annotated[
        float | None, typer.Option(min=0, help="Pretend a model that takes so long for a batch, instead of a step.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Bring batches there before each step, and time that apart; such as cuda.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long to measure, at most.")] = 30.0,
    out: Annotated[Path | None, typer.Option(help="Save everything that was found, as JSON.")] = None,
) -> None:
    """Say where a training loop's time goes, and which arguments of its loader to change."""
    from stoker.report.findings import print_findings

    console = output()
    found = _diagnosed(target, step_ms, device, seconds, console)
    print_findings(found, console)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(found.to_json() + "\n", encoding="utf-8")
        console.print(f"saved in {out}", markup=False, highlight=False)


def _diagnosed(target: str, step_ms: float | None, device: str | None, seconds: float, console: Any) -> Diagnosis:
    from stoker.bench.targets import TargetError, resolve_training
    from stoker.diagnosis import DiagnosisError, diagnose

    try:
        loader, step = resolve_training(target)
        with console.status("measuring") as status:
            return diagnose(
                loader,
                step_ms / 1e3 if step_ms is not None else step,
                device=device,
                seconds=seconds,
                tell=lambda text: status.update(f"measuring: {text}".replace("[", "\\[")),
            )
    except (TargetError, DiagnosisError) as error:
        fail("diagnose", str(error))
