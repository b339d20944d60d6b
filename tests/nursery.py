"""A program that has imported torch and Stoker and forks others, which then need not: `nursery.py SOCKET_NUMBER`.

Importing torch takes three seconds, and most programs of the tests take less than that. What is forked here becomes the
program that was asked for, in a session of its own: script, arguments, environment and streams are its own, its
`__main__` is the script, so that spawned workers find it, and it ends as an interpreter ends. `tests.programs` is the
other side.
"""

from __future__ import annotations

import builtins
import json
import os
import socket
import sys
import types
import warnings
from typing import Any


def import_what_takes_long() -> None:
    import psutil  # noqa: F401

    import stoker

    for name in ("DataLoader", "prefetch", "to_device", "BatchPlan"):
        getattr(stoker, name)


def serve(orders: socket.socket) -> dict[str, Any] | None:
    """Fork and reap as asked. Returns in every child, with its order, and in the nursery when nobody asks any more."""
    while True:
        message, streams, _, _ = socket.recv_fds(orders, 2**20, 3)
        if not message:
            return None
        order = json.loads(message)
        answer = os.waitpid(order["reap"], 0)[1] if "reap" in order else os.fork()
        if answer == 0 and "reap" not in order:
            orders.close()
            _take(streams)
            return dict(order)
        for stream in streams:
            os.close(stream)
        orders.send(str(answer).encode())


def _take(streams: list[int]) -> None:
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)


def become(order: dict[str, Any]) -> types.ModuleType:
    """The `__main__` of the program, about to begin."""
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [order["script"], *order["arguments"]]
    sys.path[0] = os.path.dirname(order["script"])
    sys.warnoptions[:] = order["warnings"]
    warnings._processoptions(order["warnings"])  # type: ignore[attr-defined]
    program = types.ModuleType("__main__")
    program.__dict__.update(__file__=order["script"], __builtins__=builtins)
    sys.modules["__main__"] = program
    return program


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        import_what_takes_long()
        asked.send(b"ready")
        taken = serve(asked)
    if taken is not None:
        with open(taken["script"]) as text:
            code = compile(text.read(), taken["script"], "exec")
        exec(code, become(taken).__dict__)
