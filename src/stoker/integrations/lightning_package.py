"""Lightning comes as two packages with the same classes, and a class of one is a stranger to the other's Trainer."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from stoker.extras import brought_by

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def lightning_package() -> Any:
    """The one that the program uses already, else the first that is installed; MissingExtra where none is."""
    used = [name for name in _NAMES if sys.modules.get(name) is not None]
    installed = [name for name in _NAMES if importlib.util.find_spec(name.partition(".")[0]) is not None]
    with brought_by("lightning"):
        return importlib.import_module([*used, *installed, *_NAMES][0])
