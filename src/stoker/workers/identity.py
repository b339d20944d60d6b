"""Who a worker is to the user's code: its id, its seeds, `torch.utils.data.get_worker_info()`.

As torch documents it: Python's and torch's generators start from base seed + worker id, NumPy's from a seed sequence of
both; torch computes with one thread in a worker. A worker that has not imported torch gets along without it, and takes
on torch's part at the very moment when the user's code imports it, in the middle of a sample if need be.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import random
import sys
from collections.abc import Callable, Sequence
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
        if not self.meet_torch():
            sys.meta_path.insert(0, _OnImport("torch", self.meet_torch))

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


class _OnImport(importlib.abc.MetaPathFinder):
    """Calls a function as soon as a certain module has been imported for the first time."""

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self._name, self._then = name, then

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)  # the others find it
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self._then()

        loader.exec_module = exec_module


def numpy_seed(base_seed: int, worker_id: int) -> Any:
    """Four words for NumPy's global generator, the same that torch's loader gives this worker."""
    words = [worker_id, base_seed & _WORD, base_seed >> 32, 0]
    return np.random.SeedSequence(words).generate_state(4)
