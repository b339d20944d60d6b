"""Views of a step's batch: equal to a reshape, in the batch's own memory, whatever the batch is made of."""

from __future__ import annotations

import collections
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from tests.plan.plans import plans

from stoker import BatchPlan, StepBatch

PLAN = BatchPlan(2, gradient_accumulation=2, replicas=3, device_iterations=2)
ROWS = PLAN.combined_batch


class Pair(NamedTuple):
    x: Any
    y: Any


class Bag:
    """A type of a user's own, known to torch's pytrees."""

    def __init__(self, content: Any) -> None:
        self.content = content


torch.utils._pytree.register_pytree_node(
    Bag, lambda bag: ([bag.content], None), lambda parts, _: Bag(next(iter(parts)))
)


def texts(rows: int) -> list[str]:
    return [f"sample {row}" for row in range(rows)]


@settings(max_examples=60, deadline=None)
@given(plans())
def test_views_equal_the_reference_reshape(plan: BatchPlan) -> None:
    rows = plan.combined_batch
    data, names = torch.arange(rows * 3).reshape(rows, 3), texts(rows)
    batch, reference = StepBatch((data, names), plan), data.reshape(*plan.shape, 3)
    named = np.array(names, dtype=object).reshape(plan.shape)

    grid, grid_names = batch.grid()
    assert torch.equal(grid, reference)
    assert grid_names == named.tolist()
    for replica in range(plan.replicas):
        seen, seen_names = batch.replica(replica)
        assert torch.equal(seen, reference[:, :, plan.group_of(replica)])
        assert seen_names == named[:, :, plan.group_of(replica)].tolist()
    expected = reference.reshape(-1, plan.micro_batch, 3)
    assert [piece.tolist() for piece, _ in batch.micro_batches()] == expected.tolist()
    iterations = list(batch.iterations())
    assert [part.data[0].tolist() for part in iterations] == data.reshape(plan.device_iterations, -1, 3).tolist()
    assert all(torch.equal(part.grid()[0][0], reference[d]) for d, part in enumerate(iterations))


def test_views_share_the_batchs_memory() -> None:
    data = torch.arange(ROWS * 5.0).reshape(ROWS, 5)
    batch = StepBatch({"x": data}, PLAN)
    assert batch.grid()["x"].data_ptr() == data.data_ptr()
    for number, piece in enumerate(batch.micro_batches()):
        assert piece["x"].data_ptr() == data[number * PLAN.micro_batch].data_ptr()
    for replica in range(PLAN.replicas):
        row = PLAN.row_of(0, 0, replica, 0)
        assert batch.replica(replica)["x"].data_ptr() == data[row].data_ptr()
        assert batch.micro_batch(replica=replica)["x"].data_ptr() == data[row].data_ptr()
    for number, part in enumerate(batch.iterations()):
        assert part["x"].data_ptr() == data[number * ROWS // 2].data_ptr()
    batch.replica(1)["x"].zero_()
    assert data[PLAN.row_of(1, 1, 1, 1)].tolist() == [0.0] * 5


STRUCTURES = {
    "tensor": lambda x, names: x,
    "array": lambda x, names: x.numpy(),
    "tuple": lambda x, names: (x, names),
    "list": lambda x, names: [x, x + 1],
    "dictionary": lambda x, names: {"x": x, "names": names},
    "ordered": lambda x, names: collections.OrderedDict(b=x, a=names),
    "named": lambda x, names: Pair(x, names),
    "nested": lambda x, names: {"pair": Pair(x, [x, (names, x)]), "deep": [{"x": x}]},
    "texts": lambda x, names: names,
    "registered": lambda x, names: Bag({"x": x}),
    "ragged": lambda x, names: ([torch.zeros(3, row + 1) for row in range(len(x))], names),
    "constants": lambda x, names: {"x": x, "dataset": "train", "scale": torch.tensor(0.5), "classes": ["a", "b", "c"]},
}


def leaves(tree: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(tree)


@pytest.mark.parametrize("kind", STRUCTURES)
def test_any_structure_is_cut_by_rows(kind: str) -> None:
    x, names = torch.arange(float(ROWS)), texts(ROWS)
    batch = StepBatch(STRUCTURES[kind](x, names), PLAN)
    assert len(batch) == ROWS
    for number, piece in enumerate(batch.micro_batches()):
        rows = slice(number * 2, number * 2 + 2)
        expected = STRUCTURES[kind](x[rows], names[rows])
        if kind == "ragged":
            expected = ([torch.zeros(3, row + 1) for row in range(ROWS)][rows], names[rows])
        assert type(piece) is type(expected)
        for got, wanted in zip(leaves(piece), leaves(expected), strict=True):
            assert got.tolist() == wanted.tolist() if hasattr(got, "tolist") else got == wanted


def test_the_batch_is_used_in_place_of_its_data() -> None:
    x, y = torch.arange(ROWS), torch.arange(ROWS)
    images, labels = StepBatch((x, y), PLAN)
    assert images is x
    assert labels is y
    batch = StepBatch({"x": x, "y": y}, PLAN)
    assert batch["x"] is x
    assert dict(**batch) == {"x": x, "y": y}
    assert list(batch) == ["x", "y"]


def test_a_moved_batch_keeps_its_plan_and_its_mask() -> None:
    data = {"x": torch.arange(ROWS), "scale": torch.tensor(2.0), "names": texts(ROWS)}
    batch = StepBatch(data, PLAN, torch.arange(ROWS) < 20).to("meta")
    assert (batch["x"].device.type, batch["scale"].device.type, batch.mask.device.type) == ("meta",) * 3
    assert batch.plan == PLAN
    assert batch["names"] == data["names"]


def test_a_batch_is_pinned_by_torch() -> None:
    class Pinned:
        shape, dtype = (ROWS,), torch.float32

        def pin_memory(self) -> str:
            return "pinned"

    assert StepBatch({"x": Pinned()}, PLAN).pin_memory()["x"] == "pinned"


def test_a_batch_survives_pickling() -> None:
    batch = pickle.loads(pickle.dumps(StepBatch(texts(5), PLAN, None, rows=5)))
    assert (len(batch), batch.data, batch.plan) == (5, texts(5), PLAN)


def test_masks_are_cut_with_their_rows() -> None:
    mask = torch.arange(ROWS) < 15
    batch = StepBatch(torch.arange(ROWS), PLAN, mask)
    assert torch.equal(torch.cat(list(batch.micro_masks())), mask)
    assert torch.equal(torch.cat([part.mask for part in batch.iterations()]), mask)
    assert list(StepBatch(torch.arange(ROWS), PLAN).micro_masks()) == [None] * 12


def test_a_short_step_has_fewer_micro_batches_and_no_grid() -> None:
    batch = StepBatch((torch.arange(15), texts(15)), PLAN)
    assert len(batch) == 15
    assert not batch.is_full
    assert [len(names) for _, names in batch.micro_batches()] == [2] * 7 + [1]
    assert [len(part) for part in batch.iterations()] == [12, 3]
    assert batch.micro_batch(1, 0, 1)[0].tolist() == [14]
    for view in (batch.grid, lambda: batch.replica(0)):
        with pytest.raises(ValueError, match=r'15 rows.*= 24 samples per step.*last="pad"'):
            view()
    with pytest.raises(IndexError, match=r"15 rows.*begins at row 16"):
        batch.micro_batch(1, 0, 2)


def test_parts_with_another_number_of_rows_are_named() -> None:
    with pytest.raises(ValueError, match=r"should have 24, but the batch\['y'\]\[0\] has the shape \(7, 2\)"):
        len(StepBatch({"x": torch.zeros(ROWS), "y": [torch.zeros(7, 2)]}, PLAN))


def test_a_batch_without_rows_says_so_when_it_is_cut() -> None:
    batch = StepBatch(object(), PLAN)
    with pytest.raises(TypeError, match=r"nothing in this batch has rows.*object"):
        batch.grid()


def test_a_replica_outside_the_plan_is_refused() -> None:
    with pytest.raises(IndexError, match="replica 3"):
        StepBatch(torch.zeros(ROWS), PLAN).replica(3)


def test_rows_are_told_from_fields_when_their_numbers_collide() -> None:
    x, y = torch.zeros(1, 3), torch.zeros(1)
    two = BatchPlan(2)
    assert [len(names) for names, _ in StepBatch((x, y), two, rows=1).micro_batches()] == [1]
    widened = torch.zeros(2, 3), torch.zeros(2)
    assert len(StepBatch(widened, two)) == 2
    images = [torch.zeros(3, 4, size) for size in (4, 5)]
    assert [len(part) for part in StepBatch(images, two).micro_batches()] == [2]
    assert len(StepBatch([torch.zeros(3, 4, 4)] * 5, BatchPlan(8), rows=5)) == 5
