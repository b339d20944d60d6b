"""The command answers at once: help and version load nothing heavy, in a real process."""

from __future__ import annotations

import subprocess
import sys

import pytest

import stoker

SCRIPT = """
import sys
sys.argv = ["stoker", *sys.argv[1:]]
from stoker.cli import main
try:
    main()
finally:
    print("LOADED", sorted({name.partition(".")[0] for name in sys.modules}))
"""
HEAVY = {"torch", "numpy", "PIL", "matplotlib", "pyarrow", "psutil"}


def run(*arguments: str) -> tuple[str, set[str], int]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=False)
    text, _, loaded = done.stdout.partition("LOADED ")
    return text, set(loaded.strip("[]\n").replace("'", "").split(", ")), done.returncode


@pytest.mark.parametrize(
    "arguments", [("--help",), ("demo", "--help"), ("bench", "--help"), ("report", "--help"), ("--version",)]
)
def test_answers_without_loading_anything_heavy(arguments: tuple[str, ...]) -> None:
    _text, loaded, status = run(*arguments)
    assert status == 0
    assert "typer" in loaded
    assert not loaded & HEAVY


def test_help_names_the_demo() -> None:
    text, _loaded, _status = run("--help")
    assert "demo" in text


def test_version_is_the_packages() -> None:
    text, _loaded, _status = run("--version")
    assert text == f"stoker {stoker.__version__}\n"


def test_a_command_that_does_not_exist_is_an_error() -> None:
    _text, _loaded, status = run("stoke")
    assert status == 2
