"""Whose line raised: from an exception to the place in the user's code.

An error in a worker comes back with the worker's traceback in its text; one raised inline has it in frames. Both are
read alike, as text, and the last line that lies neither in Python, nor in an installed package, nor in Stoker is the
one to look at.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

from stoker.bench.runs import Trouble

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)')
_PACKAGE = Path(__file__).resolve().parents[1]
_MESSAGE_CHARACTERS = 300
_TRACEBACK_CHARACTERS = 4000


def trouble_of(error: BaseException) -> Trouble:
    """The error as something that can be saved and shown."""
    text = "".join(traceback.format_exception(error))
    return Trouble(type(error).__name__, _message(error), place_of(text), text[-_TRACEBACK_CHARACTERS:])


def place_of(text: str) -> str:
    """The last frame of somebody's own code in a traceback's text: 'data.py:12 in __getitem__', or nothing."""
    own = [frame for frame in _FRAME.finditer(text) if _is_own(frame["file"])]
    return f"{own[-1]['file']}:{own[-1]['line']} in {own[-1]['function']}" if own else ""


def _is_own(file: str) -> bool:
    if file.startswith("<"):
        return False
    path = Path(file).resolve()
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return not any(path.is_relative_to(home.resolve()) for home in (*installed, _PACKAGE))


def _message(error: BaseException) -> str:
    """What it says, without the traceback that a worker put around it."""
    text = str(error).strip()
    if "Traceback (most recent call last)" in text:
        last = text.splitlines()[-1].strip()
        text = last.partition(": ")[2] or last
    return text[:_MESSAGE_CHARACTERS] or "no message"
