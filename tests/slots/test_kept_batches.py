"""A batch that somebody holds is never overwritten, wherever it is held; what nobody holds is used again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.datasets import Made, picture
from tests.programs import Nursery
from tests.slots.pictures import CREWS, each_crew, firsts, pictures

import stoker
from stoker import Workers


@each_crew
def test_batches_kept_in_a_list_all_stay_as_they_were(workers: Workers) -> None:
    kept = list(pictures(240, workers))
    assert [firsts(batch) for batch in kept] == [list(range(at, at + 4)) for at in range(0, 240, 4)]


KEEPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a slice": lambda batch: batch[2, 1, 5:6],
    "a numpy view": lambda batch: batch.numpy()[2],
    "a memoryview": lambda batch: memoryview(batch.numpy())[2:3],
    "a closure": lambda batch: lambda: batch[2],
    "another dtype": lambda batch: batch.view(torch.int32)[2],
    "a detached transpose": lambda batch: batch.detach().permute(3, 1, 0, 2)[:, :, 2],
    "a storage": lambda batch: batch.untyped_storage(),
    "an autograd graph": lambda batch: (batch[2] * torch.ones(1, requires_grad=True)).sum().grad_fn,
}


def _bytes_of(kept: Any) -> bytes:
    if callable(kept) and not isinstance(kept, torch.Tensor) and not hasattr(kept, "next_functions"):
        kept = kept()
    if isinstance(kept, torch.UntypedStorage):
        return bytes(kept.tolist()[:5000])
    if hasattr(kept, "next_functions"):
        saved = kept.next_functions[0][0]._saved_self
        return bytes(saved.contiguous().view(torch.uint8).flatten().tolist()[:5000])
    if isinstance(kept, memoryview):
        return kept.tobytes()
    return torch.as_tensor(kept).contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("keep", KEEPS.values(), ids=KEEPS)
@pytest.mark.parametrize("name", ["inline", "processes"])
def test_whatever_is_kept_of_a_batch_stays_as_it_was(name: str, keep: Callable[[torch.Tensor], Any]) -> None:
    iterator = iter(pictures(160, CREWS[name]))
    next(iterator)
    kept = keep(next(iterator))
    before = _bytes_of(kept)
    for _ in iterator:
        pass
    assert _bytes_of(kept) == before


@each_crew
def test_batches_kept_by_another_thread_stay_as_they_were(workers: Workers) -> None:
    import queue

    handed: queue.Queue[torch.Tensor | None] = queue.Queue()
    seen: list[list[int]] = []

    def look_late() -> None:
        kept = []
        while (batch := handed.get()) is not None:
            kept.append(batch)
            if len(kept) == 5:
                seen.append(firsts(kept.pop(0)))
        seen.extend(map(firsts, kept))

    thread = threading.Thread(target=look_late)
    thread.start()
    for batch in pictures(120, workers):
        handed.put(batch)
    handed.put(None)
    thread.join()
    assert seen == [list(range(at, at + 4)) for at in range(0, 120, 4)]


@each_crew
def test_slots_of_dropped_batches_are_used_again(workers: Workers) -> None:
    iterator = iter(pictures(400, workers))
    for batch in iterator:
        del batch
    assert iterator._pool.made <= 10


@each_crew
def test_batches_outlive_their_iterator_and_loader(workers: Workers) -> None:
    loader = pictures(40, workers)
    iterator = iter(loader)
    kept = [next(iterator) for _ in range(3)]
    del loader, iterator
    again = list(pictures(40, workers))
    assert [firsts(batch) for batch in kept] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    del again


class Counted(Made):
    """Lets a test wait until samples have been loaded."""

    def __init__(self, length: int) -> None:
        super().__init__(length, picture)
        self.loaded = torch.multiprocessing.get_context("fork").Semaphore(0)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.loaded.release()
        return picture(index)


def test_epochs_left_early_do_not_use_up_slots() -> None:
    dataset = Counted(80)
    loader = stoker.DataLoader(dataset, 4, workers=CREWS["processes"], persistent_workers=True)
    for _ in range(40):
        iterator = iter(loader)
        next(iterator)
        for _ in range(12):  # the first batch, and two more that will not be asked for
            dataset.loaded.acquire()
        next(iterator)
    made = iterator._pool.made
    del loader, iterator
    assert made <= 24


@each_crew
def test_errors_do_not_use_up_slots(workers: Workers) -> None:
    def odd(index: int) -> torch.Tensor:
        if index % 4 == 3:
            raise ValueError(index)
        return picture(index)

    iterator = iter(stoker.DataLoader(Made(400, odd), 4, workers=workers))
    raised = 0
    while True:
        try:
            next(iterator)
        except StopIteration:
            break
        except ValueError:
            raised += 1
    assert raised == 100
    assert iterator._pool.made <= 10


@pytest.mark.parametrize("size", [1, 31, 32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, 65_537])
@each_crew
def test_batches_of_any_size_in_bytes_arrive(size: int, workers: Workers) -> None:
    kept = list(stoker.DataLoader(Made(5, lambda i: torch.full((size,), i, dtype=torch.uint8)), 1, workers=workers))
    assert [(len(batch[0]), int(batch.min()), int(batch.max())) for batch in kept] == [(size, i, i) for i in range(5)]


@pytest.mark.parametrize("name", ["inline", "processes"])
def test_a_batch_of_300_megabytes_arrives_after_small_ones(name: str) -> None:
    def grown(index: int) -> torch.Tensor:
        return torch.full((75_000_000 if index == 2 else 50_000,), index, dtype=torch.float32)

    for index, batch in enumerate(stoker.DataLoader(Made(4, grown), 1, workers=CREWS[name])):
        assert batch.eq(index).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["inline", "processes"])
def test_a_batch_of_more_than_two_gibibytes_arrives(name: str) -> None:
    (batch,) = stoker.DataLoader(
        Made(2, lambda i: torch.full((2**30 + 5,), i, dtype=torch.uint8)), 2, workers=CREWS[name]
    )
    assert batch.shape == (2, 2**30 + 5)
    assert not batch[0].any()
    assert batch[1].eq(1).all()


def test_nothing_appears_in_dev_shm() -> None:
    before = set(os.listdir("/dev/shm"))
    iterator = iter(pictures(40, CREWS["processes"]))
    kept = [next(iterator) for _ in range(4)]
    assert set(os.listdir("/dev/shm")) == before
    del kept


FEW_DESCRIPTORS = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import stoker
from stoker import Workers
from tests.datasets import Made, picture
kept = []
for epoch in range(3):
    kept += stoker.DataLoader(Made(300, picture), 2, workers=Workers(2, 2, "fork"))
print(sum(int(batch.flatten(1)[:, 0].sum()) for batch in kept))
"""


@pytest.mark.faults
def test_sixty_four_descriptors_are_enough_for_hundreds_of_kept_batches(nursery: Nursery, tmp_path: Path) -> None:
    program = tmp_path / "few_descriptors.py"
    program.write_text(FEW_DESCRIPTORS)
    done = nursery.run(program)
    assert done.stdout.strip() == str(3 * sum(range(300))), done.stderr
