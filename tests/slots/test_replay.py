"""Batches that are kept where a worker can see them: they never change there, whoever forked it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.slots.pictures import pictures

import stoker
from stoker import Workers

LARGE = 70_000  # bytes: small batches are copied out of their slots


class Replay(torch.utils.data.Dataset[Any]):
    """Gives what lies in its buffer."""

    def __init__(self) -> None:
        self.buffer: list[torch.Tensor] = []

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return self.buffer[0].clone() if self.buffer else torch.zeros(1)


@pytest.mark.parametrize("share", ["auto", "rows", "batches"])
def test_a_batch_kept_in_another_loaders_worker_is_not_overwritten(share: Any) -> None:
    replay = Replay()
    iterator: Any = iter(pictures(400, Workers(2, 1, "fork")))
    replay.buffer.append(next(iterator))
    wanted = replay.buffer[0].clone()
    second = iter(stoker.DataLoader(replay, 1, workers=Workers(2, 1, "fork", share=share), prefetch_factor=2))
    replay.buffer.clear()
    for later in iterator:  # the slot would be used again and again
        del later
    for batch in second:
        assert torch.equal(batch[0], wanted)


def test_a_batch_kept_in_a_worker_that_was_started_anew_is_not_overwritten() -> None:
    """The same loader's own worker, replaced while its dataset holds a batch of that loader."""
    from tests.faults.killing import kill

    replay = KeptPictures()
    loader = stoker.DataLoader(replay, 4, workers=Workers(1, 1, "fork", on_death="restart"))
    iterator: Any = iter(loader)
    replay.buffer.append(next(iterator)["picture"])
    wanted = replay.buffer[0].clone()
    kill(iterator._workers)
    taken = [next(iterator) for _ in range(3)]  # the new worker has the buffer
    replay.buffer.clear()
    del taken
    seen = [batch["kept"] for batch in iterator]
    assert seen
    for kept in seen[8:]:
        assert torch.equal(kept[0], wanted[:, :8])


class KeptPictures(Replay):
    """Pictures, and the first one of the buffer beside each."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> Any:
        picture = torch.full((LARGE // 4,), float(index))
        return {"picture": picture, "kept": self.buffer[0][:, :8].clone() if self.buffer else torch.zeros(4, 8)}


def test_slots_are_used_again_when_the_workers_that_may_have_held_them_are_gone() -> None:
    train: Any = iter(pictures(2000, Workers(2, 1, "fork")))
    for step, batch in enumerate(train):
        if step % 20 == 0:  # a validation in the middle of an epoch
            assert len(list(pictures(8, Workers(1, 1, "fork")))) == 2
        del batch
    assert train._pool.made <= 24
