"""A program with an asynchronous loader that tells its workers' pids and then waits to be killed."""

from __future__ import annotations

import sys

from tests.poptorch.data import Numbers

import stoker.poptorch as poptorch


def main(strategy: str) -> None:
    loader = poptorch.DataLoader(
        poptorch.Options(),
        Numbers(1000),
        batch_size=2,
        num_workers=2,
        mode=poptorch.DataLoaderMode.Async,
        async_options={"sharing_strategy": poptorch.SharingStrategy[strategy]},
    )
    accessor = poptorch.AsynchronousDataAccessor(Numbers(1000))
    next(iter(loader))
    assert loader._accessor is not None
    print(*loader._accessor._pids(), *accessor._pids(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
