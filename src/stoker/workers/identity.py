"""Who a worker is to the user's code: its id, its seeds, `torch.utils.data.get_worker_info()`.

As torch documents it: Python's and torch's generators start from base seed + worker id, NumPy's from a seed sequence of
both; torch computes with one thread in a worker. A worker that has not imported torch gets along without it, and takes
on torch's part when the user's code imports it (`Identity.meet_torch`).
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from stoker.contracts import WorkerSeat

_WORD = 0xFFFFFFFF


@dataclass
class Identity:
    """Assumes a seat, and shows it to torch as soon as torch is there."""

    seat: WorkerSeat
    dataset: Any
    knows_torch: bool = False

    @property
    def seed(self) -> int:
        return self.seat.base_seed + self.seat.id

    def assume(self) -> None:
        random.seed(self.seed)
        np.random.seed(numpy_seed(self.seat.base_seed, self.seat.id))
        self.meet_torch()

    def meet_torch(self) -> bool:
        """Tell torch who this worker is, once it has been imported; says whether it was news."""
        if self.knows_torch or "torch" not in sys.modules:
            return False
        self.knows_torch = True
        import torch
        from torch.utils.data._utils import worker

        torch.set_num_threads(1)
        torch.manual_seed(self.seed)
        worker._worker_info = worker.WorkerInfo(
            id=self.seat.id, num_workers=self.seat.count, seed=self.seed, dataset=self.dataset
        )
        return True


def numpy_seed(base_seed: int, worker_id: int) -> Any:
    """Four words for NumPy's global generator, the same that torch's loader gives this worker."""
    words = [worker_id, base_seed & _WORD, base_seed >> 32, 0]
    return np.random.SeedSequence(words).generate_state(4)
