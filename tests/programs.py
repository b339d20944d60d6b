"""Programs played to their end: each in a session of its own, so every process that it ever started can be found.

They are forked by a nursery that has imported torch (see `tests.nursery`); the fixture `nursery` has it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

ROOT = Path(__file__).parents[1]
GONE_WITHIN_S = 20.0


class Nursery:
    """Starts programs. Nothing is waited for by polling, and each program is reaped by whoever started it."""

    def __init__(self) -> None:
        self._asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**os.environ, "PYTHONPATH": _path(), "OMP_NUM_THREADS": "1"}  # more would fight for few cores
        command = [sys.executable, str(ROOT / "tests/nursery.py"), str(theirs.fileno())]
        self._process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
        theirs.close()
        assert self._asked.recv(64) == b"ready"

    def close(self) -> None:
        self._asked.close()
        self._process.wait()

    def fork(self, order: Mapping[str, object], streams: Sequence[int]) -> int:
        socket.send_fds(self._asked, [json.dumps(order).encode()], streams)
        return int(self._asked.recv(64))

    def reap(self, pid: int) -> int:
        """The exit code of a program that has ended."""
        self._asked.send(json.dumps({"reap": pid}).encode())
        return os.waitstatus_to_exitcode(int(self._asked.recv(64)))

    def start(
        self,
        script: Path,
        *arguments: object,
        stdin: int | None = None,
        stdout: int,
        stderr: int,
        folder: Path = ROOT,
        environment: Mapping[str, str] | None = None,
        warnings: Sequence[str] = (),
    ) -> Forked:
        """A program with these streams, which the caller may close."""
        order = {
            "script": str(script),
            "arguments": [str(argument) for argument in arguments],
            "folder": str(folder),
            "environment": {**os.environ, "PYTHONPATH": _path(), **(environment or {})},
            "warnings": list(warnings),
        }
        with open(os.devnull) as nothing:
            streams = [nothing.fileno() if stdin is None else stdin, stdout, stderr]
            return Forked(self, self.fork(order, streams))

    def run(
        self, script: Path, *arguments: object, timeout_s: float = 100.0, **options: object
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` would, with `capture_output`."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            program = self.start(script, *arguments, stdout=out.fileno(), stderr=err.fileno(), **options)  # type: ignore[arg-type]
            try:
                program.wait_for_exit(timeout_s)
            finally:
                program.end()
            texts = [stream.read() for stream in (out, err) if stream.seek(0) == 0]
        return subprocess.CompletedProcess([str(script), *map(str, arguments)], program.returncode or 0, *texts)


@dataclass
class Forked:
    """A program of the nursery's, as `subprocess.Popen` shows one.

    Its number is its own, and that of its session, until it is reaped: whatever is to be ended is ended before.
    """

    nursery: Nursery
    pid: int
    returncode: int | None = None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait_for_exit(self, timeout_s: float) -> None:
        end = os.pidfd_open(self.pid)
        try:
            gone, _, _ = select.select([end], [], [], timeout_s)
        finally:
            os.close(end)
        if not gone:
            raise TimeoutError(f"the program has not ended within {timeout_s} s")

    def wait(self, timeout_s: float) -> int:
        if self.returncode is None:
            self.wait_for_exit(timeout_s)
            self.returncode = self.nursery.reap(self.pid)
        return self.returncode

    def end(self) -> int:
        """End it and all that it has started, if anything is left of that, and reap it."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it is too young to have a group of its own
                os.killpg(self.pid, signal.SIGKILL)
            self.kill()
        return self.wait(GONE_WITHIN_S)


@dataclass
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str
    left: list[psutil.Process]


@dataclass
class Program:
    process: Forked
    stdout: IO[str]
    errors: Path

    def ready(self) -> None:
        line = self.stdout.readline()
        assert line == "READY\n", self.errors.read_text()

    def end(self) -> Ended:
        """Wait for its end, and for that of everything it started."""
        self.process.wait_for_exit(40)
        _, left = psutil.wait_procs(_session(self.process.pid), GONE_WITHIN_S)
        out = "" if left else self.stdout.read()
        for process in left:
            process.kill()
        return Ended(self.process.wait(0), out, self.errors.read_text(), left)


def _path() -> str:
    return os.pathsep.join([str(ROOT / "src"), str(ROOT)])


def _session(pid: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


@contextmanager
def listened_to(nursery: Nursery, script: Path, *arguments: object) -> Iterator[tuple[Forked, IO[str]]]:
    """A program and what it says; nobody speaks to it. It has ended afterwards, with all that it has started."""
    silence, speaker = os.pipe()
    hears, said = os.pipe()
    program = nursery.start(script, *arguments, stdin=silence, stdout=said, stderr=2)
    os.close(silence)
    os.close(said)
    try:
        with os.fdopen(hears) as output:
            yield program, output
    finally:
        program.end()
        os.close(speaker)


@contextmanager
def programs_of(nursery: Nursery, script: Path, folder: Path) -> Iterator[Callable[..., Program]]:
    """Starts runs of a script, and ends what is left of them."""
    programs: list[Program] = []

    def begin(*arguments: str) -> Program:
        errors = folder / f"stderr-{len(programs)}"
        reader, writer = os.pipe()
        with errors.open("w") as stderr:
            process = nursery.start(script, *arguments, stdout=writer, stderr=stderr.fileno())
        os.close(writer)
        programs.append(Program(process, os.fdopen(reader), errors))
        return programs[-1]

    yield begin
    for program in programs:
        if program.process.returncode is None:  # the test has failed, and more than one group may be left
            for process in _session(program.process.pid):
                process.kill()
        program.process.end()
        program.stdout.close()
