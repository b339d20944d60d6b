"""Programs whose workers import for ever: what becomes of them when the program is killed in the middle of that."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any


class Late:
    """A dataset that is never unpickled: reading it takes an hour, and says when it begins."""

    def __init__(self, note: str) -> None:
        self.note = note

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index

    def __reduce__(self) -> tuple[Any, ...]:
        return _wait, (self.note,)


def _wait(note: str) -> None:
    with open(note, "a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(3600)


class ForkedLate(Late):
    """The same for a worker that is forked: it is opened for ever, with the GIL held now and then."""

    def __getitem__(self, index: int) -> int:
        _wait(self.note)
        return index


if __name__ == "__main__":
    import stoker

    method, note = sys.argv[1:3]
    dataset: Any = (ForkedLate if method == "fork" else Late)(note)
    loader: Any = stoker.DataLoader(dataset, 2, workers=stoker.Workers(2, 1, method))
    iterator = iter(loader)
    next(iterator)
elif os.environ.get("STOKER_TEST_LATE_MAIN"):  # imported again by a spawned worker, as its main module
    _wait(str(Path(os.environ["STOKER_TEST_LATE_MAIN"])))
