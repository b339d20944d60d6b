"""States that cannot be loaded are refused in words, and the loader stays as it was."""

from __future__ import annotations

import copy
import functools
import itertools
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.resume.state_datasets import Drawn, Forgetful, Remembers, Rotating, WithBookmark, WithPlace
from torch.utils.data import BatchSampler, RandomSampler
from torch.utils.data.distributed import DistributedSampler

import stoker
from stoker import BatchPlan, DataLoader, ResumeMismatch, StateError, Workers
from stoker.errors import WorkersMismatch
from stoker.order import BlockShuffle, Mix, Shuffle

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

KINDS: dict[str, Any] = {
    "arithmetic": lambda: DataLoader(Drawn(12), batch_size=2, seed=3, shuffle=True),
    "mix": lambda: DataLoader(Drawn(12), batch_size=2, order=Mix([Shuffle(7, 1), Shuffle(5, 2)], (2, 1), "drop")),
    "torch shuffle": lambda: DataLoader(Drawn(12), batch_size=2, shuffle=True),
    "generator": lambda: DataLoader(Drawn(12), batch_size=2, shuffle=True, generator=torch.Generator()),
    "stateful sampler": lambda: DataLoader(Drawn(12), batch_size=2, sampler=Rotating(12)),
    "sampler": lambda: DataLoader(Drawn(12), batch_size=2, sampler=list(range(12))),
    "iterable": lambda: DataLoader(Forgetful(12), batch_size=2),
    "iterator with a state": lambda: DataLoader(WithBookmark(12), batch_size=2),
    "iterable with a state": lambda: DataLoader(WithPlace(12), batch_size=2),
    "map-style with a state": lambda: DataLoader(Remembers(12), batch_size=2),
    "workers": lambda: DataLoader(Drawn(12), batch_size=2, seed=3, shuffle=True, num_workers=1),
    "iterable, workers": lambda: DataLoader(WithBookmark(12), batch_size=2, num_workers=2),
}


INLINE = [kind for kind in KINDS if "workers" not in kind]


def samples_of(loader: Any) -> list[Any]:
    """Every sample of a pass, whatever the dataset makes."""
    return [sample for batch in loader for sample in _rows(batch)]


def _rows(batch: Any) -> list[Any]:
    if isinstance(batch, dict):
        return list(batch["index"].tolist())
    return list(batch.tolist() if isinstance(batch, torch.Tensor) else batch[0].tolist())


def stopped(kind: str, batches: int = 2) -> tuple[dict[str, Any], list[Any]]:
    """A state, and what the run it was saved in went on with."""
    loader = KINDS[kind]()
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    return dict(loader.state_dict()), samples_of(iterator)


def saved(kind: str) -> dict[str, Any]:
    return stopped(kind)[0]


def refusal(loader: Any, state: Any) -> Exception | None:
    """What loading and going on raises; nothing but Stoker's own two errors is let through."""
    try:
        loader.load_state_dict(state)
        samples_of(loader)
    except (StateError, ResumeMismatch) as error:
        return error
    return None


def test_a_state_of_a_newer_stoker_says_upgrade() -> None:
    loader = KINDS["arithmetic"]()
    with pytest.raises(StateError, match=r"version 99.*newer Stoker. Upgrade"):
        loader.load_state_dict({**saved("arithmetic"), "stoker_state": 99})


@pytest.mark.parametrize("not_a_state", [None, 3, [], "{}", {}, {"epoch": 1}, {"_snapshot": {}, "_steps_since": 0}])
def test_what_is_not_a_state_is_told_so(not_a_state: Any) -> None:
    with pytest.raises(StateError, match="state"):
        KINDS["arithmetic"]().load_state_dict(not_a_state)


@pytest.mark.parametrize(
    ("make", "row"),
    [
        (lambda: DataLoader(Drawn(13), batch_size=2, seed=3, shuffle=True), r"dataset length +12 +13"),
        (lambda: DataLoader(Drawn(12), batch_size=2, seed=4, shuffle=True), r"seed +3 +4"),
        (lambda: DataLoader(Drawn(12), batch_size=2, seed=3), r"shuffle +sequential"),
        (lambda: DataLoader(Drawn(12), batch_size=2, order=BlockShuffle(12, 3)), r"shuffle +block-shuffle"),
        (lambda: DataLoader(Drawn(12), batch_size=2, shuffle=True), "shuffle"),
        (lambda: DataLoader(Drawn(12), batch_size=2), "shuffle"),
        (lambda: DataLoader(Drawn(12), batch_size=2, sampler=Rotating(12)), "shuffle"),
        (lambda: DataLoader(Forgetful(12), batch_size=2), "12"),
    ],
)
def test_other_data_or_another_order_is_refused_with_what_differs(make: Any, row: str) -> None:
    with pytest.raises(ResumeMismatch, match=row) as caught:
        make().load_state_dict(saved("arithmetic"))
    assert caught.value.differences  # type: ignore[attr-defined]


@pytest.mark.parametrize("order", [{}, {"sampler": Rotating(12)}, {"seed": 3, "shuffle": True}])
def test_torchs_shuffle_does_not_go_on_in_another_order(order: dict[str, Any]) -> None:
    with pytest.raises(ResumeMismatch):
        DataLoader(Drawn(12), batch_size=2, **order).load_state_dict(saved("torch shuffle"))


def test_only_what_differs_is_shown() -> None:
    with pytest.raises(ResumeMismatch) as caught:
        DataLoader(Drawn(12), batch_size=2, seed=4, shuffle=True).load_state_dict(saved("arithmetic"))
    assert "seed" in str(caught.value)
    assert "length" not in str(caught.value)


@pytest.mark.parametrize(("batch_size", "world"), [(5, 5), (2, 5), (7, 1)])
def test_ranks_that_do_not_share_the_steps_are_told_what_fits(batch_size: int, world: int) -> None:
    loader = DataLoader(Drawn(96), batch_size=6, seed=3, shard=(0, 4))
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    other = DataLoader(Drawn(96), batch_size=batch_size, seed=3, shard=(0, world))
    with pytest.raises(ResumeMismatch, match=rf"48 samples.*steps of {batch_size * world}.*(?s:.*)ranks is 24 again"):
        other.load_state_dict(loader.state_dict())
    assert len(samples_of(other)) == -(-96 // world)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_stays_usable_after_a_refusal(kind: str) -> None:
    good, loader, untouched = saved(kind), KINDS[kind](), KINDS[kind]()
    torch.manual_seed(1)
    expected = [samples_of(untouched), samples_of(untouched)]
    for bad in ({**good, "stoker_state": 99}, {**good, "epoch": -1}, {**good, "data": {"length": 11}}, {}):
        if "data" in good or "data" not in bad:
            with pytest.raises((StateError, ResumeMismatch)):
                loader.load_state_dict(bad)
    torch.manual_seed(1)
    assert [samples_of(loader), samples_of(loader)] == expected
    loader.load_state_dict(good)
    assert len(samples_of(loader)) == 8


def test_a_refusal_in_the_middle_of_an_epoch_changes_nothing() -> None:
    loader = KINDS["workers"]()
    expected = samples_of(KINDS["workers"]())
    iterator = iter(loader)
    seen = _rows(next(iterator))
    state = loader.state_dict()
    with pytest.raises(StateError):
        loader.load_state_dict({**state, "position": "2"})
    assert loader.state_dict() == state
    assert seen + samples_of(iterator) == expected


@pytest.mark.parametrize(("count", "other"), [(2, 0), (2, 3), (0, 2), (0, 1)])
def test_worker_states_for_another_number_of_workers_are_refused_until_a_good_one_is_loaded(
    count: int, other: int
) -> None:
    first = DataLoader(WithBookmark(12), batch_size=2, num_workers=count)
    next(iter(first))
    loader = DataLoader(WithBookmark(12), batch_size=2, num_workers=other)
    found = refusal(loader, first.state_dict())
    assert isinstance(found, ResumeMismatch)
    assert f"num_workers={count}" in str(found)
    with pytest.raises(ResumeMismatch):
        iter(loader)  # rather than quietly beginning again
    loader.load_state_dict(DataLoader(WithBookmark(12), batch_size=2, num_workers=other).state_dict())
    assert sorted(samples_of(loader)) == list(range(12))


def test_a_state_without_the_datasets_places_is_refused() -> None:
    for kind in ("iterable", "iterable with a state", "iterator with a state", "iterable, workers"):
        state = saved(kind)
        del state["workers"]
        assert refusal(KINDS[kind](), state) is not None, kind


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-(2**70), -1, 0, 1, 2, 5, 11, 12, 13, 2**31, 2**63 - 1, 2**63, 2**70]),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.one_of(st.integers(-5, 20), st.text(max_size=2), st.lists(st.integers())), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a nested state."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, member in members for place in ((*path, key), *_paths(member, (*path, key)))]


def _at(state: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        state = state[key]
    return state


USERS_OWN = {"iterator", "dataset", "state"}
"""What a user's own dataset or sampler says of its place: only it can tell whether that is broken."""


def _own_paths(state: Any) -> list[tuple[Any, ...]]:
    return [path for path in _paths(state) if not (USERS_OWN & set(path[:-1]) or "given" in path)]


@pytest.mark.parametrize("kind", INLINE)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_state_with_anything_replaced_is_refused_or_resumes(kind: str, data: st.DataObject) -> None:
    state = saved(kind)
    path = data.draw(st.sampled_from(_own_paths(state)).filter(lambda path: path[-1] not in USERS_OWN), label="path")
    _at(state, path[:-1])[path[-1]] = data.draw(JUNK, label="in its place")
    loader = KINDS[kind]()
    if refusal(loader, copy.deepcopy(state)) is not None:
        assert refusal(loader, saved(kind)) is None
        assert len(samples_of(loader)) == 12


MORE: dict[str, Any] = {
    "on a device": lambda: DataLoader(Drawn(12), batch_size=2, seed=3, device="cpu"),
    "threads": lambda: DataLoader(Drawn(12), batch_size=2, workers=Workers(lanes=2)),
    "sequential": lambda: DataLoader(Drawn(12), batch_size=2),
    "single samples": lambda: DataLoader(Drawn(12), batch_size=None),
    "own batches": lambda: DataLoader(Drawn(12), batch_sampler=BatchSampler(range(12), 2, False)),
    "own random batches": lambda: DataLoader(Drawn(12), batch_sampler=BatchSampler(RandomSampler(range(12)), 2, False)),
    "of an epoch": lambda: DataLoader(Drawn(12), batch_size=2, sampler=DistributedSampler(Drawn(12), 1, 0)),
    "skipping": lambda: DataLoader(Drawn(12), batch_size=2, on_error="skip"),
    "planned": lambda: DataLoader(Drawn(12), plan=BatchPlan(1, replicas=2)),
    "planned stream": lambda: DataLoader(Forgetful(12), plan=BatchPlan(1, replicas=2), last="pad"),
}
ODD = st.one_of(
    JUNK,
    st.sampled_from(
        [
            {"of": "sampler", "state": {}},
            {"of": "iterator", "state": {"x": 1}},
            {"count": 1, "turn": 0, "states": [{}]},
            {"count": 0, "turn": 0, "states": [None]},
            {"count": 0, "turn": 0, "states": [{"batches": 1, "ended": False, "dataset": 3, "iterator": None}]},
            {"seed": 1},
            {"epoch": 1},
            {"generator": "A" * 6744},
            (1,),
            b"x",
        ]
    ),
)


@functools.cache
def _sections() -> list[tuple[str, Any]]:
    """Every part of a state of any kind of loader, to be put where it does not belong."""
    return [part for kind in (*INLINE, *MORE) for part in _saved_anywhere(kind).items() if part[0] != "stoker_state"]


@functools.cache
def _saved_anywhere(kind: str) -> dict[str, Any]:
    loader = {**KINDS, **MORE}[kind]()
    next(iter(loader))
    return dict(loader.state_dict())


@pytest.mark.parametrize("kind", [*INLINE, *MORE])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_states_edited_in_several_places_are_refused_when_they_are_loaded_or_run(
    kind: str, data: st.DataObject
) -> None:
    state = copy.deepcopy(_saved_anywhere(kind))
    for _ in range(data.draw(st.integers(1, 3), label="edits")):
        edit = data.draw(st.sampled_from(["replace", "remove", "put in"]), label="edit")
        paths = [path for path in _own_paths(state) if path[-1] not in USERS_OWN]
        if edit == "put in" or not paths:
            name, part = data.draw(st.sampled_from(_sections()), label="part of another state")
            state[name] = copy.deepcopy(part)
            continue
        path = data.draw(st.sampled_from(paths), label="path")
        if edit == "remove":
            del _at(state, path[:-1])[path[-1]]
        else:
            _at(state, path[:-1])[path[-1]] = copy.deepcopy(data.draw(ODD, label="in its place"))
    loader = {**KINDS, **MORE}[kind]()
    try:
        loader.load_state_dict(copy.deepcopy(state))
    except (StateError, ResumeMismatch):
        assert len(list(loader)) == len(list({**KINDS, **MORE}[kind]()))
        return
    refused = None
    try:
        list(itertools.islice(loader, 30))
        loader.state_dict()
    except WorkersMismatch:
        return  # with another number of workers it can be used
    except StateError as error:
        refused = str(error)  # by the user's own code, which nobody asks before it is needed
    assert refused is None or "refused its part of the state" in refused


@pytest.mark.parametrize(
    "kind", ["stateful sampler", "iterator with a state", "map-style with a state", "iterable, workers"]
)
def test_a_part_that_its_owner_refuses_is_a_state_error_with_the_owners_words(kind: str) -> None:
    state = saved(kind)
    owned = {"stateful sampler": "state", "map-style with a state": "states"}.get(kind, "iterator")
    owners = [path for path in _paths(state) if (path[-2:-1] == (owned,) if owned == "states" else path[-1] == owned)]
    parts = [_at(state, path) for path in owners]
    for part in parts:
        if isinstance(part, dict):
            part.clear()
    loader = KINDS[kind]()
    loader.load_state_dict(state)
    with pytest.raises(StateError, match=r"refused its part of the state \(KeyError"):
        samples_of(loader)


def test_random_batches_of_a_batch_sampler_are_the_same_with_a_state_from_between_epochs() -> None:
    def make() -> Any:
        return DataLoader(range(12), batch_sampler=BatchSampler(RandomSampler(range(12)), 4, False))

    loader = make()
    for _ in range(2):
        state = loader.state_dict()
        expected = samples_of(loader)
        again = make()
        again.load_state_dict(state)
        assert samples_of(again) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_with_anything_left_out_is_refused_or_goes_on_right(kind: str) -> None:
    whole, rest = stopped(kind)
    for path in _own_paths(whole):
        state, loader = copy.deepcopy(whole), KINDS[kind]()
        del _at(state, path[:-1])[path[-1]]
        try:
            loader.load_state_dict(state)
            found = samples_of(loader)
        except (StateError, ResumeMismatch):
            continue
        assert found == rest, f"without {path}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_cut_short_is_refused_or_goes_on_right(kind: str) -> None:
    whole, rest = stopped(kind)
    for length in range(len(whole)):
        loader = KINDS[kind]()
        try:
            loader.load_state_dict(dict(list(whole.items())[:length]))
            found = samples_of(loader)
        except (StateError, ResumeMismatch):
            continue
        assert found == rest, f"with {list(whole)[:length]} only"


@pytest.mark.parametrize(
    "change",
    [
        {"position": 10**9},
        {"position": 13},
        {"epoch": 2**70},
        {"base_seed": 2**70},
        {"ahead": [[1]]},
        {"ahead": ["x"]},
        {"workers": {}},
        {"workers": {"count": 1, "turn": 0, "states": []}},
        {"sampler": {"x": 1}},
        {"drawn": {"seed": "x"}},
        {"drawn": {"generator": "??"}},
        {"stoker_state": 0},
        {"stoker_state": True},
        {"stoker_state": "1"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["arithmetic", "torch shuffle", "generator", "stateful sampler", "workers"])
def test_impossible_values_are_refused_or_ignored_but_never_crash(kind: str, change: dict[str, Any]) -> None:
    found = refusal(KINDS[kind](), {**saved(kind), **change})
    repeats = kind == "stateful sampler"  # a sampler may give more samples than the dataset has
    if "stoker_state" in change or ("position" in change and not repeats):
        assert isinstance(found, StateError)
    if found is not None:
        assert len(str(found)) > 40  # says more than a word


def test_errors_survive_pickling() -> None:
    with pytest.raises(ResumeMismatch) as caught:
        DataLoader(Drawn(13), batch_size=2, seed=3, shuffle=True).load_state_dict(saved("arithmetic"))
    twin = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(twin, stoker.ResumeMismatch)
    assert str(twin) == str(caught.value)
    assert twin.differences == caught.value.differences  # type: ignore[attr-defined]
