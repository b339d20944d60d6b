"""`stoker demo`: the same dataset through torch's loader and through Stoker's, side by side.

What is shown must be what a newcomer would get: a folder of real JPEG files (drawn here, so nothing is downloaded), a
plain Pillow dataset, batches of 32, no setting beyond the number of workers. The two loaders take turns, so that a
machine that slows down halfway slows both; of each pairing the median round is shown. A short sleep stands for the
model, as a training loop waits for its accelerator; without it every loader would be waited for all the time.

Rounds are repeated while the time allows, so a slow machine gives fewer rounds rather than a longer wait. Before the
first, each loader loads a few batches that do not count: the first pass of a process was measured about a fifth slower
than its later ones (with torch's loader), and someone has to come first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from stoker.bench.trial import Trial

    Trials = dict[tuple[str, "int | str"], list[Trial]]

MakeLoader = Callable[..., Iterable[Any]]
WorkerCount = int | str

BATCH_SIZE = 32
WARM_UP_BATCHES = 4
TORCH, STOKER = "torch", "stoker"
_DRAWING = "drawing faces"


@dataclass(frozen=True)
class Pairing:
    """One row of the table: what Stoker is given, and the worker counts of torch that it is compared with."""

    count: WorkerCount
    against: tuple[int, ...]


PAIRINGS = (Pairing(0, (0,)), Pairing(1, (1,)), Pairing(2, (2,)), Pairing("auto", (0, 1, 2)))


def demo(
    images: Annotated[int, typer.Option(min=BATCH_SIZE, help="How many photos to draw and load.")] = 600,
    seconds: Annotated[float, typer.Option(min=0, help="Start no new round after this time.")] = 25.0,
    model_ms: Annotated[float, typer.Option(min=0, help="How long the pretended model takes for a batch.")] = 10.0,
    folder: Annotated[
        Path | None, typer.Option(help="Where the photos are kept; a temporary folder if not given.")
    ] = None,
) -> None:
    """Load a folder of JPEG photos with torch's loader and with Stoker's, and compare."""
    import tempfile

    if folder is not None:
        _show(folder, images, seconds, model_ms)
        return
    with tempfile.TemporaryDirectory(prefix="stoker-demo-") as temporary:
        _show(Path(temporary), images, seconds, model_ms)


def _show(folder: Path, images: int, seconds: float, model_ms: float) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console()
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        dataset = _draw(folder, images, bar)
        with _one_torch_thread():
            trials = _compare(dataset, _loaders(), seconds, model_ms / 1e3, bar)
    console.print(table_of(trials, f"{images} JPEG photos, batches of {BATCH_SIZE}, a model of {model_ms:g} ms"))
    rounds = len(trials[STOKER, "auto"])
    for line in (
        "waiting    share of the run in which the model had no batch",
        "1st batch  from asking for it to having it, start of the workers included",
        f"auto       Stoker decides; compared with torch's best. Median of rounds: {rounds}.",
    ):
        console.print(line, highlight=False)


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Let torch compute with one thread, as it does in workers.

    With two threads on two cores, and something else running, torch's loader without workers was measured about five
    times slower than with one (presumably the threads of one small operation waiting for each other). Such a torch
    would make the comparison look better than it is.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _loaders() -> dict[str, MakeLoader]:
    from torch.utils.data import DataLoader as TorchLoader

    from stoker import DataLoader as StokerLoader

    return {TORCH: TorchLoader, STOKER: StokerLoader}


def _draw(folder: Path, images: int, bar: Any) -> Any:
    from stoker.bench.datasets.faces import FacesDataset, draw_faces

    task = bar.add_task(_DRAWING, total=images)
    draw_faces(folder, images, progress=lambda done, _total: bar.update(task, completed=done))
    return FacesDataset(folder)


def _compare(dataset: Any, loaders: dict[str, MakeLoader], seconds: float, model_s: float, bar: Any) -> Trials:
    """Rounds over all loaders and worker counts, taking turns, until no further round fits into `seconds`."""
    turns = _turns()
    task = bar.add_task("warming up", total=len(turns))
    for name, count in turns:
        _one_pass(loaders[name], dataset, count, model_s, limit=WARM_UP_BATCHES)
        bar.advance(task)
    trials: Trials = {turn: [] for turn in turns}
    task = bar.add_task("loading", total=len(turns))
    begun_at = time.monotonic()
    rounds = 0
    while rounds == 0 or (time.monotonic() - begun_at) * (rounds + 1) / rounds < seconds:
        rounds += 1
        bar.update(task, total=rounds * len(turns))
        # Every second round runs backwards: neither loader always follows the other.
        for name, count in turns if rounds % 2 else reversed(turns):
            bar.update(task, description=f"{name}, {_workers(count)}")
            trials[name, count].append(_one_pass(loaders[name], dataset, count, model_s))
            bar.advance(task)
    return trials


def _turns() -> list[tuple[str, WorkerCount]]:
    turns: list[tuple[str, WorkerCount]] = []
    for pairing in PAIRINGS:
        if pairing.count in pairing.against:
            turns.append((TORCH, pairing.count))
        turns.append((STOKER, pairing.count))
    return turns


def _one_pass(loader: MakeLoader, dataset: Any, count: WorkerCount, model_s: float, limit: int | None = None) -> Trial:
    from stoker.bench.trial import measure

    batches = loader(dataset, batch_size=BATCH_SIZE, shuffle=True, num_workers=count)
    return measure(batches, model=lambda _batch: time.sleep(model_s), limit=limit)


def table_of(trials: Trials, title: str) -> Table:
    """The comparison as a table, one row for each pairing, torch's figure beside Stoker's."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)  # fits into 80 columns
    table.add_column("workers")
    for heading in ("samples/s", "1st batch", "waiting"):
        table.add_column(f"{heading}\ntorch", justify="right")
        table.add_column("\nStoker", justify="right", style="bold")
    table.add_column("speed\nratio", justify="right", style="bold")
    for pairing in PAIRINGS:
        ours = middle(trials[STOKER, pairing.count])
        theirs = max((middle(trials[TORCH, count]) for count in pairing.against), key=lambda it: it.samples_per_s)
        ratio = ours.samples_per_s / theirs.samples_per_s
        table.add_row(str(pairing.count), *_cells(theirs, ours), f"{ratio:.2f} ×")
    return table


def _cells(theirs: Trial, ours: Trial) -> list[str]:
    show: tuple[Callable[[Trial], str], ...] = (
        lambda trial: f"{trial.samples_per_s:,.0f}",
        lambda trial: f"{trial.first_batch_s * 1e3:,.0f} ms",
        lambda trial: f"{trial.wait_share:.0%}",
    )
    return [cell(trial) for cell in show for trial in (theirs, ours)]


def middle(trials: list[Trial]) -> Trial:
    """The trial in the middle by speed: a pass that happened, rather than a mixture of several."""
    return sorted(trials, key=lambda trial: trial.samples_per_s)[(len(trials) - 1) // 2]


def _workers(count: WorkerCount) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
