"""Seeds of workers are torch's, for every base seed and worker."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.programs import Nursery
from torch.utils.data._utils.worker import _generate_state

from stoker.workers.identity import numpy_seed


@given(base_seed=st.integers(0, 2**63 - 1), worker=st.integers(0, 1000))
def test_numpys_seed_is_the_one_that_torch_gives(base_seed: int, worker: int) -> None:
    assert list(numpy_seed(base_seed, worker)) == list(_generate_state(base_seed, worker))


class Plain:
    """A dataset that imports torch in the middle of a sample, and tells what a worker should then know."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        had_torch = "torch" in sys.modules
        import torch
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        known = (info.id, info.num_workers, info.seed) if info is not None else None
        return np.array([had_torch, *(known or (-1, -1, -1)), torch.initial_seed(), torch.get_num_threads()])


@pytest.mark.parametrize("lanes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_worker_that_imports_torch_in_a_sample_knows_at_once_who_it_is(
    lanes: int, nursery: Nursery, tmp_path: Path
) -> None:
    """In a program of its own: the dataset's module must not have imported torch."""
    program = tmp_path / "plain.py"
    source = inspect.getsource(Plain).replace("-> Any", "")
    program.write_text(PROGRAM.format(plain=source, lanes=lanes))
    nursery.run(program).check_returncode()


PROGRAM = """
import sys
import numpy as np

{plain}

if __name__ == "__main__":
    import stoker

    loader = stoker.DataLoader(Plain(), 1, workers=stoker.Workers(2, {lanes}, "spawn"))
    rows = [batch[0].tolist() for batch in loader]
    assert not all(row[0] for row in rows)  # whoever came first in each process met it without torch
    for _, worker, workers, seed, torch_seed, threads in rows:
        assert worker in (0, 1)
        assert workers == 2
        assert seed == torch_seed
        assert threads == 1
"""
