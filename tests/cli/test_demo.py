"""The demo's turns and table, with scripted loaders; no time passes and nothing is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from rich.console import Console

from stoker.bench.trial import Trial
from stoker.cli import demo


def trial(samples_per_s: float, first_batch_s: float = 0.25, model_share: float = 0.5) -> Trial:
    seconds = 100 / samples_per_s
    later_s = seconds * (1 - model_share) - first_batch_s
    return Trial(100, 0, 0.0, (first_batch_s, later_s), (seconds * model_share, 0.0), 0.0)


def trials(**overrides: list[Trial]) -> Any:
    table = {(name, count): [trial(100.0)] for name, count in demo._turns()}
    return table | {("stoker", "auto"): overrides.get("auto", [trial(100.0)])}


def text_of(table: Any) -> list[list[str]]:
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        console.print(table)
    return [line.split() for line in capture.get().splitlines()]


def test_every_worker_count_has_a_row_with_both_loaders() -> None:
    results = trials()
    results["torch", 2] = [trial(200.0)]
    results["stoker", 2] = [trial(300.0, first_batch_s=0.125, model_share=0.25)]
    rows = text_of(demo.table_of(results, "title"))
    assert ["2", "200", "300", "250", "ms", "125", "ms", "50%", "75%", "1.50", "×"] in rows


def test_auto_is_compared_with_torchs_best() -> None:
    results = trials(auto=[trial(400.0, first_batch_s=0.0625)])
    results["torch", 1] = [trial(160.0)]
    [row] = [row for row in text_of(demo.table_of(results, "title")) if row[:1] == ["auto"]]
    assert row[1:3] == ["160", "400"]
    assert row[-2:] == ["2.50", "×"]


def test_the_middle_trial_is_one_that_happened() -> None:
    slow, usual, fast = trial(50.0), trial(100.0), trial(150.0)
    assert demo.middle([fast, slow, usual]) is usual
    assert demo.middle([fast, slow]) is slow


class SilentBar:
    """A progress bar that nobody sees."""

    def add_task(self, _description: str, total: int) -> int:
        return total

    def update(self, *_args: Any, **_kwargs: Any) -> None: ...

    def advance(self, _task: int) -> None: ...


def test_the_loaders_take_turns_with_the_same_dataset_and_arguments() -> None:
    made: list[tuple[str, Any, dict[str, Any]]] = []

    def loader(name: str) -> Any:
        def make(dataset: Any, **options: Any) -> Iterator[Any]:
            made.append((name, dataset, options))
            return iter([np.zeros((32, 1))])

        return make

    dataset = object()
    results = demo._compare(dataset, {"torch": loader("torch"), "stoker": loader("stoker")}, 0.0, 0.0, SilentBar())
    warm_up, counted = made[:7], made[7:]
    assert [(name, options["num_workers"]) for name, _, options in counted] == [
        ("torch", 0),
        ("stoker", 0),
        ("torch", 1),
        ("stoker", 1),
        ("torch", 2),
        ("stoker", 2),
        ("stoker", "auto"),
    ]
    assert all(used is dataset for _, used, _ in made)
    assert {(options["batch_size"], options["shuffle"]) for _, _, options in made} == {(32, True)}
    assert [name for name, _, _ in warm_up] == [name for name, _, _ in counted]
    assert all(len(results[turn]) == 1 and results[turn][0].samples == 32 for turn in results)


def test_torchs_threads_are_as_before_after_the_comparison() -> None:
    import torch

    before = torch.get_num_threads()
    inside = 0
    with suppress(KeyError), demo._one_torch_thread():
        inside = torch.get_num_threads()
        raise KeyError
    assert (inside, torch.get_num_threads()) == (1, before)
