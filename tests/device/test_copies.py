"""Copying ahead to a device with streams: which calls, in which order, and when memory is used again.

No CUDA device is needed, and none was used: `RecordingDriver` stands where `CudaDriver` would.
"""

from __future__ import annotations

import gc
from collections import namedtuple
from typing import Any

import pytest
import torch
from tests.device.recording import RecordingDriver

import stoker
from stoker.device import device_loader
from stoker.device.copies import Copies, PlainCopies, StreamCopies, copies_for
from stoker.device.tree import change_leaves, leaves_in
from stoker.slots import region_of

SAMPLES, WIDE = 48, 16_384  # a batch of four is 256 KB, large enough to be a view of its slot
Pair = namedtuple("Pair", ["x", "y"])


class Marked:
    """A sample is full of its own number."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((WIDE,), float(index)), index


class Movable:
    """An object of the user's own that can move, and says nothing of its tensors."""

    def __init__(self, place: str = "here") -> None:
        self.place = place

    def to(self, device: Any) -> Movable:
        return Movable(str(device))


class Graph(Movable):
    """One that can also be told which stream uses it."""

    def to(self, device: Any, non_blocking: bool = False) -> Graph:
        return Graph(str(device))

    def record_stream(self, stream: Any) -> None:
        raise AssertionError("the driver calls this")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> RecordingDriver:
    """What every loader with a device copies with, in this test."""
    driver = RecordingDriver()
    monkeypatch.setattr(device_loader, "copies_for", lambda device: StreamCopies(driver))
    return driver


def is_whole(batch: Any, numbers: list[int]) -> bool:
    rows, labels = batch
    return labels.tolist() == numbers and all(bool((row == n).all()) for row, n in zip(rows, numbers, strict=True))


def test_a_batch_is_copied_recorded_waited_for_and_kept_in_this_order(driver: RecordingDriver) -> None:
    loader = stoker.to_device(stoker.DataLoader(Marked(), 4, workers=stoker.Workers(0, 2)), "cpu", depth=0)
    batches = iter(loader)
    assert is_whole(next(batches), [0, 1, 2, 3])
    assert driver.names() == [
        "register",
        "begin copying",
        "copy",
        "copy",
        "record",
        "end copying",
        "wait in step",
        "keep",
        "keep",
    ]
    del batches
    assert driver.names()[-2:] == ["wait", "unregister"]


@pytest.mark.parametrize(
    "workers", [stoker.Workers(0), stoker.Workers(0, 2), stoker.Workers(2)], ids=["inline", "threads", "processes"]
)
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_slots_are_used_again_but_never_under_a_copy(
    driver: RecordingDriver, workers: stoker.Workers, depth: int
) -> None:
    loader = stoker.to_device(stoker.DataLoader(Marked(), 4, workers=workers), "cpu", depth=depth)
    for number, batch in enumerate(loader):
        assert is_whole(batch, list(range(4 * number, 4 * number + 4)))
    assert number == SAMPLES // 4 - 1
    assert 1 <= driver.names().count("register") < SAMPLES // 4  # else no slot was ever used twice


def test_every_slot_is_registered_once_as_a_whole_and_let_go_before_it_is_unmapped(driver: RecordingDriver) -> None:
    loader = stoker.DataLoader(Marked(), 4, num_workers=2, persistent_workers=True, device="cpu")
    for _ in range(3):
        assert len(list(loader)) == SAMPLES // 4
    registered = [call[1] for call in driver.calls if call[0] == "register"]
    assert len(registered) == len(set(registered))
    assert all(call[2] >= 4 * WIDE * 4 for call in driver.calls if call[0] == "register")
    del loader
    gc.collect()
    assert driver.registered == set()
    assert sorted(call[1] for call in driver.calls if call[0] == "unregister") == sorted(registered)


def test_host_memory_is_held_until_its_event_has_happened() -> None:
    driver = RecordingDriver()
    copies = StreamCopies(driver)
    source = stoker.DataLoader(Marked(), 4, workers=stoker.Workers(0, 2))
    batches = iter(source)
    copied = copies.start(next(batches))
    assert source.stats().slots_leased == 1
    later = copies.start(next(batches))
    assert source.stats().slots_leased == 2
    copies.hand_over(copied)  # lets the first event happen
    copies.start((torch.zeros(1), 0))
    assert source.stats().slots_leased == 1
    copies.hand_over(later)
    copies.close()
    assert source.stats().slots_leased == 0


def test_closing_waits_for_copies_under_way_in_turn() -> None:
    driver = RecordingDriver()
    copies = StreamCopies(driver)
    copies.start(torch.ones(3))
    copies.start(torch.ones(3))
    copies.close()
    assert [call for call in driver.calls if call[0] == "wait"] == [("wait", 1), ("wait", 2)]


def test_a_driver_that_refuses_to_lock_pages_is_asked_once_a_slot() -> None:
    driver = RecordingDriver(refuses=True)
    copies = StreamCopies(driver)
    batch = next(iter(stoker.DataLoader(Marked(), 4)))
    for _ in range(3):
        assert is_whole(copies.hand_over(copies.start(batch)), [0, 1, 2, 3])
    assert driver.names().count("register") == 1
    copies.close()
    del batch
    gc.collect()
    assert "unregister" not in driver.names()


def test_memory_that_is_no_slot_is_copied_from_where_it_is() -> None:
    driver = RecordingDriver()
    batch = torch.arange(6.0)
    assert region_of(batch.data_ptr()) is None
    copies = StreamCopies(driver)
    assert copies.hand_over(copies.start({"x": [batch]}))["x"][0].tolist() == batch.tolist()
    assert "register" not in driver.names()
    copies.close()


def test_objects_that_do_not_show_their_tensors_are_copied_in_the_step() -> None:
    driver = RecordingDriver()
    copies = StreamCopies(driver)
    handed = copies.hand_over(copies.start([Movable(), Graph()]))
    assert [thing.place for thing in handed] == ["somewhere", "somewhere"]
    assert [call for call in driver.calls if call[0].startswith(("copy", "keep"))] == [
        ("copy", "Graph"),
        ("keep", "Graph"),
        ("copy in step", "Movable"),
    ]
    copies.close()


def test_containers_come_out_as_what_they_were() -> None:
    x, y = torch.zeros(1), torch.ones(2)
    batch = {"pair": Pair(x, [y, "text", 3]), "none": None, "bytes": b"ab", "many": (x, (y,))}
    doubled = change_leaves(batch, lambda leaf: leaf * 2)
    assert type(doubled["pair"]) is Pair
    assert doubled["pair"].y[1:] == ["text", 3]
    assert torch.equal(doubled["many"][1][0], y * 2)
    assert batch["pair"].y[0] is y  # type: ignore[union-attr]
    assert list(map(id, leaves_in(batch))) == list(map(id, [x, y, x, y]))


def test_a_batch_in_which_nothing_changes_is_the_same_object() -> None:
    batch = {"pair": Pair(torch.zeros(1), ["text"]), "rest": [range(3)]}
    assert change_leaves(batch, lambda leaf: leaf) is batch
    copies: Copies = PlainCopies("cpu")
    assert copies.hand_over(copies.start(batch)) is batch


def test_a_packed_sequence_moves_itself() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    moved = PlainCopies("meta").start({"packed": packed}).batch["packed"]
    assert type(moved) is type(packed)
    assert moved.data.device.type == "meta"


def test_only_cuda_gets_streams() -> None:
    assert isinstance(copies_for("cpu"), PlainCopies)
    assert isinstance(copies_for(torch.device("meta")), PlainCopies)
