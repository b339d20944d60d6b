"""Ranks of DistributedDataParallel, as hosts or as replicas, train like one process on all their rows together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.ddp_ranks import CASES, RANKS, make_loader, make_model, make_plan, train, weights

from stoker import BatchPlan

SCRIPT = Path(__file__).with_name("ddp_ranks.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What came out of all cases, in one start of the ranks: importing torch takes longer than training."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[2]), *sys.path])}
    environment |= {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(SCRIPT), str(folder)], env=environment, check=True, timeout=100)
    return json.loads((folder / "results.json").read_text())


def reference(plan: BatchPlan, tail: str) -> tuple[list[float], int]:
    """Plain training on the real rows of all ranks together: the weights, and how many weight updates they took."""
    model, updates = make_model(), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loaders = [make_loader(plan, tail, shard=(rank, RANKS)) for rank in range(RANKS)]
    for _ in range(2):
        for batches in zip(*loaders, strict=True):
            for parts in zip(*(batch.iterations() for batch in batches), strict=True):
                inputs, targets = (torch.cat([_real(part, column) for part in parts]) for column in (0, 1))
                if not len(inputs):
                    continue
                optimizer.zero_grad()
                torch.autograd.backward((model(inputs) - targets).square().mean())
                optimizer.step()
                updates += 1
    return weights(model), updates


def _real(part: Any, column: int) -> torch.Tensor:
    rows: torch.Tensor = part.data[column]
    return rows if part.mask is None else rows[part.mask]


@pytest.mark.parametrize("case", CASES)
def test_ranks_train_like_one_process(case: str, results: Any) -> None:
    hosts, replicas, tail = CASES[case]
    expected, updates = reference(make_plan(hosts, replicas), tail)
    torch.testing.assert_close(results[case]["weights"], expected)
    assert results[case]["exchanges"] == updates  # once for each weight update, not for each micro-step


def test_replicas_that_are_ranks_train_like_replicas_of_one_process(results: Any) -> None:
    model = make_model()
    seen = train(model, make_loader(make_plan(1, 2), "drop"))
    torch.testing.assert_close(results["replicas"]["weights"], weights(model))
    assert sorted(index for part in results["replicas"]["seen"] for index in part) == sorted(seen)
