"""The call that is printed builds the loader that was tried, with all of the user's other arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rich.console import Console
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, WeightedRandomSampler

import stoker
from stoker.bench.calls import call_of
from stoker.bench.rebuild import arguments_of, rebuild
from stoker.bench.settings import STOKER, TORCH
from stoker.diagnosis import Cause, Change, Diagnosis, TriedChange
from stoker.diagnosis.facts import Facts, GivenLoader, Pace
from stoker.report.findings import print_findings

NUMBERS = list(range(23))


def doubled(samples: list[int]) -> torch.Tensor:
    return torch.tensor([2 * sample for sample in samples])


def settle(_worker: int) -> None:
    pass


sampler = WeightedRandomSampler([1.0] * 23, 9)
batch_sampler = BatchSampler(SequentialSampler(NUMBERS), 5, True)
generator = torch.Generator()
collate_fn = lambda samples: samples  # noqa: E731 - one without a name of its own

TORCH_CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shuffled": {"batch_size": 4, "shuffle": True, "drop_last": True, "generator": generator},
    "functions": {"batch_size": 4, "collate_fn": doubled, "worker_init_fn": settle, "num_workers": 1},
    "lambda": {"batch_size": 4, "collate_fn": collate_fn, "pin_memory": False},
    "own sampler": {"batch_size": 4, "sampler": sampler},
    "own batch sampler": {"batch_sampler": batch_sampler},
    "no batches": {"batch_size": None},
    "workers": {"batch_size": 4, "num_workers": 1, "prefetch_factor": 3, "persistent_workers": True, "timeout": 50},
    "context": {"num_workers": 1, "multiprocessing_context": "fork", "in_order": False},
}
STOKER_CALLS: dict[str, dict[str, Any]] = {
    "seeded": {"batch_size": 4, "seed": 7, "shuffle": True},
    "sharded": {"batch_size": 4, "seed": 7, "shard": (1, 2), "drop_last": True},
    "ordered": {"batch_size": 4, "order": "sequential", "last": "even", "shard": (0, 2)},
    "lanes": {"batch_size": 4, "workers": stoker.Workers(processes=1, lanes=2, start_method="fork", share="rows")},
    "careful": {"batch_size": 4, "on_error": stoker.OnError("skip", tries=3), "seed": 2},
    "device": {"batch_size": 4, "device": "cpu"},
}


def pasted(call: str) -> Any:
    return eval(call, {**globals(), "dataset": NUMBERS})


def told(loader: Any, kind: str) -> dict[str, Any]:
    """What a loader was built with, samplers by what they are."""
    arguments = arguments_of(loader, kind)
    for name in ("sampler", "batch_sampler", "multiprocessing_context"):
        if isinstance(arguments.get(name), SequentialSampler | RandomSampler) or name == "multiprocessing_context":
            arguments[name] = type(arguments.get(name)).__name__
    arguments.pop("order", None)
    return arguments


@pytest.mark.parametrize("name", TORCH_CALLS)
def test_the_call_of_torchs_loader_builds_it_again(name: str) -> None:
    loader: Any = DataLoader(NUMBERS, **TORCH_CALLS[name])  # type: ignore[arg-type]
    assert told(pasted(call_of(loader)), TORCH) == told(loader, TORCH)
    ours = pasted(call_of(loader, STOKER))
    assert told(ours, TORCH) == told(rebuild(loader, STOKER), TORCH)


@pytest.mark.parametrize("name", STOKER_CALLS)
def test_the_call_of_stokers_loader_builds_it_again(name: str) -> None:
    loader = stoker.DataLoader(NUMBERS, **STOKER_CALLS[name])
    again = pasted(call_of(loader))
    assert told(again, STOKER) == told(loader, STOKER)
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in loader]


def test_a_change_keeps_the_other_arguments() -> None:
    loader: Any = DataLoader(NUMBERS, **TORCH_CALLS["shuffled"], collate_fn=doubled)  # type: ignore[arg-type]
    assert call_of(loader, STOKER, {"workers": stoker.Workers(processes=2, lanes=16)}) == (
        "stoker.DataLoader(dataset, batch_size=4, shuffle=True, workers=stoker.Workers(processes=2, lanes=16), "
        "drop_last=True, collate_fn=doubled, generator=generator)"
    )
    assert call_of(loader, "", {"num_workers": 2}) == (
        "torch.utils.data.DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2, drop_last=True, "
        "collate_fn=doubled, generator=generator)"
    )


def test_the_call_is_printed_in_one_line_however_narrow_the_terminal() -> None:
    call = "stoker.DataLoader(dataset, batch_size=64, shuffle=True, workers=stoker.Workers(processes=2, lanes=16))"
    tried = TriedChange(Change({"num_workers": 2}), (2.0, 2.0), (1.0, 1.0), call=call)
    found = Diagnosis(Cause.STORAGE, "why", Facts(GivenLoader("torch", "map", 2), Pace(1, 1, 0, 1, 1)), (tried,))
    console = Console(width=50)
    with console.capture() as capture:
        print_findings(found, console)
    assert call in capture.get()
