"""Files that are whole or not there: written under a partial name, then renamed, so that a crash leaves no half."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Where to write what becomes this file when the block ends well; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    yield partial
    partial.replace(path)
