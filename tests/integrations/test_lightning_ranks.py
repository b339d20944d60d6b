"""Two real ranks under Lightning: each sample once per epoch, whoever shards, and exact resumes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import stoker

SCRIPT = Path(__file__).with_name("lightning_ranks.py")
N = 22


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
    command = [sys.executable, str(SCRIPT), str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    return path


def ranks(folder: Path, name: str) -> list[Any]:
    """The diaries of both ranks."""
    return [json.loads((folder / f"{name}.{rank}.json").read_text()) for rank in (0, 1)]


def steps(folder: Path, name: str) -> list[list[int]]:
    """What both ranks together were given in each step."""
    return [one[1] + other[1] for one, other in zip(*ranks(folder, name), strict=True)]


@pytest.mark.parametrize("name", ["seeded", "module", "injected"])
def test_two_ranks_see_each_sample_once_per_epoch(folder: Path, name: str) -> None:
    seen = steps(folder, name)
    assert len(seen) == 6
    for epoch in (seen[:3], seen[3:]):
        assert Counter(sample for step in epoch for sample in step) == Counter(range(N))
    assert seen[:3] != seen[3:]


@pytest.mark.parametrize("name", ["seeded", "module"])
def test_a_seeded_loader_shards_itself_and_is_sharded_once(folder: Path, name: str) -> None:
    alone = stoker.DataLoader(range(N), batch_size=8, shuffle=True, seed=7, shard=(0, 1))  # type: ignore[arg-type]
    assert steps(folder, name) == [batch.tolist() for _ in range(2) for batch in alone]


@pytest.mark.parametrize("name", ["seeded", "module", "injected"])
def test_a_checkpoint_in_the_middle_of_an_epoch_goes_on_exactly_on_both_ranks(folder: Path, name: str) -> None:
    assert ranks(folder, f"{name}, resumed") == [whole[4:] for whole in ranks(folder, name)]


def test_predictions_of_two_ranks_are_each_there_once(folder: Path) -> None:
    predicted = [sample for rank in ranks(folder, "predicted") for batch in rank for sample in batch]
    assert sorted(predicted) == list(range(7))
