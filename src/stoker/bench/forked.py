"""A process of its own for what must leave no trace here: gone, with all that it started, when the block is left."""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from stoker.bench.process_tree import ProcessTree


@contextmanager
def forked(target: Callable[..., object], *args: Any) -> Iterator[tuple[BaseProcess, Connection, ProcessTree]]:
    """A forked process that calls `target(*args, pipe)`; the other end of the pipe, and the processes below it."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_main, args=(target, *args, theirs))
    with warnings.catch_warnings():
        # Python 3.12 warns when a process with threads forks; NumPy's and torch's are idle here, ours there are none.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    theirs.close()
    assert process.pid is not None
    tree = ProcessTree(process.pid)
    try:
        yield process, ours, tree
    finally:
        tree.end_all()
        process.join()
        process.close()
        ours.close()


def _main(target: Callable[..., object], *args: Any) -> None:
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)  # as in a worker; after a fork torch's pool of threads is not to be trusted
    target(*args)
