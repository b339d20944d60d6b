"""A `state_dict` that takes arguments or raises harms nobody who does not ask for a state."""

from __future__ import annotations

from typing import Any

import pytest
from tests.resume import unwilling as u

import stoker
from stoker import StateError, Workers

HOW: dict[str, dict[str, Any]] = {
    "inline": {},
    "threads": {"workers": Workers(threads=2)},
    "forked": {"workers": Workers(2, start_method="fork")},
    "forked, persistent": {"workers": Workers(1, start_method="fork"), "persistent_workers": True},
    "on a device": {"device": "cpu"},
    "on a device, forked": {"device": "cpu", "workers": Workers(1, start_method="fork")},
}
NO_STATE: dict[str, Any] = {
    "map, arguments": {"dataset": u.MapNeedsArguments()},
    "map, keywords": {"dataset": u.MapNeedsKeywords()},
    "map, loads more": {"dataset": u.MapLoadsMore()},
    "stream, arguments": {"dataset": u.StreamNeedsArguments()},
    "stream, keywords": {"dataset": u.StreamNeedsKeywords()},
    "stream, loads more": {"dataset": u.StreamLoadsMore()},
    "iterator, arguments": {"dataset": u.Walked(u.WalkNeedsArguments)},
    "sampler, arguments": {"dataset": u.Samples(), "sampler": u.OrderNeedsArguments()},
    "sampler's iterator, arguments": {"dataset": u.Samples(), "sampler": u.WalkedOrder(u.WalkNeedsArguments)},
}
UNTOLD: dict[str, Any] = {
    "map, raises": {"dataset": u.MapRaises()},
    "map, lock": {"dataset": u.MapGivesALock()},
    "stream, raises": {"dataset": u.StreamRaises()},
    "stream, lock": {"dataset": u.StreamGivesALock()},
    "iterator, raises": {"dataset": u.Walked(u.WalkRaises)},
    "iterator, lock": {"dataset": u.Walked(u.WalkGivesALock)},
    "sampler, raises": {"dataset": u.Samples(), "sampler": u.OrderRaises()},
    "sampler, lock": {"dataset": u.Samples(), "sampler": u.OrderGivesALock()},
    "sampler's iterator, raises": {"dataset": u.Samples(), "sampler": u.WalkedOrder(u.WalkRaises)},
    "sampler's iterator, lock": {"dataset": u.Samples(), "sampler": u.WalkedOrder(u.WalkGivesALock)},
}


def made(what: dict[str, Any], how: str) -> Any:
    options = dict(HOW[how])
    if isinstance(what["dataset"], u.Stream) and how == "threads":
        pytest.skip("an iterable dataset is read by one lane")
    return stoker.DataLoader(**what, batch_size=3, **options)


def expected(what: dict[str, Any], how: str) -> list[int]:
    copies = 2 if isinstance(what["dataset"], u.Stream) and how == "forked" else 1
    return sorted(list(range(u.LENGTH)) * copies)


def samples(batches: Any) -> list[int]:
    return sorted(sample for batch in batches for sample in batch.tolist())


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("what", {**NO_STATE, **UNTOLD})
def test_every_epoch_comes_whole(what: str, how: str) -> None:
    given = {**NO_STATE, **UNTOLD}[what]
    loader = made(given, how)
    for _ in range(2):
        assert samples(loader) == expected(given, how)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("what", NO_STATE)
def test_without_a_usable_state_a_run_resumes_as_if_there_were_none(what: str, how: str) -> None:
    given = NO_STATE[what]
    loader = made(given, how)
    batches = iter(loader)
    first = [next(batches)]
    state = loader.state_dict()
    rest = samples(batches)
    again = made(given, how)
    again.load_state_dict(state)
    assert samples(again) == rest
    assert sorted(samples(first) + rest) == expected(given, how)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("what", UNTOLD)
def test_whoever_asks_for_a_state_is_told_why_there_is_none(what: str, how: str) -> None:
    given = UNTOLD[what]
    loader = made(given, how)
    batches = iter(loader)
    first = [next(batches)]
    words = "several threads" if how == "threads" and "map" in what else "the index is not open yet|lock"
    with pytest.raises(StateError, match=words):
        loader.state_dict()
    assert sorted(samples(first) + samples(batches)) == expected(given, how)


def test_the_error_names_who_has_no_state_to_give() -> None:
    loader = stoker.DataLoader(u.MapRaises(), num_workers=1)
    next(iter(loader))
    with pytest.raises(StateError, match=r"MapRaises.*LookupError: the index is not open yet"):
        loader.state_dict()


@pytest.mark.parametrize("what", [u.MapNeedsArguments(), u.MapRaises(), u.StreamGivesALock()])
def test_spawned_workers_are_not_harmed_either(what: Any) -> None:
    loader = stoker.DataLoader(what, 3, workers=Workers(1, start_method="spawn"))
    assert samples(loader) == list(range(u.LENGTH))
