"""`import stoker` is light: a worker for plain arrays, or a script that prints its help, must not pay for torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "pyarrow", "matplotlib", "PIL", "rich")


@pytest.fixture(scope="module")
def modules_after_import() -> frozenset[str]:
    code = "import json, sys, stoker; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return frozenset(json.loads(done.stdout))


def test_import_stoker_loads_stoker(modules_after_import: frozenset[str]) -> None:
    assert "stoker" in modules_after_import


@pytest.mark.parametrize("heavy", HEAVY)
def test_import_stoker_does_not_load(heavy: str, modules_after_import: frozenset[str]) -> None:
    assert heavy not in modules_after_import
