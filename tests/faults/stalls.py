"""The second torture: workers are stopped, slowed and killed at random moments, on a machine that is too busy.

    python -m tests.faults.stalls                                  1 000 deaths and 3 000 stalls, every start method
    python -m tests.faults.stalls --start fork --deaths 50         one short run

Nothing is wrong with the samples here; it is the workers that are late. A tormentor stops them (SIGSTOP) for moments or
for more than half a second, and lets them go on; the training loop kills one of them every few batches, whatever the
others are doing; keys take long to unpickle, datasets take long to arrive, and busy processes take the cores away.
Every row is compared with what it must be, over its whole length, when it is handed over and again some batches later:
a worker that is late must never write into what another batch lies in.

Spawned workers import this module, so it imports nothing heavy.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "results" / "stalls.json"
WIDTH = 4_000  # numbers in a row: 32 kB, so that a batch is not copied out of its slot
BATCH = 6
KEPT = 5  # batches that are looked at once more later
STEPS_A_DEATH = 6  # so that no sample is at hand in two deaths, which would count as its own fault
_WAYS: list[dict[str, Any]] = [
    {"share": "rows", "rows_per_run": 1},
    {"share": "rows", "lanes": 3, "rows_per_run": 1},
    {"share": None},
    {"share": "batches"},
    {"share": None, "lanes": 2},
]


@dataclass(frozen=True)
class Setup:
    """One run."""

    start: str = "fork"
    deaths: int = 50
    stalls: int = 50
    processes: int = 3
    share: str | None = "rows"
    lanes: int = 1
    rows_per_run: int | None = 1
    busy: int = 3  # processes that take the cores away
    seed: int = 1


@dataclass
class Outcome:
    """What a run gave; `wrong` is empty if it was as it must be."""

    setup: dict[str, Any]
    seconds: float = 0.0
    rows: int = 0
    deaths: int = 0
    stalls: int = 0
    longest_stall_s: float = 0.0
    wrong: list[str] = field(default_factory=list)


class LateKey:
    """A key that now and then takes a while to be unpickled."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (self.number,)


def _arrive(number: int) -> LateKey:
    if number % 97 == 13:
        time.sleep(0.03)
    return LateKey(number)


class Late:
    """Rows that say who they are; takes a while to reach a spawned worker."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __setstate__(self, state: dict[str, Any]) -> None:
        time.sleep(random.random() * 0.1)
        self.__dict__.update(state)

    def __getitem__(self, key: Any) -> Any:
        return np.full(WIDTH, key.number if isinstance(key, LateKey) else key, np.int64)


class LateKeys:
    """An order that both knows and gives such keys."""

    def __init__(self, count: int, seed: int) -> None:
        self.numbers = random.Random(seed).sample(range(count), count)

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Any]:
        return map(LateKey, self.numbers)


class Tormentor(threading.Thread):
    """Stops workers and lets them go on, until it has done so often enough."""

    def __init__(self, workers: Any, outcome: Outcome, setup: Setup) -> None:
        super().__init__(daemon=True)
        self._workers, self._outcome, self._wanted = workers, outcome, setup.stalls
        self._chance = random.Random(setup.seed)
        self.is_over = False

    def run(self) -> None:
        while not self.is_over and self._outcome.stalls < self._wanted:
            worker = self._chance.choice(self._workers())
            # Mostly moments; now and then longer than anybody would wait who guesses by a clock.
            for_s = self._chance.choice([0.002, 0.01, 0.03, 0.03, 0.1, 0.6])
            self._outcome.stalls += _send(worker, signal.SIGSTOP)
            time.sleep(for_s)
            _send(worker, signal.SIGCONT)
            self._outcome.longest_stall_s = max(self._outcome.longest_stall_s, for_s)
            time.sleep(self._chance.random() * 0.02)


def _send(worker: Any, number: signal.Signals) -> bool:
    try:
        signal.pidfd_send_signal(worker.end, number)
    except OSError:  # it is dead, or was replaced
        return False
    return True


def torment(setup: Setup) -> Outcome:
    """Run it until there were deaths and stalls enough, and compare every row."""
    outcome = Outcome(asdict(setup))
    begun = time.monotonic()
    with busy_processes(setup.busy):
        epoch = 0
        while not outcome.wrong and (outcome.deaths < setup.deaths or outcome.stalls < setup.stalls):
            _run_epoch(setup, epoch, outcome)
            epoch += 1
    outcome.seconds = round(time.monotonic() - begun, 2)
    return outcome


def _run_epoch(setup: Setup, epoch: int, outcome: Outcome) -> None:
    import stoker

    keys = LateKeys(1_200 if setup.start == "fork" else 240, setup.seed + epoch)
    workers = stoker.Workers(
        setup.processes,
        setup.lanes,
        cast(Any, setup.start),
        cast(Any, setup.share),
        setup.rows_per_run,
        on_death="restart",
        max_restarts=10**6,
    )
    dataset: Any = Late(len(keys))
    loader = stoker.DataLoader(dataset, BATCH, sampler=keys, workers=workers, on_error="skip")
    iterator: Any = iter(loader)
    tormentor = Tormentor(lambda: iterator._workers, outcome, setup)
    tormentor.start()
    try:
        _compare(iterator, keys.numbers, setup, outcome, random.Random(epoch))
    finally:
        tormentor.is_over = True
        tormentor.join()
    outcome.wrong += [f"a sample was blamed: {failure.index}: {failure.error}" for failure in loader.failures]


def _compare(batches: Any, numbers: list[int], setup: Setup, outcome: Outcome, chance: random.Random) -> None:
    kept: deque[tuple[int, Any]] = deque()
    step = 0
    for step, batch in enumerate(batches):
        _check(batch, numbers, step, "when it came", outcome)
        outcome.rows += len(batch)
        kept.append((step, batch))
        if len(kept) > KEPT:
            old, batch = kept.popleft()
            _check(batch, numbers, old, "some batches later", outcome)
        if step % STEPS_A_DEATH == STEPS_A_DEATH - 1 and outcome.deaths < setup.deaths:
            outcome.deaths += _send(chance.choice(batches._workers), signal.SIGKILL)
    if step + 1 != len(numbers) // BATCH:
        outcome.wrong.append(f"{step + 1} batches instead of {len(numbers) // BATCH}")


def _check(batch: Any, numbers: list[int], step: int, when: str, outcome: Outcome) -> None:
    wanted = np.array(numbers[step * BATCH : (step + 1) * BATCH])[:, None]
    if batch.shape != (BATCH, WIDTH) or (batch.numpy() != wanted).any():
        outcome.wrong.append(f"step {step}, {when}: {batch[:, 0].tolist()} instead of {wanted[:, 0].tolist()}")


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Processes that do nothing but take time, while this lasts."""
    context = multiprocessing.get_context("fork")
    busy = [context.Process(target=_be_busy, daemon=True) for _ in range(count)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.join()


def _be_busy() -> None:
    while True:
        sum(range(10_000))


def main(arguments: list[str]) -> int:
    """Run what the options say, save the record; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description="Stop, slow and kill workers, and check every row.")
    parser.add_argument("--start", action="append", choices=["fork", "forkserver", "spawn"], help="default: all three")
    parser.add_argument("--deaths", type=int, default=800, help="of forked workers; a tenth of it of others")
    parser.add_argument("--stalls", type=int, default=1_000, help="of each start method")
    parser.add_argument("--record", default=str(RECORD), help="where to save what was found")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are meant
    outcomes: list[Outcome] = []
    for start in options.start or ["fork", "forkserver", "spawn"]:
        deaths = options.deaths if start == "fork" else max(1, options.deaths // 8)
        for way in _WAYS:
            share_of = Setup(start, -(-deaths // len(_WAYS)), -(-options.stalls // len(_WAYS)))
            outcomes.append(torment(Setup(**{**asdict(share_of), "rows_per_run": None, **way})))
            _tell(outcomes[-1])
    if options.record:
        _save(Path(options.record), outcomes)
    total = sum(outcome.deaths for outcome in outcomes), sum(outcome.stalls for outcome in outcomes)
    print(f"{total[0]} deaths and {total[1]} stalls in all", flush=True)
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


def _tell(outcome: Outcome) -> None:
    setup = outcome.setup
    print(
        f"{setup['start']}, share={setup['share']}, {setup['lanes']} lanes: {outcome.rows:,} rows in "
        f"{outcome.seconds:.1f} s, {outcome.deaths} deaths, {outcome.stalls} stalls: "
        f"{'as it must be' if not outcome.wrong else 'WRONG'}",
        flush=True,
    )
    for line in outcome.wrong[:10]:
        print(f"  {line}")


def _save(path: Path, outcomes: list[Outcome]) -> None:
    from stoker.bench.records import machine_facts, now, version_facts

    record = {"schema": 1, "machine": machine_facts(), "versions": version_facts(("torch", "numpy"))}
    runs = [{**asdict(outcome), "measured_at": now()} for outcome in outcomes]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**record, "runs": runs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
