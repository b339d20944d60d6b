"""docs/architecture.md tells the truth: its folder map is the tree, and its picture has one sentence a letter.

So does the docstring of every room: it names all of the room's files and folders, and nothing else as one of them.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "stoker"
PAGE = (ROOT / "docs" / "architecture.md").read_text()

ROOMS = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
# In a room's docstring, names of files are in backticks, with two spaces before what is said of them.
NAMED = re.compile(r"((?:`\w+`, )*`\w+`) {2,}")
MAP_ROW = re.compile(r"^(?P<indent> +)(?P<name>\w+(?:/|\.py)) +\S")


def text_block(opening: str) -> list[str]:
    """The lines of the one `text` block under the heading `opening`."""
    section = PAGE.split(f"\n## {opening}\n", 1)[1].split("\n## ", 1)[0]
    return section.split("```text\n", 1)[1].split("```", 1)[0].splitlines()


def mapped() -> list[str]:
    """Paths in the folder map: `slots/`, `loader.py`; a folder in a folder is indented under it, `sources/format/`."""
    paths: list[str] = []
    above: list[tuple[int, str]] = []  # (indent, path) of the folders around the row
    for row in filter(None, map(MAP_ROW.match, text_block("The rooms"))):
        indent = len(row["indent"])
        above = [(column, path) for column, path in above if column < indent]
        path = (above[-1][1] if above else "") + row["name"]
        paths.append(path)
        if path.endswith("/"):
            above.append((indent, path))
    return paths


def built() -> list[str]:
    """Modules at the top of the package, and folders at any depth that hold Python files."""
    modules = [path.name for path in PACKAGE.glob("*.py")]
    folders = {path.parent.relative_to(PACKAGE).as_posix() + "/" for path in PACKAGE.glob("*/**/*.py")}
    return modules + sorted(folders)


def test_the_folder_map_is_the_tree() -> None:
    assert {"only in the map": set(mapped()) - set(built()), "only in the tree": set(built()) - set(mapped())} == {
        "only in the map": set(),
        "only in the tree": set(),
    }


def test_no_row_of_the_folder_map_stands_twice() -> None:
    assert len(mapped()) == len(set(mapped()))


def test_every_letter_of_the_picture_has_one_sentence_in_the_order_of_the_flow() -> None:
    drawn = re.findall(r"\(([A-Z])\)", "\n".join(text_block("The way of a sample")))
    told = re.findall(r"^- \*\*([A-Z])\*\* ", PAGE, re.MULTILINE)
    assert sorted(drawn) == told == [chr(ord("A") + place) for place in range(len(told))]
    assert told


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(PACKAGE).as_posix())
def test_a_rooms_docstring_names_its_files_once_each_and_no_others(room: Path) -> None:
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    named = [name for row in NAMED.findall(said) for name in re.findall(r"\w+", row)]
    files = [path.stem for path in room.glob("*.py") if path.stem != "__init__"]
    assert sorted(named) == sorted(files + [path.parent.name for path in room.glob("*/__init__.py")])


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE))
    assert len(named) > 30
    assert sorted(name for name in named if not (PACKAGE / name).exists()) == []
