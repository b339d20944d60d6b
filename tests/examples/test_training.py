"""Training with Stoker is training: the losses of torch's loader, to the last bit, also after a kill."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data
from tests.examples.ranks import BATCH_SIZE, EPOCHS, LOADERS, SAMPLES, Points, losses_of, make_net
from tests.examples.starting import run_to_the_end, run_until_killed
from tests.programs import Nursery

import stoker
from stoker import Workers

RUN = ("--samples", 331, "--batch-size", 8, "--epochs", 2, "--every", 4, "--seed", 4)
STEPS = 21  # of 16 samples; the last one has 11, and one more from the beginning
WAYS = {
    "inline": {},
    "threads": {"workers": Workers(0, 2)},
    "processes": {"num_workers": 2},
    "reading ahead": {"device": "cpu"},
    "processes, reading ahead": {"num_workers": 1, "device": "cpu"},
}


def alone(make: Any, **more: Any) -> list[float]:
    torch.manual_seed(3)
    return losses_of(make(Points(), BATCH_SIZE, shuffle=True, **more), make_net())


@pytest.mark.parametrize("more", WAYS.values(), ids=WAYS)
def test_losses_of_one_process_are_those_of_torchs_loader(more: dict[str, Any]) -> None:
    expected = alone(torch.utils.data.DataLoader)
    assert len(set(expected)) == EPOCHS * -(-SAMPLES // BATCH_SIZE)
    assert alone(stoker.DataLoader, **more) == expected


@pytest.fixture(scope="module")
def by_loader(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The losses of two ranks, step by step, with each loader."""
    folder = tmp_path_factory.mktemp("losses")
    run_to_the_end(nursery, "losses", 2, folder / "store", folder / "losses.json")
    found: dict[str, Any] = json.loads((folder / "losses.json").read_text())
    return found


@pytest.mark.parametrize("name", [name for name in LOADERS if name != "torch"])
def test_losses_of_two_ranks_are_those_of_torchs_loader(by_loader: dict[str, Any], name: str) -> None:
    first, second = by_loader["torch"]
    assert len(first) == len(second) == EPOCHS * -(-SAMPLES // 2 // BATCH_SIZE)
    assert first != second
    assert by_loader[name] == [first, second]


def read(curve: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in curve.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ddp")


@pytest.fixture(scope="module")
def uninterrupted(nursery: Nursery, folder: Path) -> list[dict[str, Any]]:
    """Every step of a run of the example on two ranks that nobody stops."""
    run_to_the_end(nursery, "example", 2, folder / "store", -1, -1, *RUN, "--curve", folder / "whole.jsonl")
    return read(folder / "whole.jsonl")


def test_two_ranks_together_see_every_sample_once_an_epoch(uninterrupted: list[dict[str, Any]]) -> None:
    for epoch in range(2):
        seen = [index for step in uninterrupted if step["epoch"] == epoch for index in step["samples"]]
        assert Counter(seen) == Counter(range(331)) + Counter(seen[:1])
    assert uninterrupted[0]["samples"] != uninterrupted[STEPS]["samples"]


def test_the_losses_of_the_example_go_down(uninterrupted: list[dict[str, Any]]) -> None:
    losses = [step["loss"] for step in uninterrupted]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


@pytest.fixture(scope="module")
def killed(nursery: Nursery, folder: Path) -> list[dict[str, Any]]:
    """The same with checkpoints, killed in the second epoch and started again."""
    checkpointed = (*RUN, "--curve", folder / "killed.jsonl", "--checkpoint", folder / "run.pt")
    run_until_killed(nursery, "example", 2, folder / "store-1", 1, 9, *checkpointed)
    run_to_the_end(nursery, "example", 2, folder / "store-2", -1, -1, *checkpointed)
    return read(folder / "killed.jsonl")


@pytest.mark.faults
def test_a_run_that_was_killed_and_resumed_has_the_same_loss_curve(
    uninterrupted: list[dict[str, Any]], killed: list[dict[str, Any]]
) -> None:
    whole = {(step["epoch"], step["step"]): (step["loss"], step["samples"]) for step in uninterrupted}
    assert len(whole) == len(uninterrupted) == 2 * STEPS
    # the last checkpoint before the kill is that after step 7: steps 8 and 9 are made again
    again = [(step["epoch"], step["step"]) for step in killed]
    assert again == [*((0, step) for step in range(STEPS)), *((1, step) for step in (*range(10), *range(8, STEPS)))]
    for step in killed:
        assert (step["loss"], step["samples"]) == whole[step["epoch"], step["step"]]
