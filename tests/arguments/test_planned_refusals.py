"""Plans that a loader cannot follow: every refusal says what to do, and none is an assertion or a raw division."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler

from stoker import BatchPlan, DataLoader, OnError

PLAN = BatchPlan(2, gradient_accumulation=2, device_iterations=2)  # steps of 8
HOSTS = BatchPlan(2, gradient_accumulation=2, hosts=3)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


REFUSED = {
    "no plan": ({"plan": "8 rows"}, TypeError, "stoker.BatchPlan"),
    "padding without a plan": ({"plan": None, "last": "pad"}, ValueError, "plan=stoker.BatchPlan"),
    "an unknown end": ({"last": "cut"}, ValueError, "'drop', 'keep', 'even', 'pad'.*'cut'"),
    "another batch_size": ({"batch_size": 3}, ValueError, r"batch_size=3.*2 rows.*= 8 samples.*Leave batch_size out"),
    "batches switched off": ({"batch_size": None}, ValueError, "batch_size=None.*= 8 samples"),
    "drop_last and a kept end": ({"drop_last": True, "last": "keep"}, ValueError, "leave drop_last out"),
    "rows dropped": ({"on_error": "drop"}, ValueError, 'on_error="skip"'),
    "rows dropped, padded": ({"on_error": OnError("drop"), "last": "pad"}, ValueError, 'on_error="skip"'),
    "no rank": ({"plan": HOSTS}, ValueError, r"the only one.*3 hosts = 12.*shard=\(rank, 3\).*torchrun"),
    "another world": ({"plan": HOSTS, "shard": (0, 2)}, ValueError, "2 ranks.*hosts=2"),
    "ranks without hosts": ({"shard": (0, 4)}, ValueError, "4 ranks.*for 1 .*hosts=4"),
    "a shuffle without seed": ({"plan": HOSTS, "shard": (0, 3), "shuffle": True}, ValueError, "seed="),
    "hosts of a sampler": ({"plan": HOSTS, "sampler": range(9)}, ValueError, "plan=plan.local"),
    "hosts of a batch_sampler": ({"plan": HOSTS, "batch_sampler": [[1]]}, ValueError, "plan=plan.local"),
    "hosts of a stream": ({"plan": HOSTS, "dataset": Stream()}, ValueError, "IterableDataset.*plan=plan.local"),
    "another micro-batch": (
        {"batch_sampler": BatchSampler(SequentialSampler(range(30)), 3, False)},
        ValueError,
        "batches of 3.*micro-batch has 2 rows",
    ),
    "too few samples": ({"dataset": range(7)}, ValueError, '7 samples.*= 8 samples per step.*last="pad"'),
    "no samples": ({"dataset": range(0)}, ValueError, "0 samples"),
    "too few for the hosts": (
        {"dataset": range(11), "plan": HOSTS, "shard": (0, 3)},
        ValueError,
        r"11 samples.*2 rows × 2 accumulation × 3 hosts = 12 samples per step",
    ),
    "too few for the replicas": (
        {"dataset": range(11), "plan": BatchPlan(4, replicas=3), "shard": (1, 3), "seed": 1},
        ValueError,
        "11 samples",
    ),
    "too few of a sampler": ({"sampler": range(7)}, ValueError, "7 samples"),
    "a batch_sampler and a size": ({"batch_sampler": [[1]], "batch_size": 2}, ValueError, "mutually exclusive"),
    "a batch_sampler and shuffle": ({"batch_sampler": [[1]], "shuffle": True}, ValueError, "mutually exclusive"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    arguments, error, said = REFUSED[case]
    with pytest.raises(error, match=said) as caught:
        DataLoader(**{"dataset": range(30), "plan": PLAN, **arguments})  # type: ignore[arg-type]
    assert not isinstance(caught.value, AssertionError | ZeroDivisionError)


@pytest.mark.parametrize("arguments", [{"batch_size": 2}, {"batch_size": 8}, {"drop_last": True}, {"last": "drop"}])
def test_arguments_that_agree_with_the_plan_are_taken(arguments: Any) -> None:
    assert len(DataLoader(range(30), plan=PLAN, **arguments)) == 3  # type: ignore[arg-type]


def test_too_few_samples_make_one_step_where_the_tail_is_wanted() -> None:
    for tail in ("keep", "pad"):
        assert len(DataLoader(range(5), plan=PLAN, last=tail)) == 1  # type: ignore[arg-type]


def test_rows_may_be_dropped_where_short_steps_are_wanted() -> None:
    loader = DataLoader(range(9), plan=PLAN, last="keep", on_error="drop")  # type: ignore[arg-type]
    assert [len(batch) for batch in loader] == [8, 1]


def test_a_loader_is_made_anew_from_its_attributes() -> None:
    first = DataLoader(range(30), plan=PLAN, last="pad", seed=1)  # type: ignore[arg-type]
    names = ("dataset", "batch_size", "plan", "last", "seed", "order", "shard")
    again = DataLoader(**{name: getattr(first, name) for name in names})
    assert [batch.data.tolist() for batch in again] == [batch.data.tolist() for batch in first]
