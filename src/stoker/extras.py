"""What is installed only for those who ask: an import that fails says which extra brings it.

A loader needs numpy and torch. The command, the pages, the built-in datasets, tuning and diagnosing need more, which is
no business of a training environment: `pip install 'stoker[tools]'` brings it. Integrations need what they integrate
with. Such a package is imported like this:

    with brought_by("tools"):
        import psutil
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stoker.errors import MissingExtra


@contextmanager
def brought_by(extra: str) -> Iterator[None]:
    """Around imports: one that finds nothing installed is a MissingExtra."""
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in ("", "stoker"):  # a mistake of ours
            raise
        raise MissingExtra(
            f"{package} is not installed: pip install 'stoker[{extra}]'", package=package, extra=extra
        ) from None
