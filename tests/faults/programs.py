"""Programs played to their end: each in a session of its own, so every process that it ever started can be found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
GONE_WITHIN_S = 20.0


@dataclass
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str
    left: list[psutil.Process]


@dataclass
class Program:
    process: subprocess.Popen[str]
    errors: Path

    def ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "READY\n", self.errors.read_text()

    def end(self) -> Ended:
        """Wait for its end, and for that of everything it started."""
        self.process.wait(40)
        _, left = psutil.wait_procs(_session(self.process.pid), GONE_WITHIN_S)
        assert self.process.stdout is not None
        out = "" if left else self.process.stdout.read()
        for process in left:
            process.kill()
        return Ended(self.process.returncode, out, self.errors.read_text(), left)


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
def programs_of(script: Path, folder: Path) -> Iterator[Callable[..., Program]]:
    """Starts runs of a script, and ends what is left of them."""
    programs: list[Program] = []

    def begin(*arguments: str) -> Program:
        errors = folder / f"stderr-{len(programs)}"
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, str(script), *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
                env=environment,
            )
        programs.append(Program(process, errors))
        return programs[-1]

    yield begin
    for program in programs:
        for process in _session(program.process.pid):
            process.kill()
        program.process.wait()
        assert program.process.stdout is not None
        program.process.stdout.close()
