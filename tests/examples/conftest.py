"""Examples set how many threads torch computes with, which is the whole process's: put back afterwards.

One thread, because these are many tests on few cores, with tensors too small to share; and because sums come out in
another last digit with another number of threads. So what a whole file shares is made with one as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_thread_for_all() -> Iterator[None]:
    """For what is made once for a file."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def one_thread(one_thread_for_all: None) -> None:
    """For each test, whatever the one before has set."""
    torch.set_num_threads(1)
