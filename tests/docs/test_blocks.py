"""Every Python block in README.md and docs/ runs, or says why it does not.

The blocks of one page are one program: they run in order and share their names, in a process of their own with an
empty working directory, so that whatever they start cannot hurt the test run. The program is a real file, because
spawned workers import it again, and each block stands on the line it has in the page, so tracebacks point into it.

A block that cannot run has a comment on the line before it, `<!-- not run: the reason -->`. The reason is not optional.
A page about an optional package says `<!-- needs: package -->`, and runs where that is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.programs import Nursery

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<language>.*)$")
NOT_RUN = re.compile(r"^\s*<!--\s*not run\b:?(?P<reason>.*?)(-->)?\s*$", re.IGNORECASE)
NEEDS = re.compile(r"^<!--\s*needs:\s*(?P<package>\w+)\s*-->$", re.MULTILINE)
NOT_OURS = (
    "ignore:The 'train_dataloader' does not have many workers:UserWarning",  # Lightning's advice, and so is the next
    "ignore:The 'val_dataloader' does not have many workers:UserWarning",
    "ignore:Checkpoint directory:UserWarning",  # it holds checkpoints: the page goes on with one of them
    "ignore:`isinstance(treespec, LeafSpec)` is deprecated:FutureWarning",  # in Lightning, by torch
)
"""Warnings of packages that a page needs, about what is no fault of the page."""

DISGUISED = {"py", "py3", "python3", "pycon", "ipython", "doctest"}
"""Other names for Python, under which a block would go unnoticed."""


@dataclass(frozen=True)
class Block:
    """One fenced block: `line` is the number of its first line of content, counted from 1."""

    line: int
    language: str
    lines: tuple[str, ...]
    line_before: str

    @property
    def runs(self) -> bool:
        return self.language == "python" and NOT_RUN.match(self.line_before) is None


def blocks_of(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    place = 0
    while place < len(lines):
        opening = FENCE.match(lines[place])
        place += 1
        if opening is None:
            continue
        first, ticks = place, opening["ticks"]
        while place < len(lines) and lines[place].strip() != ticks:
            place += 1
        content = tuple(line.removeprefix(opening["indent"]) for line in lines[first:place])
        yield Block(first + 1, opening["language"].strip(), content, _line_before(lines, first - 1))
        place += 1


def _line_before(lines: list[str], place: int) -> str:
    """The last line above `place` that is not empty."""
    return next((line for line in reversed(lines[:place]) if line.strip()), "")


def program_of(text: str) -> str:
    """The page's running blocks, each on the lines where it stands in the page."""
    program: list[str] = []
    for block in blocks_of(text):
        if block.runs:
            program += [""] * (block.line - 1 - len(program)) + list(block.lines)
    return "\n".join(program)


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def faults_of(text: str) -> list[str]:
    """Blocks that would go unnoticed, and comments that give no reason."""
    faults = []
    for block in blocks_of(text):
        if not block.language:
            faults.append(f"line {block.line - 1}: a block without a language; `text` is one")
        if block.language.lower() in DISGUISED or (block.language != "python" and block.language.lower() == "python"):
            faults.append(f"line {block.line - 1}: a block in {block.language!r} is not run; call it `python`")
    for number, line in enumerate(text.splitlines(), start=1):
        comment = NOT_RUN.match(line)
        if comment is not None and not comment["reason"].strip():
            faults.append(f"line {number}: the comment gives no reason; write <!-- not run: the reason -->")
    return faults


@pytest.mark.parametrize("page", [page for page in PAGES if program_of(page.read_text())], ids=_name)
def test_blocks_of_page_run(page: Path, nursery: Nursery, tmp_path: Path) -> None:
    needed = NEEDS.findall(page.read_text())
    for package in needed:
        pytest.importorskip(package)
    program = tmp_path / f"page_{page.stem}.py"  # docs/lightning.md must not be what `import lightning` finds
    program.write_text(program_of(page.read_text()))
    filters = ["error", *(NOT_OURS if needed else ())]
    done = nursery.run(program, folder=tmp_path, warnings=filters)
    assert done.returncode == 0, f"{_name(page)}: a block failed (line numbers are the page's)\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_block_of_page_is_run_or_says_why_not(page: Path) -> None:
    assert faults_of(page.read_text()) == []


def test_readme_shows_code_that_runs() -> None:
    assert "stoker.DataLoader(" in program_of((ROOT / "README.md").read_text())


def test_blocks_keep_their_order_and_their_lines() -> None:
    page = "# Title\n```python\na = 1\n```\ntext\n\n- item\n  ```python\n  b = a\n  ```\n"
    assert program_of(page).splitlines() == ["", "", "a = 1", "", "", "", "", "", "b = a"]


def test_a_block_with_a_reason_is_not_run() -> None:
    page = "<!-- not run: needs a GPU -->\n\n```python\n1 / 0\n```\n"
    assert program_of(page) == ""
    assert faults_of(page) == []


@pytest.mark.parametrize("comment", ["<!-- not run -->", "<!-- not run: -->", "<!--not run:-->", "<!-- Not run:   -->"])
def test_a_comment_without_reason_is_a_fault(comment: str) -> None:
    assert len(faults_of(f"{comment}\n```python\n1 / 0\n```\n")) == 1


@pytest.mark.parametrize("opening", ["```", "```py", "```pycon", "```Python", "~~~python3"])
def test_a_block_that_would_go_unnoticed_is_a_fault(opening: str) -> None:
    assert len(faults_of(f"{opening}\n1 / 0\n{opening[:3]}\n")) == 1
