"""Messages, by PopTorch's level names: `POPTORCH_LOG_LEVEL=DEBUG` in the environment, or `setLogLevel("INFO")`.

The logger is an ordinary one of Python's, "stoker.poptorch". Unless somebody asks for a level, no handler is put on it
and the program's own logging decides; Python's default then shows warnings. Asked for, lines go to stderr as
`[12:00:00] [stoker.poptorch] [debug] …`.
"""

from __future__ import annotations

import logging
import os

log = logging.getLogger("stoker.poptorch")

_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "OFF": logging.CRITICAL + 1,
}
_NUMBERS = {0: "TRACE", 1: "DEBUG", 2: "INFO", 3: "WARN", 4: "ERR", 6: "OFF"}  # what PopTorch's C++ counts


class _Lines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("[%(asctime)s] [%(name)s] [%(levelname)s] %(message)s", datefmt="%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        record = logging.makeLogRecord({**record.__dict__, "levelname": record.levelname.lower()})
        return super().format(record)


def setLogLevel(level: str | int) -> None:
    """Show messages of this level and above on stderr: TRACE, DEBUG, INFO, WARN, ERR or OFF."""
    name = _NUMBERS.get(level) if isinstance(level, int) else level
    if name not in _LEVELS:
        raise ValueError(f"the log level should be one of {', '.join(_LEVELS)}, but got {level!r}")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_Lines())
        log.addHandler(handler)
        log.propagate = False
    log.setLevel(_LEVELS[name])


if "POPTORCH_LOG_LEVEL" in os.environ:
    setLogLevel(os.environ["POPTORCH_LOG_LEVEL"])
