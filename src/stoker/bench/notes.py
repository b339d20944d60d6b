"""Numbers that any process notes as it goes along, and that one reads afterwards: a file a process, in one folder.

A note is one write at the file's end, so that notes stay whole whoever else of the process writes; one that was cut
short is left out. Opening the file for each takes some microseconds, and leaves no descriptor to be let go.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Notes:
    """Notes of one kind; `kind` is a format of the struct module."""

    folder: Path
    kind: str

    def add(self, *numbers: float) -> None:
        path = self.folder / str(os.getpid())
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, struct.pack(self.kind, *numbers))
        finally:
            os.close(descriptor)

    def read(self) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
        """(process, its notes in the order of noting)."""
        size = struct.calcsize(self.kind)
        for path in self.folder.iterdir():
            data = path.read_bytes()
            yield int(path.name), list(struct.iter_unpack(self.kind, data[: len(data) // size * size]))
