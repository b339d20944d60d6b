"""Dead workers: replaced without a trace in the batches; a sample that kills is bad, one that was beside it is not.

Deaths here are real: workers are killed from outside at a certain step (chance), or by a sample (its fault).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from tests.faults.killing import kill
from tests.faults.poison import Tortured
from torch.utils.data import IterableDataset, get_worker_info

import stoker
from stoker import DataLoader, Workers
from stoker.batches.job import MapJob
from stoker.contracts import EpochNote
from stoker.errors import WorkerDied
from stoker.workers.deaths import Deaths

pytestmark = [pytest.mark.faults, pytest.mark.filterwarnings("ignore:This DataLoader will create")]

SHARES: dict[str, dict[str, Any]] = {
    "parts": {"processes": 2},
    "rows": {"processes": 2, "share": "rows"},
    "batches": {"processes": 2, "share": "batches"},
    "three": {"processes": 3},
    "lanes": {"processes": 2, "threads": 3},
    "lanes-rows": {"processes": 2, "threads": 3, "share": "rows"},
}
shares = pytest.mark.parametrize("share", SHARES)


def restarting(share: str = "parts", **more: Any) -> Workers:
    return Workers(**{"start_method": "fork", "on_death": "restart", **SHARES[share], **more})


def loader_of(dataset: Any, workers: Workers, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, 8, **{"seed": 5, "shuffle": True, "workers": workers, **options})


def inline(dataset: Any, **options: Any) -> list[Any]:
    return [batch.tolist() for batch in loader_of(dataset, Workers(), **options)]


def killing(loader: DataLoader[Any], at: dict[int, list[int]]) -> Iterator[Any]:
    """The batches of a loader, some of whose workers are killed before certain steps: {step: seats}."""
    batches: Any = iter(loader)
    for step in range(10**6):
        kill([batches._workers[seat] for seat in at.get(step, [])])
        try:
            yield next(batches).tolist()
        except StopIteration:
            return


# Deaths by chance


@shares
@pytest.mark.parametrize(
    "at",
    [{0: [0]}, {0: [0, 1]}, {5: [1], 12: [0]}, {6: [0, 1], 14: [0, 1], 22: [1]}, {29: [0, 1]}],
    ids=["first batch", "all in the first batch", "one by one", "all at once, again and again", "last batch"],
)
def test_deaths_leave_no_trace_in_the_batches(share: str, at: dict[int, list[int]]) -> None:
    loader = loader_of(Tortured(240), restarting(share))
    assert list(killing(loader, at)) == inline(Tortured(240))
    assert loader.failures == []


@shares
def test_a_resume_in_the_middle_of_deaths_goes_on_exactly(share: str) -> None:
    whole = inline(Tortured(240))
    first = loader_of(Tortured(240), restarting(share))
    assert list(islice(killing(first, {3: [0], 9: [0, 1]}), 10)) == whole[:10]
    second = loader_of(Tortured(240), restarting(share))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert list(killing(second, {0: [1], 8: [0]})) == whole[10:]


@shares
def test_persistent_workers_that_die_between_epochs_are_replaced(share: str) -> None:
    loader = loader_of(Tortured(80), restarting(share), persistent_workers=True)
    twin = loader_of(Tortured(80), Workers())
    for _ in range(3):
        assert [batch.tolist() for batch in loader] == [batch.tolist() for batch in twin]
        kill(loader._iterator._workers)  # type: ignore[union-attr]


def test_out_of_order_every_sample_comes_once() -> None:
    loader = loader_of(Tortured(240), restarting(), in_order=False)
    batches = list(killing(loader, {2: [0], 9: [0, 1], 17: [1]}))
    assert sorted(index for batch in batches for index, _ in batch) == list(range(240))
    assert sorted(map(tuple, chain(*batches))) == sorted(map(tuple, chain(*inline(Tortured(240)))))


def test_an_epoch_that_is_left_early_with_dead_workers_is_followed_by_a_whole_one() -> None:
    loader = loader_of(Tortured(80), restarting(), persistent_workers=True)
    batches: Any = iter(loader)
    next(batches)
    kill(batches._workers)
    twin = loader_of(Tortured(80), Workers())
    next(iter(twin))
    assert [batch.tolist() for batch in loader] == [batch.tolist() for batch in twin]


class Stream(IterableDataset[Any]):
    """Each worker's own part of a range."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        yield from range(info.id, self.samples, info.num_workers) if info else range(self.samples)


class StatefulStream(IterableDataset[Any]):
    """The same, with a place that can be saved."""

    def __init__(self, samples: int) -> None:
        self.samples, self.at = samples, 0

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        mine = list(range(info.id, self.samples, info.num_workers)) if info else list(range(self.samples))
        while self.at < len(mine):
            self.at += 1
            yield mine[self.at - 1]
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.at = state_dict["at"]


@pytest.mark.parametrize("kind", [Stream, StatefulStream])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_iterable_dataset_goes_on_where_its_dead_worker_was(kind: Any, persistent: bool) -> None:
    def make(on_death: Any) -> DataLoader[Any]:
        return DataLoader(kind(90), 4, workers=Workers(2, 1, "fork", on_death=on_death), persistent_workers=persistent)

    quiet, dying = make("raise"), make("restart")
    for at in ({0: [0]}, {3: [1], 11: [0, 1]}, {0: [0, 1], 7: [0]}):
        assert list(killing(dying, at)) == [batch.tolist() for batch in quiet]
        if persistent:
            kill(dying._iterator._workers)  # type: ignore[union-attr]


# Samples that kill


@shares
@pytest.mark.parametrize("fault", ["kill", "segv"])
def test_a_sample_that_kills_twice_is_bad_and_no_other_is(share: str, fault: str, tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"
    dataset = Tortured(64, {21: fault}, str(deaths))
    loader = loader_of(dataset, restarting(share), on_error="skip")
    batches = [batch.tolist() for batch in loader]
    assert [failure.index for failure in loader.failures] == [21]
    assert {"kill": "SIGKILL", "segv": "SIGSEGV"}[fault] in loader.failures[0].error
    died = deaths.read_text().split()
    assert died == [fault, fault] or ("lanes" in share and died == [fault] * 3)  # the first among others, of which any
    assert batches == inline(Tortured(64, {21: "raise"}), on_error="skip")


@shares
def test_a_sample_that_kills_and_is_dropped_leaves_a_shorter_batch(share: str) -> None:
    loader = loader_of(Tortured(64, {21: "kill"}), restarting(share), on_error="drop")
    assert [batch.tolist() for batch in loader] == inline(Tortured(64, {21: "raise"}), on_error="drop")


def test_with_on_error_raise_a_sample_that_kills_ends_the_run_and_is_named() -> None:
    with pytest.raises(WorkerDied, match="two workers died loading it"):
        list(loader_of(Tortured(64, {21: "kill"}), restarting()))


@pytest.mark.parametrize("place", [0, 7, 56, 63])
def test_first_and_last_samples_may_kill(place: int) -> None:
    options: dict[str, Any] = {"shuffle": False, "on_error": "skip"}
    loader = loader_of(Tortured(64, {place: "kill"}), restarting(), **options)
    assert [batch.tolist() for batch in loader] == inline(Tortured(64, {place: "raise"}), **options)


def test_a_whole_batch_of_killers_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoker.workers.deaths._LONGEST_PAUSE_S", 0.02)  # sixteen deaths in a row, by far too many
    faults = dict.fromkeys(range(8), "kill")
    options: dict[str, Any] = {"shuffle": False, "on_error": "skip"}
    loader = loader_of(Tortured(64, faults), restarting(), **options)
    assert [batch.tolist() for batch in loader] == inline(Tortured(64, dict.fromkeys(faults, "raise")), **options)
    assert {failure.index for failure in loader.failures} == set(range(8))


class Chance(Tortured):
    """A sample that kills the first worker that loads it, and never again."""

    def __getitem__(self, index: int) -> Any:
        with contextlib.suppress(FileExistsError):
            if index in self.faults and self.deaths is not None:
                os.close(os.open(f"{self.deaths}-{index}", os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
        return Tortured(self.samples)[index]


@shares
def test_one_death_is_chance_and_no_samples_fault(share: str, tmp_path: Path) -> None:
    faults = dict.fromkeys((0, 9, 21, 22, 40, 63), "kill")
    loader = loader_of(Chance(64, faults, str(tmp_path / "died")), restarting(share), on_error="skip")
    assert [batch.tolist() for batch in loader] == inline(Tortured(64))
    assert loader.failures == []
    assert len(list(tmp_path.iterdir())) == 6


# Budgets and pauses


def test_by_default_a_death_is_raised() -> None:
    with pytest.raises(WorkerDied, match=r"SIGKILL.*(?s:.*)on_death=\"restart\""):
        list(loader_of(Tortured(64, {21: "kill"}), Workers(2, 1, "fork")))


@shares
def test_past_the_budget_of_restarts_the_run_stops_and_says_so(share: str) -> None:
    faults = dict.fromkeys(range(0, 64, 4), "kill")
    loader = loader_of(Tortured(64, faults), restarting(share, max_restarts=5), on_error="skip")
    with pytest.raises(WorkerDied, match="All 5 restarts are used up") as info:
        list(loader)
    assert info.value.data["exit_code"] == -signal.SIGKILL
    assert len(list(islice(iter(loader_of(Tortured(64), restarting(share))), 8))) == 8  # and nothing is spoilt


def test_after_a_run_that_stopped_the_loader_can_begin_again() -> None:
    loader = loader_of(Tortured(64, {21: "kill"}), Workers(2, 1, "fork"), persistent_workers=True, shuffle=False)
    for _ in range(2):
        batches = iter(loader)
        assert len(list(islice(batches, 2))) == 2
        with pytest.raises(WorkerDied):
            list(batches)


def _die(worker: int) -> None:
    os._exit(9)


def test_workers_that_die_while_they_start_use_up_the_budget_and_do_not_hang() -> None:
    with pytest.raises(WorkerDied, match="exit code 9"):
        iter(loader_of(Tortured(64), restarting(max_restarts=4), worker_init_fn=_die))


def test_pauses_between_restarts_double_until_something_is_heard() -> None:
    slept: list[float] = []
    recovery = Deaths(Workers(2, on_death="restart"), sleep=slept.append)
    for _ in range(6):
        recovery.pause()
    assert slept == [0.02, 0.04, 0.08, 0.16]
    recovery.heard()
    recovery.pause()
    assert len(slept) == 4
    for _ in range(20):
        recovery.pause()
    assert max(slept) == 5.0


# Memory


class Leaking:
    """Each sample leaves 4 MiB behind, and says who loaded it."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.kept: list[bytes] = []

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        self.kept.append(bytes(bytearray(os.urandom(1)) * (4 * 2**20)))
        return np.array([index, os.getpid()])


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_worker_that_grows_too_large_is_replaced_between_two_tickets(lanes: int) -> None:
    own = psutil.Process().memory_info()
    workers = Workers(2, lanes, "fork", worker_max_bytes=own.rss - own.shared + 40 * 2**20)
    loader: DataLoader[Any] = DataLoader(Leaking(96), 8, workers=workers, on_error="skip")
    rows = torch.cat(list(loader)).tolist()
    assert [index for index, _ in rows] == list(range(96))
    assert loader.failures == []
    assert len({pid for _, pid in rows}) > 2


# The training loop's own faults


@pytest.mark.parametrize("error", [KeyboardInterrupt, ArithmeticError])
def test_an_error_in_the_training_step_takes_nothing_from_the_loader(error: type[BaseException]) -> None:
    loader = loader_of(Tortured(80), restarting())
    batches, seen = iter(loader), []
    while True:
        try:
            for batch in batches:
                seen.append(batch.tolist())
                if len(seen) % 3 == 0:
                    raise error
            break
        except error:
            continue
    assert seen == inline(Tortured(80))


def test_ctrl_c_while_waiting_for_a_batch_can_be_caught_and_the_pass_goes_on(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    loader = loader_of(Gated(32, str(gate)), restarting(), shuffle=False)
    batches = iter(loader)
    first = next(batches).tolist()
    timer = threading.Timer(0.5, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    timer.join()
    with open(gate, "w"):  # the sample that waits gets its answer
        rest = [batch.tolist() for batch in batches]
    assert [first, *rest] == inline(Tortured(32), shuffle=False)


class Gated(Tortured):
    """Sample 9 waits until somebody opens the gate."""

    def __init__(self, samples: int, gate: str) -> None:
        super().__init__(samples)
        self.gate = gate

    def __getitem__(self, index: int) -> Any:
        if index == 9:
            with open(self.gate):
                pass
        return Tortured(self.samples)[index]


def in_child(work: Any) -> str:
    """What a forked child says of doing this: `ended`, or an error's type and text."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = f"ended {work()}"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.parametrize("persistent", [False, True])
def test_a_forked_child_may_make_a_pass_of_its_own(persistent: bool) -> None:
    loader = loader_of(Tortured(80), restarting(), persistent_workers=persistent)
    batches = iter(loader)
    first = next(batches).tolist()
    assert in_child(lambda: len(list(loader))) == "ended 10"
    assert [first, *(batch.tolist() for batch in batches)] == inline(Tortured(80))


def test_a_forked_child_that_goes_on_with_its_parents_pass_is_told_so() -> None:
    batches = iter(loader_of(Tortured(80), restarting()))
    first = next(batches).tolist()
    said = in_child(lambda: next(batches))
    assert said.startswith("RuntimeError")
    assert "process" in said
    assert [first, *(batch.tolist() for batch in batches)] == inline(Tortured(80))


def test_a_forked_child_that_drops_the_pass_takes_nothing_from_the_parent() -> None:
    batches: Any = iter(loader_of(Tortured(80), restarting()))
    first = next(batches).tolist()

    def drop() -> None:
        nonlocal batches
        del batches

    assert in_child(drop) == "ended None"
    assert [first, *(batch.tolist() for batch in batches)] == inline(Tortured(80))


def test_threads_that_share_a_pass_get_every_batch_once_also_while_workers_die() -> None:
    batches: Any = iter(loader_of(Tortured(400), restarting()))
    seen: list[Any] = []

    def take() -> None:
        for batch in batches:
            seen.append(batch.tolist())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    with contextlib.suppress(ProcessLookupError):
        os.kill(batches._workers[0].pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted(inline(Tortured(400)))


def test_threads_with_a_pass_each_do_not_disturb_each_other() -> None:
    results: list[Any] = []
    wanted = inline(Tortured(80, {21: "raise"}), on_error="skip")

    def take() -> None:
        loader = loader_of(Tortured(80, {21: "kill"}), restarting(), on_error="skip")
        results.append([batch.tolist() for batch in loader])

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [wanted] * 3


def test_the_same_seed_gives_the_same_batches_with_every_kind_of_death(tmp_path: Path) -> None:
    def run(at: dict[int, list[int]], fault: str) -> list[Any]:
        loader = loader_of(Tortured(160, {21: fault, 90: fault}), restarting(), on_error="skip")
        return list(killing(loader, at))

    calm = run({}, "raise")
    assert run({2: [0], 11: [1]}, "kill") == calm
    assert run({7: [0, 1]}, "segv") == calm


def test_all_lanes_of_a_fresh_worker_know_their_epoch_before_they_load(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = MapJob.begin_epoch

    def slowly(job: MapJob, note: EpochNote) -> None:
        time.sleep(0.05)  # long enough for every other lane to take its first ticket
        begin(job, note)

    monkeypatch.setattr(MapJob, "begin_epoch", slowly)
    loader = loader_of(Tortured(80), restarting("lanes"))
    assert list(killing(loader, {4: [0, 1]})) == inline(Tortured(80))


def test_stoker_workers_that_replace_are_asked_for_by_name() -> None:
    assert not stoker.Workers(2).replaces
    assert stoker.Workers(2, on_death="restart").replaces
    with pytest.raises(ValueError, match="on_death"):
        stoker.Workers(2, on_death="ignore")  # type: ignore[arg-type]


class DiesWhenAskedAgain:
    """Every fourth sample is bad; each that follows one ends its process when it is asked for the second time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> int:
        if index % 4 == 0:
            raise ValueError(f"sample {index} is spoilt")
        if index % 4 == 1:
            with (self.folder / f"asked-{index}").open("a+b", buffering=0) as asked:
                asked.write(b".")
                if asked.tell() == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
        return index


def _as_is(samples: list[int]) -> list[int]:
    return samples


@pytest.mark.parametrize("lanes", [2, 4])
def test_a_batch_that_is_asked_for_again_has_one_holder_if_its_worker_dies_then(tmp_path: Path, lanes: int) -> None:
    """The lane that had it first still shows it; both were taken for holders."""
    workers = Workers(1, lanes, "fork", share="batches", on_death="restart")
    dataset: Any = DiesWhenAskedAgain(tmp_path)
    loader: DataLoader[Any] = DataLoader(
        dataset, 4, sampler=list(range(48)), seed=1, collate_fn=_as_is, on_error="skip", workers=workers
    )
    batches = list(loader)
    assert [batch[1:] for batch in batches] == [list(range(4 * at + 1, 4 * at + 4)) for at in range(12)]
    assert [failure.index for failure in loader.failures] == list(range(0, 48, 4))
