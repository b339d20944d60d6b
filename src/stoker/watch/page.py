"""The page that a running loader keeps for `stoker top`: a few numbers in a small file, at most once a second.

    $XDG_RUNTIME_DIR/stoker-UID/PID-N.json      or, where that is not set, in the directory for temporary files

A file rather than a socket: nobody has to answer, so a training loop that hangs is still seen, and reading costs it
nothing. Files are written aside and renamed, so a reader never sees half of one. The folder belongs to the user alone
(mode 0700); one that somebody else has made is not used. Nothing here may disturb a run: what cannot be written is not
written, and is not tried again.

A page is there while its pass is under way and goes with it: at the end of the pass, when the iterator is dropped, or
when the program ends. Only a killed process leaves its page behind; whoever next keeps or reads pages removes it.

`STOKER_TOP=0` in the environment turns pages off.
"""

from __future__ import annotations

import itertools
import json
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Any

from stoker.watch.kernel import began

OFF = "STOKER_TOP"
_NUMBERS = itertools.count()


class Page:
    """The file of one iterator."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {}
        self._pid = os.getpid()
        self._path: Path | None = None
        self._name = f"{self._pid}-{next(_NUMBERS)}.json"
        self._off = os.environ.get(OFF) == "0" or not hasattr(os, "getuid")

    def write(self, numbers: dict[str, Any]) -> bool:
        """Put these numbers on the page; says whether there is one."""
        if self._off or os.getpid() != self._pid:  # a forked child has pages of its own
            return False
        try:
            self._write({**self._facts, **numbers, "pid": self._pid, "written": time.time()})
        except OSError:
            self._off = True
        return not self._off

    def _write(self, content: dict[str, Any]) -> None:
        if self._path is None:
            folder = own_folder()
            remove_stale(folder)
            self._path = folder / self._name
            self._facts = {"process_began": began(self._pid)}
            content |= self._facts
        aside = self._path.with_suffix(".new")
        aside.write_text(json.dumps(content), encoding="utf-8")
        aside.replace(self._path)

    def remove(self) -> None:
        """The pass is over; the folder goes with its last page."""
        if self._path is None or os.getpid() != self._pid:
            return
        path, self._path = self._path, None
        for file in (path, path.with_suffix(".new")):
            _unlink(file)
        try:
            path.parent.rmdir()
        except OSError:
            return  # others are in it


def own_folder() -> Path:
    """The user's folder for pages, made if need be; OSError if there is none to be had."""
    folder = folders()[0]
    folder.mkdir(mode=0o700, exist_ok=True)
    if not is_own(folder):
        raise PermissionError(f"{folder} belongs to somebody else, or others may look into it")
    return folder


def folders() -> list[Path]:
    """Where pages of this user may be: the first is where this process would keep its own."""
    name = f"stoker-{os.getuid()}"
    given = os.environ.get("XDG_RUNTIME_DIR")
    roots = [given] if given and os.path.isdir(given) and os.access(given, os.W_OK) else []
    roots += [tempfile.gettempdir(), f"/run/user/{os.getuid()}"]
    return [Path(root) / name for root in dict.fromkeys(roots)]


def is_own(folder: Path) -> bool:
    """Whether this is a real folder of this user that nobody else can look into."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def remove_stale(folder: Path) -> None:
    """Remove pages of processes that are gone."""
    for path in folder.glob("*-*.*"):
        pid = path.name.partition("-")[0]
        if pid.isdigit() and not _is_running(int(pid)):
            _unlink(path)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
