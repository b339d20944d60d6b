"""Hides loaders from `torch.compile`: a compiled function may loop over one, and what the loader does is not compiled.

Dynamo follows every call that it can. In a loader it would meet locks, forks and shared memory, trace some of it as if
it were arithmetic, and run the rest frame by frame under its eye, in forked workers too. Torch's own loader is on a
list of files that it leaves alone; nobody else can be on that list without importing dynamo, which takes a second. So
what it would call first is marked instead, in two ways:

- for tracing, by the attribute that `torch.compiler.disable` leaves on a function: here the graph ends;
- for running, on the code itself: neither this frame nor any that it calls is looked at. The mark is read by torch's C
  code and costs nothing where nobody compiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch


def hide(owner: type, *names: str) -> None:
    """Hide these methods of a class, and whatever they call."""
    for name in names:
        function: Any = vars(owner)[name]
        if not _leave_code_alone(function):
            function = _in_the_open(function)
            setattr(owner, name, function)
        function._torchdynamo_disable = True
        function._torchdynamo_disable_msg = "a loader is not compiled"
        function._torchdynamo_disable_recursive = True


def _leave_code_alone(function: FunctionType) -> bool:
    """Mark the function's code; False with a torch that has no such mark."""
    frames: Any = getattr(torch._C._dynamo, "eval_frame", None)
    if not hasattr(frames, "set_code_exec_strategy"):
        return False
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    return True


def _in_the_open(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same by a wrapper, for torch before 2.7: what it calls is run with nobody looking."""
    set_eval_frame: Any = torch._C._dynamo.eval_frame.set_eval_frame

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        before = set_eval_frame(None)
        try:
            return function(*arguments, **options)
        finally:
            set_eval_frame(before)

    return run
