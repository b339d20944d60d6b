"""accelerate on two real processes: each sample once per epoch, whoever shards, and exact resumes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("accelerate")

import stoker

SCRIPT = Path(__file__).with_name("accelerate_ranks.py")
N = 21


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both ranks wrote down."""
    path = tmp_path_factory.mktemp("ranks")
    root = str(SCRIPT.parents[2])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([root, *sys.path]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    rendezvous = ["--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    command = [sys.executable, "-m", "torch.distributed.run", *rendezvous, str(SCRIPT), str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    return path


def ranks(folder: Path, name: str) -> list[Any]:
    """What both ranks have written."""
    return [json.loads((folder / f"{name}.{rank}.json").read_text()) for rank in (0, 1)]


def curve(folder: Path, name: str) -> list[Any]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", ["prepared", "passed through", "taken over"])
def test_two_ranks_see_each_sample_once_per_epoch(folder: Path, name: str) -> None:
    one, other = (written["seen"] for written in ranks(folder, name))
    for epoch in (slice(0, 3), slice(3, 6)):
        together = Counter(sample for batch, _, _ in [*one[epoch], *other[epoch]] for sample in batch)
        assert set(together) == set(range(N))
        assert together.total() - N <= 3  # what fills up the last step


@pytest.mark.parametrize("name", ["prepared", "taken over"])
def test_metrics_leave_out_what_only_fills_up_the_last_step(folder: Path, name: str) -> None:
    seen = ranks(folder, name)[0]["seen"]
    for epoch in (seen[:3], seen[3:]):
        assert sorted(sample for _, gathered, _ in epoch for sample in gathered) == list(range(N))
        assert [is_last for _, _, is_last in epoch] == [False, False, True]


def test_a_seeded_loader_stays_stokers_and_is_sharded_once(folder: Path) -> None:
    alone = stoker.DataLoader(range(N), batch_size=8, shuffle=True, seed=7, shard=(0, 1))  # type: ignore[arg-type]
    expected = [batch.tolist() for _ in range(2) for batch in alone]
    for name in ("prepared", "passed through"):
        one, other = ranks(folder, name)
        assert one["type"].startswith("stoker.")
        steps = [a[0] + b[0] for a, b in zip(one["seen"], other["seen"], strict=True)]
        assert [step[: len(whole)] for step, whole in zip(steps, expected, strict=True)] == expected


def test_a_loader_that_does_not_shard_is_refused_in_words(folder: Path) -> None:
    assert "seed=" in ranks(folder, "refused")[0]["error"]


def test_accelerates_checkpoint_holds_the_place(folder: Path) -> None:
    for rank in ranks(folder, "resumed"):
        assert rank["seen"] == rank["expected"]
        assert len(rank["seen"]) == 2


def test_the_example_goes_on_with_the_same_losses(folder: Path) -> None:
    whole, stopped = curve(folder, "whole"), curve(folder, "stopped")
    assert len(whole) == 10
    assert stopped == whole
