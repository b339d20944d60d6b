"""The calls to CUDA: which of torch's each one is, and on a machine with a GPU, that they work.

Without a GPU torch's functions are stand-ins that write down what they are asked: this shows that the calls are made,
not that a device does what they ask for.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from tests.datasets import Made, picture

import stoker
from stoker.device.copies import StreamCopies, copies_for


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """Stands where torch.cuda's functions are."""
    cuda = MagicMock()
    cuda.cudart().cudaHostRegister.return_value = 0
    cuda.current_device.return_value = 3
    cuda.stream.side_effect = lambda stream: contextlib.nullcontext(stream)
    for name in ("cudart", "current_device", "current_stream", "Stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(cuda, name))
    return cuda


def driver_of(copies: Any) -> Any:
    assert isinstance(copies, StreamCopies)
    return copies._driver


def test_a_device_without_a_number_is_the_current_one(cuda: MagicMock) -> None:
    driver_of(copies_for("cuda"))
    cuda.Stream.assert_called_once_with(torch.device("cuda", 3))
    driver_of(copies_for("cuda:1"))
    cuda.Stream.assert_called_with(torch.device("cuda", 1))


def test_copies_run_on_the_copy_stream_and_steps_wait_for_them_on_their_own(cuda: MagicMock) -> None:
    driver = driver_of(copies_for("cuda:1"))
    copying, step = cuda.Stream.return_value, cuda.current_stream.return_value
    leaf = MagicMock(device=torch.device("cuda", 1))
    with driver.copying() as stream:
        assert stream is copying
        assert driver.copy(leaf) is leaf.to.return_value
        event = driver.record()
    leaf.to.assert_called_once_with(torch.device("cuda", 1), non_blocking=True)
    assert event is copying.record_event.return_value
    driver.wait_in_step(event)
    step.wait_event.assert_called_once_with(event)
    driver.keep(leaf)
    leaf.record_stream.assert_called_once_with(step)
    event.query.return_value = False
    assert driver.has_happened(event) is False
    driver.wait(event)
    event.synchronize.assert_called_once_with()


def test_a_tensor_that_was_left_on_the_host_is_not_kept_for_a_stream(cuda: MagicMock) -> None:
    leaf = MagicMock(device=torch.device("cpu"))
    driver_of(copies_for("cuda:1")).keep(leaf)
    leaf.record_stream.assert_not_called()


def test_an_object_whose_to_takes_a_device_only_is_copied_all_the_same(cuda: MagicMock) -> None:
    driver = driver_of(copies_for("cuda:1"))
    thing = SimpleNamespace(to=lambda device: str(device))
    assert driver.copy(thing) == driver.copy_in_step(thing) == "cuda:1"


def test_host_memory_is_registered_by_address_for_all_devices(cuda: MagicMock) -> None:
    driver = driver_of(copies_for("cuda"))
    assert driver.register(4096, 8192) is True
    cuda.cudart().cudaHostRegister.assert_called_once_with(4096, 8192, 1)
    driver.unregister(4096)
    cuda.cudart().cudaHostUnregister.assert_called_once_with(4096)


def test_a_registration_that_fails_is_told_and_its_error_is_used_up(
    cuda: MagicMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda.cudart().cudaHostRegister.return_value = 2
    asked = MagicMock(side_effect=RuntimeError("CUDA error: out of memory"))
    monkeypatch.setattr(torch, "zeros", asked)
    with pytest.warns(UserWarning, match=r"8,192 bytes \(error 2\).*ulimit -l"):
        assert driver_of(copies_for("cuda")).register(4096, 8192) is False
    asked.assert_called_once_with(1, device=torch.device("cuda", 3))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("workers", [stoker.Workers(0), stoker.Workers(2)], ids=["inline", "processes"])
def test_batches_arrive_on_a_real_device(workers: stoker.Workers) -> None:
    loader = stoker.DataLoader(Made(64, picture), 4, workers=workers, device="cuda")
    for number, batch in enumerate(loader):
        assert batch.device.type == "cuda"
        assert torch.equal(batch[:, 0, 0, 0].cpu(), torch.arange(4.0) + 4 * number)
