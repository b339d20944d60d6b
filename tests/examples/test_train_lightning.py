"""examples/train_lightning.py runs, also on two processes, and its checkpoints resume to the same losses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

from examples import train_lightning
from tests.integrations.lightning_parts import QUIET

pytestmark = [pytest.mark.filterwarnings(line) for line in QUIET]

SMALL = ["--samples", "96", "--tests", "16", "--batch-size", "16", "--epochs", "2", "--quiet", "--accelerator", "cpu"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of twelve steps, with a checkpoint every second."""
    folder = tmp_path_factory.mktemp("run")
    train(folder, folder / "curve.jsonl", "--every", "2", "--workers", "0")
    return folder


def train(checkpoints: Path, curve: Path, *more: str) -> list[dict[str, Any]]:
    arguments = [*SMALL, "--checkpoints", str(checkpoints), "--curve", str(curve), *more]
    assert train_lightning.main(arguments) == 0
    return read(curve)


def read(curve: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in curve.read_text().splitlines()]


def test_every_step_of_a_run_has_a_loss(run: Path) -> None:
    curve = read(run / "curve.jsonl")
    assert [(entry["epoch"], entry["step"]) for entry in curve] == [((step - 1) // 6, step) for step in range(1, 13)]
    assert len({entry["loss"] for entry in curve}) == 12


@pytest.mark.parametrize("step", [4, 6, 8])
def test_a_checkpoint_goes_on_with_the_same_losses(run: Path, tmp_path: Path, step: int) -> None:
    """In the middle of the first epoch, at its end, and in the middle of the second."""
    checkpoint = run / f"step={step}.ckpt"
    rest = train(tmp_path, tmp_path / "curve.jsonl", "--resume", str(checkpoint), "--workers", "1")
    assert rest == read(run / "curve.jsonl")[step:]


def test_it_runs_in_half_precision(tmp_path: Path) -> None:
    curve = train(tmp_path, tmp_path / "curve.jsonl", "--precision", "bf16-mixed", "--workers", "0", "--epochs", "1")
    assert len(curve) == 6


@pytest.mark.slow  # two more programs that import Lightning; tests/integrations has two ranks in every run
def test_two_processes_share_the_steps(tmp_path: Path) -> None:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    script = train_lightning.__file__
    more = ["--devices", "2", "--strategy", "ddp", "--workers", "0", "--curve", str(tmp_path / "curve.jsonl")]
    command = [sys.executable, script, *SMALL, *more, "--epochs", "1"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert [entry["step"] for entry in read(tmp_path / "curve.jsonl")] == [1, 2, 3]  # 2 × 16 of 96 samples each
