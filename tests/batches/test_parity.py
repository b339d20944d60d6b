"""Batches are what torch's own loader gives, for every kind of sample: same bits, types, strides and errors.

The reference is torch's loader itself, inline for inline and in a worker for workers: torch makes contiguous batches in
workers and lets permuted samples decide the strides in the training process. In a worker torch stacks into shared
memory made for the first sample's dtype, which for some mixed kinds changes the result or fails: there the reference
is what torch gives without workers, because batches must not depend on the number of workers.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from tests.batches.kinds import KINDS, ROWS
from tests.comparing import Described, described, outcomes, tried
from torch.utils.data import DataLoader
from torch.utils.data._utils.collate import default_collate_fn_map

import stoker
from stoker import Workers

BATCH = 4  # of six rows: a full batch and a short one
ODD_IN_TORCHS_WORKERS = {
    "tensor conjugated", "tensor negated", "tensor quantized", "tensor or number", "tensor or array", "array or number",
    "tensors of several dtypes, narrow first", "tensors of whole numbers or not", "arrays of several dtypes",
    "arrays of whole numbers or not",
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def samples_of(kind: str) -> list[Any]:
    return [KINDS[kind](row) for row in range(ROWS)]


@pytest.fixture(scope="module")
def torch_in_a_worker() -> dict[str, list[Described]]:
    """What torch's loader gives for every kind, made by one worker."""
    samples: list[Any] = [sample for kind in KINDS for sample in samples_of(kind)]
    begins = range(0, len(samples), ROWS)
    batches = [list(range(*cut)) for at in begins for cut in ((at, at + BATCH), (at + BATCH, at + ROWS))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = outcomes(DataLoader(samples, batch_sampler=batches, num_workers=1))
    return {kind: found[2 * at : 2 * at + 2] for at, kind in enumerate(KINDS)}


@pytest.mark.parametrize("kind", KINDS)
def test_inline_batches_are_exactly_torchs(kind: str) -> None:
    samples = samples_of(kind)
    expected = outcomes(DataLoader(samples, BATCH))
    assert outcomes(stoker.DataLoader(samples, BATCH)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_threads_are_exactly_torchs_inline_batches(kind: str) -> None:
    samples = samples_of(kind)
    expected = outcomes(DataLoader(samples, BATCH))
    assert outcomes(stoker.DataLoader(samples, BATCH, workers=Workers(processes=0, threads=3))) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_two_workers_are_exactly_those_of_torchs_worker(
    kind: str, torch_in_a_worker: dict[str, list[Described]]
) -> None:
    samples = samples_of(kind)
    expected = outcomes(DataLoader(samples, BATCH)) if kind in ODD_IN_TORCHS_WORKERS else torch_in_a_worker[kind]
    found = outcomes(stoker.DataLoader(samples, BATCH, num_workers=2, multiprocessing_context="fork"))
    if kind == "tensor that needs a gradient":  # both refuse, at different places
        assert [said[:2] for said in found] == [said[:2] for said in expected] == [("raised", RuntimeError)] * 2
    else:
        assert found == expected


@pytest.mark.parametrize("share", ["rows", "batches"])
@pytest.mark.parametrize("kind", ["record", "tensor channels last", "ragged in the last row", "text or number", "int"])
def test_sharing_does_not_change_batches(kind: str, share: Any, torch_in_a_worker: dict[str, list[Described]]) -> None:
    workers = Workers(processes=2, threads=3, start_method="fork", share=share)
    assert outcomes(stoker.DataLoader(samples_of(kind), BATCH, workers=workers)) == torch_in_a_worker[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_single_samples_inline_are_exactly_torchs(kind: str) -> None:
    samples = samples_of(kind)
    assert outcomes(stoker.DataLoader(samples, batch_size=None)) == outcomes(DataLoader(samples, batch_size=None))


SENT_AS_THEY_ARE = [
    "record", "text", "tensor bfloat16", "tensor channels last", "array fortran", "none", "own dict", "tensor empty",
    "tensor empty in the middle", "array empty", "sparse", "nested", "class", "array O", "named tuple",
]  # fmt: skip


@pytest.mark.parametrize("kind", SENT_AS_THEY_ARE)
def test_single_samples_of_workers_are_exactly_torchs(kind: str) -> None:
    samples = samples_of(kind)
    expected = outcomes(DataLoader(samples, batch_size=None, num_workers=1))
    loader = stoker.DataLoader(samples, batch_size=None, num_workers=2, multiprocessing_context="fork")
    assert outcomes(loader) == expected


class Celsius:
    """A value that `default_collate` knows nothing of until it is registered."""

    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


def _mean(batch: list[Celsius], *, collate_fn_map: Any = None) -> torch.Tensor:
    return torch.tensor([value.degrees for value in batch]).mean()


def _joined(batch: list[Any], *, collate_fn_map: Any = None) -> str:
    return "+".join(map(str, batch))


@pytest.mark.parametrize("workers", [Workers(), Workers(0, 3), Workers(2, 1, "fork"), Workers(2, 2, "fork", "batches")])
def test_registered_collate_types_are_respected(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(default_collate_fn_map, Celsius, _mean)
    samples = [{"t": Celsius(float(row)), "n": row} for row in range(ROWS)]
    assert outcomes(stoker.DataLoader(samples, BATCH, workers=workers)) == outcomes(DataLoader(samples, BATCH))


@pytest.mark.parametrize("kind", [int, str, torch.Tensor, tuple, dict])
@pytest.mark.parametrize("workers", [Workers(), Workers(2, 1, "fork")])
def test_a_builtin_type_may_be_registered_anew(kind: type, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(default_collate_fn_map, kind, _joined)
    samples = [{"t": torch.tensor(row), "n": (row, "x")} for row in range(ROWS)]
    assert outcomes(stoker.DataLoader(samples, BATCH, workers=workers)) == outcomes(DataLoader(samples, BATCH))


@pytest.mark.parametrize("workers", [Workers(), Workers(0, 3), Workers(2, 1, "fork"), Workers(2, 2, "fork", "batches")])
def test_a_huge_collection_of_text_arrives_whole(workers: Workers) -> None:
    samples = [(f"{row}" * 500, bytes([row % 256] * 700)) for row in range(3000)]
    assert outcomes(stoker.DataLoader(samples, 2048, workers=workers)) == outcomes(DataLoader(samples, 2048))


@pytest.mark.parametrize("workers", [Workers(), Workers(0, 3), Workers(2, 1, "fork")])
def test_an_empty_batch_fails_as_torchs_does_and_the_next_one_comes(workers: Workers) -> None:
    batches: list[list[int]] = [[0, 1], [], [2]]
    expected = outcomes(DataLoader([1, 2, 3], batch_sampler=batches))
    assert outcomes(stoker.DataLoader([1, 2, 3], batch_sampler=batches, workers=workers)) == expected


@pytest.mark.parametrize("workers", [Workers(), Workers(0, 3), Workers(2, 1, "fork")])
def test_an_empty_batch_may_be_collated_by_the_user(workers: Workers) -> None:
    loader = stoker.DataLoader([1, 2], batch_sampler=[[0], [], [1]], collate_fn=list, workers=workers)
    assert list(loader) == [[1], [], [2]]


def test_batches_can_be_written_to_and_resized_in_place_views() -> None:
    for workers in (Workers(), Workers(0, 2), Workers(2, 1, "fork")):
        (batch,) = stoker.DataLoader(torch.ones(40, 400), 40, workers=workers)
        batch.add_(1)
        assert described(batch) == described(torch.full((40, 400), 2.0))


def test_construction_errors_are_described_too() -> None:
    assert tried(lambda: DataLoader([1], batch_size=0)) == tried(lambda: stoker.DataLoader([1], batch_size=0))
