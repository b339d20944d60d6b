"""Seeds of workers are torch's, for every base seed and worker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data._utils.worker import _generate_state

from stoker.workers.identity import numpy_seed


@given(base_seed=st.integers(0, 2**63 - 1), worker=st.integers(0, 1000))
def test_numpys_seed_is_the_one_that_torch_gives(base_seed: int, worker: int) -> None:
    assert list(numpy_seed(base_seed, worker)) == list(_generate_state(base_seed, worker))
