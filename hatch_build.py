"""Builds the one piece of C in Stoker, if this machine can; without it copies of large batches are a third slower.

Called by hatchling for wheels and editable installs. A missing compiler is not an error, and is said: a data loader
must install everywhere.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/stoker/slots/streaming.c")
LIBRARY = SOURCE.with_name("_streaming.so")
MACHINES = ("x86_64", "AMD64")  # the stores that go past the caches are this family's


class StreamingCopy(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles `streaming.c` next to itself, and tells hatchling to take it along."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if platform.machine() not in MACHINES or not self._compiled():
            return
        build_data["artifacts"].append(LIBRARY.as_posix())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def _compiled(self) -> bool:
        root = Path(self.root)
        command = [os.environ.get("CC", "cc"), "-O3", "-shared", "-fPIC", "-o", str(root / LIBRARY), str(root / SOURCE)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"no fast copying of large batches, since it could not be compiled: {error}")
            (root / LIBRARY).unlink(missing_ok=True)
            return False
        return True
