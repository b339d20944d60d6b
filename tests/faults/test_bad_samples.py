"""Samples that cannot be loaded: skipped, dropped, tried again, counted, written down; the same wherever they load."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pickle
import time
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

import stoker
from stoker import DataLoader, OnError, Workers
from stoker.batches.careful import Careful
from stoker.batches.job import run_of
from stoker.contracts import EpochNote, Failed
from stoker.errors import TooManyFailures
from stoker.sources.fetch import fetch_for

WAYS = {
    "inline": Workers(0, 0),
    "threads": Workers(0, 3),
    "parts": Workers(2, 1, "fork"),
    "lanes": Workers(2, 3, "fork"),
    "rows": Workers(2, 1, "fork", share="rows"),
    "batches": Workers(2, 1, "fork", share="batches"),
}
ways = pytest.mark.parametrize("way", WAYS)


class Spoilt:
    """Samples of (index, a draw of their own); some raise, some only the first few times they are asked for."""

    def __init__(self, samples: int, bad: Any = (), flaky: dict[int, int] | None = None) -> None:
        self.samples, self.bad, self.flaky, self.asked = samples, set(bad), flaky or {}, dict.fromkeys(flaky or (), 0)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise ValueError(f"sample {index} is spoilt")
        if index in self.flaky:
            self.asked[index] += 1
            if self.asked[index] <= self.flaky[index]:
                raise ConnectionError(f"sample {index} is out of reach, try {self.asked[index]}")
        return np.array([index, stoker.rng().integers(2**40)])


def loaded(dataset: Any, way: str = "inline", **options: Any) -> tuple[list[list[Any]], DataLoader[Any]]:
    loader: DataLoader[Any] = DataLoader(dataset, 8, workers=WAYS[way], **{"seed": 3, **options})
    return [batch.tolist() for batch in loader], loader


def indices(batches: list[list[Any]]) -> list[list[int]]:
    return [[index for index, _ in batch] for batch in batches]


# Skipping


@ways
def test_a_skipped_sample_is_replaced_by_the_same_one_wherever_it_loads(way: str) -> None:
    dataset = Spoilt(40, bad=(3, 9, 10, 31))
    batches, loader = loaded(dataset, way, on_error="skip", shuffle=True)
    inline, _ = loaded(dataset, on_error="skip", shuffle=True)
    assert batches == inline
    assert sorted(failure.index for failure in loader.failures) == [3, 9, 10, 31]


@ways
def test_skipping_changes_nothing_but_the_rows_of_bad_samples(way: str) -> None:
    batches, _ = loaded(Spoilt(40, bad=(3, 9, 10)), way, on_error="skip", shuffle=True)
    clean, _ = loaded(Spoilt(40), on_error="skip", shuffle=True)
    for (index, draw), (own, own_draw) in zip(chain(*batches), chain(*clean), strict=True):
        assert draw == own_draw  # randomness belongs to the position, whatever fills it
        assert index == own or (own in (3, 9, 10) and index not in (3, 9, 10))


class Picky(Spoilt):
    """Asks for Python's own numbers, as torch's loader gives them."""

    def __getitem__(self, index: int) -> Any:
        if type(index) is not int:
            raise TypeError(f"{index!r} is of type {type(index).__name__}")
        return super().__getitem__(index)


@ways
@pytest.mark.parametrize("collate", [None, torch.utils.data.default_convert])
def test_a_dataset_is_asked_by_pythons_own_numbers_also_when_a_batch_is_mended(way: str, collate: Any) -> None:
    for shuffled in ({"seed": 3}, {"seed": None, "generator": torch.Generator()}):
        for action in ("skip", "drop"):
            _, loader = loaded_any(Picky(40, bad=range(0, 40, 3)), way, on_error=action, collate_fn=collate, **shuffled)
            assert {failure.error.split(":")[0] for failure in loader.failures} == {"ValueError"}


def loaded_any(dataset: Any, way: str, **options: Any) -> tuple[list[Any], DataLoader[Any]]:
    loader: DataLoader[Any] = DataLoader(dataset, 8, workers=WAYS[way], shuffle=True, **options)
    return list(loader), loader


@ways
def test_a_replacement_that_is_bad_too_is_replaced_in_turn(way: str) -> None:
    dataset = Spoilt(40, bad=range(0, 40, 2))
    batches, loader = loaded(dataset, way, on_error="skip")
    assert batches == loaded(dataset, on_error="skip")[0]
    assert all(index % 2 for batch in indices(batches) for index in batch)
    assert {failure.index for failure in loader.failures} == set(range(0, 40, 2))


@ways
def test_with_a_sampler_of_the_users_own_the_replacement_comes_from_the_same_batch(way: str) -> None:
    dataset = Spoilt(16, bad=range(0, 16, 2))
    options: dict[str, Any] = {"seed": None, "sampler": list(range(16)), "on_error": "skip"}
    generator = torch.Generator()
    batches, _ = loaded(dataset, way, generator=generator.manual_seed(1), **options)
    inline, _ = loaded(dataset, generator=generator.manual_seed(1), **options)
    assert indices(batches) == indices(inline)
    assert all(set(batch) <= set(range(8 * at + 1, 8 * at + 8, 2)) for at, batch in enumerate(indices(batches)))


@settings(max_examples=15, deadline=None)
@given(bad=st.sets(st.integers(0, 29), max_size=12), size=st.integers(2, 9), seed=st.integers(0, 2**32))
def test_any_bad_samples_give_the_same_batches_in_threads_as_inline(bad: set[int], size: int, seed: int) -> None:
    def all_of(workers: Workers, action: Any) -> Any:
        options: dict[str, Any] = {"shuffle": True, "seed": seed, "on_error": action, "workers": workers}
        return [batch.tolist() for batch in DataLoader(Spoilt(30, bad), size, **options)]

    for action in ("skip", "drop"):
        assert all_of(Workers(0, 2), action) == all_of(Workers(0, 0), action)


@ways
def test_skipping_goes_on_alike_after_a_resume(way: str) -> None:
    dataset = Spoilt(64, bad=(3, 20, 30, 41, 60))
    whole, _ = loaded(dataset, way, on_error="skip", shuffle=True)
    for taken in (1, 4, 7):
        first: DataLoader[Any] = DataLoader(dataset, 8, shuffle=True, seed=3, on_error="skip", workers=WAYS[way])
        for _ in zip(range(taken), first, strict=False):
            pass
        second: DataLoader[Any] = DataLoader(dataset, 8, shuffle=True, seed=3, on_error="skip")
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert [batch.tolist() for batch in second] == whole[taken:]


# Dropping


@ways
def test_a_dropped_sample_leaves_a_shorter_batch_with_all_else_unchanged(way: str) -> None:
    batches, loader = loaded(Spoilt(24, bad=(3, 9, 10)), way, on_error="drop")
    clean, _ = loaded(Spoilt(24))
    assert batches == [[row for row in batch if row[0] not in (3, 9, 10)] for batch in clean]
    assert sorted((failure.index, failure.position) for failure in loader.failures) == [(3, 3), (9, 9), (10, 10)]


@ways
def test_a_batch_that_loses_all_its_rows_is_passed_over(way: str) -> None:
    batches, loader = loaded(Spoilt(24, bad=range(8, 16)), way, on_error="drop")
    assert indices(batches) == [list(range(8)), list(range(16, 24))]
    assert len(loader.failures) == 8


# Raising, and trying again


@ways
def test_by_default_a_bad_sample_raises_its_own_error(way: str) -> None:
    with pytest.raises(ValueError, match="sample 9 is spoilt"):
        loaded(Spoilt(24, bad=[9]), way)


@ways
def test_a_sample_that_works_in_the_end_is_nobodys_failure(way: str) -> None:
    dataset = Spoilt(24, flaky={3: 2, 17: 1})
    batches, loader = loaded(dataset, way, on_error=OnError(tries=3, pause_s=0.0))
    assert batches == loaded(Spoilt(24))[0]
    assert loader.failures == []


@ways
def test_when_all_tries_fail_the_action_is_taken(way: str) -> None:
    dataset = Spoilt(24, flaky={3: 2})
    with pytest.raises(ConnectionError, match="try 2"):
        loaded(dataset, way, on_error=OnError("raise", tries=2, pause_s=0.0))
    dataset = Spoilt(24, flaky={3: 2})
    batches, _ = loaded(dataset, way, on_error=OnError("drop", tries=2, pause_s=0.0))
    assert len(batches[0]) == 7


def test_pauses_double_and_are_scattered_by_half() -> None:
    slept: list[float] = []
    dataset = Spoilt(4, bad=[2])
    careful = Careful(OnError("skip", tries=5, pause_s=0.1), "here", sleep=slept.append)
    run = run_of([1, 2, 3], 0, EpochNote())
    samples = careful.load(fetch_for(dataset), run, None, 0)
    assert [type(sample) is Failed for sample in samples] == [False, True, False]
    assert len(slept) == 4
    for pause_s, middle_s in zip(slept, (0.1, 0.2, 0.4, 0.8), strict=True):
        assert 0.5 * middle_s <= pause_s <= 1.5 * middle_s


def test_a_retry_draws_what_the_first_try_would_have_drawn() -> None:
    flaky, _ = loaded(Spoilt(8, flaky={5: 2}), on_error=OnError(tries=3, pause_s=0.0))
    assert flaky == loaded(Spoilt(8))[0]


def test_retry_as_a_word_means_three_tries_and_then_the_error() -> None:
    dataset = Spoilt(8, flaky={5: 3})
    with pytest.raises(ConnectionError, match="try 3"):
        for _ in DataLoader(dataset, 8, on_error=OnError("raise", tries=3, pause_s=0.0)):
            pass
    assert dataset.asked[5] == 3
    policy = DataLoader(Spoilt(8), on_error="retry").asked.policy
    assert (policy.action, policy.tries) == ("raise", 3)


def test_a_policy_takes_the_words_that_the_loader_takes() -> None:
    assert OnError("retry") == OnError("raise", tries=3)
    assert OnError("retry", tries=5, pause_s=0.0) == OnError("raise", tries=5, pause_s=0.0)
    for word in ("raise", "skip", "drop", "retry"):
        assert DataLoader(Spoilt(8), on_error=word).asked.policy == OnError(word)  # type: ignore[arg-type]
    dataset = Spoilt(8, flaky={5: 2})
    assert len(list(DataLoader(dataset, 8, on_error=OnError("retry", pause_s=0.0)))) == 1


# Budgets


@ways
def test_a_budget_is_kept_to_the_sample(way: str) -> None:
    dataset = Spoilt(64, bad=(3, 20, 41))
    assert len(loaded(dataset, way, on_error=OnError("skip", budget=3))[0]) == 8
    loader: DataLoader[Any] = DataLoader(dataset, 8, seed=3, workers=WAYS[way], on_error=OnError("skip", budget=2))
    batches = iter(loader)
    assert len(list(islice(batches, 5))) == 5  # all before the batch that is one too many
    with pytest.raises(TooManyFailures, match=r"3 samples could not be loaded, and the budget allows 2") as info:
        next(batches)
    assert [failure.index for failure in info.value.data["failures"]] == [3, 20, 41]
    assert "sample 41 (epoch 0, position 41): ValueError: sample 41 is spoilt" in str(info.value)


@ways
def test_a_budget_as_a_share_is_of_the_samples_seen_and_alike_everywhere(way: str) -> None:
    rare = Spoilt(400, bad=(50, 90, 350))
    assert len(loaded(rare, way, on_error=OnError("skip", budget=0.05))[0]) == 50
    with pytest.raises(TooManyFailures, match=r"the budget allows 5.00% of the samples"):
        loaded(Spoilt(400, bad=range(200, 300)), way, on_error=OnError("skip", budget=0.05))


@ways
def test_an_epoch_without_a_single_good_sample_does_not_end_in_silence(way: str) -> None:
    for action in ("skip", "drop"):
        with pytest.raises(TooManyFailures):
            loaded(Spoilt(16, bad=range(16)), way, on_error=action)


def test_too_many_failures_survives_pickling() -> None:
    with pytest.raises(TooManyFailures) as info:
        loaded(Spoilt(64, bad=(3, 20)), on_error=OnError("drop", budget=0))
    again = pickle.loads(pickle.dumps(info.value))
    assert [failure.index for failure in again.failures] == [3]
    assert str(again) == str(info.value)


@pytest.mark.parametrize(
    "wrong",
    [{"action": "skp"}, {"tries": 0}, {"pause_s": -1.0}, {"budget": 1.5}, {"budget": -1}, {"budget": -0.1}],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        OnError(**{"action": "skip", **wrong})


def test_an_action_that_does_not_exist_is_refused_by_the_loader() -> None:
    with pytest.raises(ValueError, match='"raise", "skip", "drop" or "retry"'):
        DataLoader(Spoilt(8), on_error="ignore")  # type: ignore[arg-type]


# What is remembered


@ways
def test_a_failure_says_what_where_why_when_and_who(way: str) -> None:
    before = time.time()
    _, loader = loaded(Spoilt(24, bad=[9]), way, on_error="skip", shuffle=True)
    (failure,) = loader.failures
    order = [index for batch in loaded(Spoilt(24), shuffle=True)[0] for index, _ in batch]
    assert (failure.index, failure.epoch, failure.position) == (9, 0, order.index(9))
    assert failure.error == "ValueError: sample 9 is spoilt"
    assert "Traceback" in failure.traceback
    assert "__getitem__" in failure.traceback
    assert before <= failure.when <= time.time()
    assert failure.action == "skip"
    assert type(failure.index) is int
    assert failure.worker is None if WAYS[way].processes == 0 else failure.worker in (0, 1)


@ways
def test_failures_are_listed_in_the_order_of_the_epoch_and_only_of_batches_handed_over(way: str) -> None:
    dataset = Spoilt(64, bad=(3, 9, 41, 62))
    _, loader = loaded(dataset, way, on_error="drop")
    assert [failure.position for failure in loader.failures] == [3, 9, 41, 62]
    loader = DataLoader(dataset, 8, seed=3, workers=WAYS[way], on_error="skip")
    for _ in zip(range(2), loader, strict=False):
        pass
    assert [failure.index for failure in loader.failures] == [3, 9]


@ways
def test_epochs_add_up_and_say_which_they_were(way: str) -> None:
    loader: DataLoader[Any] = DataLoader(Spoilt(16, bad=[5]), 8, workers=WAYS[way], on_error="drop")
    for _ in range(3):
        list(loader)
    assert [(failure.epoch, failure.index) for failure in loader.failures] == [(0, 5), (1, 5), (2, 5)]


@ways
def test_the_log_has_a_line_of_json_for_each_failure(way: str, tmp_path: Path) -> None:
    log = tmp_path / "failures.jsonl"
    log.write_text('{"of": "an earlier run"}\n')
    _, loader = loaded(Spoilt(24, bad=(3, 20)), way, on_error=OnError("skip", log=str(log)))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[0] == {"of": "an earlier run"}
    assert lines[1:] == [dataclasses.asdict(failure) for failure in loader.failures]


@ways
@pytest.mark.parametrize("tries", [1, 2])
@pytest.mark.parametrize("batch_size", [8, None])
def test_a_failure_that_is_raised_is_logged_first(way: str, tries: int, batch_size: Any, tmp_path: Path) -> None:
    log = tmp_path / "failures.jsonl"
    policy = OnError("raise", tries=tries, pause_s=0.0, log=str(log))
    loader: DataLoader[Any] = DataLoader(Spoilt(24, bad=[9]), batch_size, workers=WAYS[way], on_error=policy)
    with pytest.raises(ValueError, match="sample 9 is spoilt"):
        for _ in loader:
            pass
    (line,) = [json.loads(line) for line in log.read_text().splitlines()]
    assert (line["index"], line["position"], line["action"]) == (9, 9, "raise")
    assert [failure.index for failure in loader.failures] == [9]


def test_a_log_holds_what_happened_so_far(tmp_path: Path) -> None:
    log = tmp_path / "failures.jsonl"
    loader: DataLoader[Any] = DataLoader(Spoilt(24, bad=(3, 20)), 8, on_error=OnError("skip", log=str(log)))
    next(iter(loader))
    assert [json.loads(line)["index"] for line in log.read_text().splitlines()] == [3]


class Own(Exception):
    """An error that cannot be made anew from its text."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(index, reason)
        self.index, self.reason = index, reason


class Raising(Spoilt):
    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise Own(index, "gone")
        return super().__getitem__(index)


@pytest.mark.parametrize("way", ["inline", "threads"])
@pytest.mark.parametrize("policy", [OnError(), OnError("retry", pause_s=0.0), OnError(log="failures.jsonl")])
def test_in_the_training_process_the_samples_own_error_is_raised_itself(
    way: str, policy: OnError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Own) as info:
        loaded(Raising(24, bad=[9]), way, on_error=policy)
    assert (info.value.index, info.value.reason) == (9, "gone")
    assert "__getitem__" in [entry.name for entry in info.traceback]


# Other kinds of datasets and batches


def _as_list(samples: list[Any]) -> list[int]:
    return [int(index) for index, _ in samples]


@pytest.mark.parametrize("action", ["skip", "drop"])
@pytest.mark.parametrize("way", ["inline", "threads", "batches", "lanes"])
def test_a_collate_fn_gets_samples_that_loaded(way: str, action: Any) -> None:
    options: dict[str, Any] = {"collate_fn": _as_list, "on_error": action, "seed": 3}
    dataset = Spoilt(24, bad=(3, 9, 10))
    batches = list(DataLoader(dataset, 8, workers=WAYS[way], **options))
    assert batches == list(DataLoader(dataset, 8, **options))
    assert [len(batch) for batch in batches] == ([8, 8, 8] if action == "skip" else [7, 6, 8])
    assert not {3, 9, 10} & {index for batch in batches for index in batch}


def _spoil_sevens(samples: list[Any]) -> list[int]:
    if any(int(index) == 7 for index, _ in samples):
        raise RuntimeError("no batch with a 7")
    return _as_list(samples)


@pytest.mark.parametrize("way", ["inline", "threads", "batches"])
def test_an_error_of_the_collate_fn_is_no_bad_sample_and_is_raised(way: str) -> None:
    with pytest.raises(RuntimeError, match="no batch with a 7"):
        list(DataLoader(Spoilt(24), 8, workers=WAYS[way], collate_fn=_spoil_sevens, on_error="skip"))


@ways
def test_without_batches_a_bad_item_is_replaced_or_left_out(way: str) -> None:
    dataset = Spoilt(8, bad=[3])
    options: dict[str, Any] = {"workers": WAYS[way], "seed": 3}
    skipped = [int(item[0]) for item in DataLoader(dataset, None, on_error="skip", **options)]
    assert skipped == [int(item[0]) for item in DataLoader(dataset, None, on_error="skip", seed=3)]
    assert skipped[:3] + skipped[4:] == [0, 1, 2, 4, 5, 6, 7]
    assert skipped[3] != 3
    dropped = [int(item[0]) for item in DataLoader(dataset, None, on_error="drop", **options)]
    assert dropped == [0, 1, 2, 4, 5, 6, 7]


class Strings(Spoilt):
    """Samples that do not fit rows, of which some are spoilt."""

    def __getitem__(self, index: int) -> Any:
        return {"name": "x" * index, "at": super().__getitem__(index)}


@ways
def test_samples_with_strings_are_replaced_whole(way: str) -> None:
    dataset = Strings(24, bad=(3, 9, 10))
    options: dict[str, Any] = {"seed": 3, "on_error": "skip"}
    batches = list(DataLoader(dataset, 8, workers=WAYS[way], **options))
    inline = list(DataLoader(dataset, 8, **options))
    for batch, twin in zip(batches, inline, strict=True):
        assert batch["name"] == twin["name"] == ["x" * int(index) for index, _ in batch["at"]]
        assert torch.equal(batch["at"], twin["at"])


class Ready(Spoilt):
    """Gives batches that are ready, of which the first may have nothing."""

    def __getitems__(self, keys: list[int]) -> Any:
        if self.bad & set(keys):
            raise ValueError("a batch with bad samples")
        return torch.tensor([key for key in keys if key >= 2])


@pytest.mark.parametrize("way", ["inline", "threads", "batches", "lanes"])
@pytest.mark.parametrize("action", ["raise", "skip", "drop"])
def test_what_a_dataset_gives_for_a_whole_run_reaches_the_collate_fn_as_it_is(way: str, action: Any) -> None:
    options: dict[str, Any] = {"workers": WAYS[way], "collate_fn": _same, "on_error": action}
    assert [batch.tolist() for batch in DataLoader(Ready(6), 2, **options)] == [[], [2, 3], [4, 5]]


@pytest.mark.parametrize("way", ["inline", "threads", "batches", "lanes"])
@pytest.mark.parametrize("action", ["raise", "skip", "drop"])
def test_a_batch_that_was_empty_from_the_start_is_not_passed_over(way: str, action: Any) -> None:
    options: dict[str, Any] = {"workers": WAYS[way], "collate_fn": _as_list, "on_error": action}
    loader: DataLoader[Any] = DataLoader(Spoilt(6), batch_sampler=[[0, 1], [], [5]], **options)
    assert list(loader) == [[0, 1], [], [5]]


def _same(samples: Any) -> Any:
    return samples


class Ragged(Spoilt):
    """Samples of two shapes: a batch of them cannot be stacked."""

    def __getitem__(self, index: int) -> Any:
        return np.zeros(1 + index % 2) if super().__getitem__(index) is not None else None


@pytest.mark.parametrize("way", ["inline", "parts", "rows"])
def test_samples_that_do_not_stack_are_an_error_of_the_batch_and_not_skipped(way: str) -> None:
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        list(DataLoader(Ragged(24, bad=[3]), 8, workers=WAYS[way], on_error="skip"))


class Awaited:
    """Samples that are awaited; some raise, some never come."""

    def __init__(self, samples: int, bad: Any = (), stuck: Any = ()) -> None:
        self.samples, self.bad, self.stuck = samples, set(bad), set(stuck)

    def __len__(self) -> int:
        return self.samples

    async def __agetitem__(self, index: int) -> Any:
        if index in self.bad:
            raise ValueError(f"sample {index} is spoilt")
        if index in self.stuck:
            await asyncio.Event().wait()
        return np.array([index, stoker.rng().integers(2**40)])


COROUTINES = {"process": Workers(2, 4, "fork", sample_timeout_s=0.3), "thread": Workers(0, 4, sample_timeout_s=0.3)}


@pytest.mark.parametrize("where", COROUTINES)
@pytest.mark.parametrize("action", ["skip", "drop"])
def test_coroutines_that_raise_or_never_end_are_bad_samples_like_others(where: str, action: Any) -> None:
    workers, options = COROUTINES[where], {"on_error": action, "seed": 3}
    loader: DataLoader[Any] = DataLoader(Awaited(32, bad=[9], stuck=[21]), 8, workers=workers, **options)
    batches = [batch.tolist() for batch in loader]
    assert batches == [batch.tolist() for batch in DataLoader(Spoilt(32, bad=[9, 21]), 8, **options)]
    assert {failure.index: failure.error.split(":")[0] for failure in loader.failures} == {
        9: "ValueError",
        21: "TimeoutError",
    }


class Flaky(Awaited):
    """Samples that are awaited, of which some come only when they are asked for the third time."""

    def __init__(self, samples: int, bad: Any = (), flaky: Any = ()) -> None:
        super().__init__(samples, bad)
        self.asked = dict.fromkeys(flaky, 0)

    async def __agetitem__(self, index: int) -> Any:
        if not isinstance(index, int):
            raise TypeError(f"an index that no sampler gave: {index!r}")
        if index in self.asked:
            self.asked[index] += 1
            if self.asked[index] <= 2:
                raise ConnectionError(f"sample {index} is out of reach")
        return await super().__agetitem__(index)


def _as_pairs(samples: list[Any]) -> list[list[int]]:
    return [sample.tolist() for sample in samples]


@pytest.mark.parametrize("where", COROUTINES)
@pytest.mark.parametrize("collate", [None, _as_pairs])
@pytest.mark.parametrize("action", ["skip", "drop"])
def test_coroutines_follow_the_same_rules_as_other_samples(where: str, collate: Any, action: Any) -> None:
    """Of two ranks, and with batches of which all samples are bad: rows are replaced and left out."""
    policy = OnError(action, tries=3, pause_s=0.0)
    for rank in (0, 1):
        options: dict[str, Any] = {"on_error": policy, "seed": 3, "shard": (rank, 2), "collate_fn": collate}
        awaited: DataLoader[Any] = DataLoader(
            Flaky(32, bad=range(8, 17), flaky=[3, 20]), 4, workers=COROUTINES[where], **options
        )
        batches = [batch if collate else batch.tolist() for batch in awaited]
        plain: DataLoader[Any] = DataLoader(Spoilt(32, range(8, 17)), 4, **options)
        assert batches == [batch if collate else batch.tolist() for batch in plain]
        listed = [(failure.index, failure.position, failure.error) for failure in awaited.failures]
        assert listed == [(failure.index, failure.position, failure.error) for failure in plain.failures]
        assert awaited.stats().retries == 2 * len(awaited.failures) + 2


def test_pauses_of_coroutines_double_and_are_scattered_by_half(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def note(pause_s: float) -> None:
        slept.append(pause_s)

    monkeypatch.setattr(asyncio, "sleep", note)
    policy = OnError("skip", tries=5, pause_s=0.1)
    sample = asyncio.run(Careful(policy, "here").load_async(Awaited(4, bad=[2]).__agetitem__, 2))
    assert type(sample) is Failed
    assert len(slept) == 4
    assert len({round(pause_s / 2**number, 9) for number, pause_s in enumerate(slept)}) > 1
    for pause_s, middle_s in zip(slept, (0.1, 0.2, 0.4, 0.8), strict=True):
        assert 0.5 * middle_s <= pause_s <= 1.5 * middle_s


@pytest.mark.parametrize("where", COROUTINES)
def test_by_default_a_coroutine_past_its_time_raises(where: str) -> None:
    with pytest.raises(TimeoutError):
        list(DataLoader(Awaited(32, stuck=[21]), 8, workers=COROUTINES[where]))


class Stream(IterableDataset[int]):
    """An iterator that raises."""

    def __iter__(self) -> Any:
        yield from range(4)
        raise ValueError("the stream is broken")


@pytest.mark.parametrize("way", ["inline", "parts"])
def test_an_iterable_dataset_cannot_go_on_after_an_error_so_on_error_is_refused(way: str) -> None:
    with pytest.raises(ValueError, match="on_error"):
        DataLoader(Stream(), 2, workers=WAYS[way], on_error="skip")
    with pytest.raises(ValueError, match="the stream is broken"):
        list(DataLoader(Stream(), 2, workers=WAYS[way]))


@pytest.mark.parametrize("way", ["inline", "parts", "batches"])
def test_an_index_beyond_the_dataset_is_a_bad_sample_too(way: str) -> None:
    dataset = torch.utils.data.TensorDataset(torch.arange(10))
    loader: DataLoader[Any] = DataLoader(dataset, 4, sampler=[0, 1, 99, 3], workers=WAYS[way], on_error="drop")
    assert [batch[0].tolist() for batch in loader] == [[0, 1, 3]]
    assert [failure.index for failure in loader.failures] == [99]
