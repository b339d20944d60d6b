"""How an IterableDataset is split over workers: seen by letting workers say what each of them gets.

A stream that knows nothing of workers is read as a whole by each of them: every sample comes as often as there are
workers, and none comes sooner. One that is read by the first worker only leaves the others idle. Both are seen in a
few samples: each worker gives a fingerprint of what it has, together with its number.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import time
from typing import Any

from stoker.bench.rebuild import rebuild
from stoker.bench.settings import TORCH
from stoker.diagnosis.bound import Alarm, OutOfTime
from stoker.diagnosis.facts import GivenLoader

SAME, ONE, SPLIT = "same", "one", "split"
HOW_TO_SPLIT = (
    "Split the stream over workers in the dataset's __iter__:\n"
    "    info = torch.utils.data.get_worker_info()\n"
    "    if info is not None:  # better still: give each worker files of its own\n"
    "        items = itertools.islice(items, info.id, None, info.num_workers)"
)
_EACH = 4
_LEAST_S = 1.0


def streams_of(loader: Any, given: GivenLoader, seconds: float) -> str:
    """SAME if two workers give the same samples, ONE if only one gives any, SPLIT if each its own; else nothing."""
    workers = max(2, min(4, given.processes))
    twin = rebuild(
        loader,
        TORCH,
        keys={"batch_size": None},
        num_workers=workers,
        collate_fn=fingerprint,
        persistent_workers=False,
        pin_memory=False,
        prefetch_factor=2,
    )
    given_by: dict[int, list[str]] = {}
    with Alarm(max(_LEAST_S, seconds)) as alarm, contextlib.suppress(OutOfTime):
        _ask(twin, given_by, workers, alarm)
    return judge_streams(list(given_by.values()), all_asked=sum(map(len, given_by.values())) >= _EACH)


def fingerprint(sample: Any) -> tuple[int, str]:
    """Which worker has the sample, and what it is."""
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    try:
        text = pickle.dumps(sample)
    except Exception:  # samples of any kind
        text = repr(sample).encode()
    return (info.id if info is not None else 0), hashlib.sha1(text, usedforsecurity=False).hexdigest()


def _ask(twin: Any, given_by: dict[int, list[str]], workers: int, alarm: Alarm) -> None:
    begun_at = time.monotonic()
    alarm.waiting = True
    for number, (worker, text) in enumerate(twin, start=1):
        given_by.setdefault(worker, []).append(text)
        if number >= _EACH * workers or time.monotonic() - begun_at > (alarm.seconds or 0.0):
            break
    alarm.waiting = False


def judge_streams(found: list[list[str]], all_asked: bool) -> str:
    """From what each worker that gave anything has given."""
    if len(found) == 1:
        return ONE if all_asked else ""
    if len(found) < 2:
        return ""
    common = min(len(texts) for texts in found)
    heads = [texts[:common] for texts in found]
    if all(head == heads[0] for head in heads):
        # Samples that are all alike look the same whoever gives them.
        return SAME if len(set(heads[0])) > 1 else ""
    return SPLIT if not set(heads[0]) & set(heads[1]) else ""
