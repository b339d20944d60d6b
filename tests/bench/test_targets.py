"""A target is found by its words, and what is wrong with it is said with the line to fix."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from stoker.bench.blame import place_of
from stoker.bench.datasets import DatasetOptions
from stoker.bench.targets import TargetError, judge, resolve

MODULE = """
def dataset(): return list(range(8))
def nothing(): pass
def number(): return 3
def generator(): yield 1
def empty(): return []
def raises():
    raise OSError("disk gone")
plain = [1]
"""


@pytest.fixture
def options(tmp_path: Path) -> DatasetOptions:
    return DatasetOptions(cache=tmp_path / "cache")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "some_targets.py").write_text(MODULE)
    (tmp_path / "broken_targets.py").write_text("import math\nmath.nothing_of_the_kind\n")
    (tmp_path / "needy_targets.py").write_text("import a_package_nobody_has\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("some_targets", "broken_targets", "needy_targets"):
        sys.modules.pop(name, None)


def test_a_function_in_the_current_folder_is_called(folder: Path, options: DatasetOptions) -> None:
    target = resolve("some_targets:dataset", options)
    assert (target.name, target.is_map, target.is_loader, len(target.thing)) == ("some_targets:dataset", True, False, 8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("some_targets:datasett", r"has no 'datasett'\. Did you mean dataset\?"),
        ("some_targets:nothing", "returned None: end the function with `return dataset`"),
        ("some_targets:number", r"returned int \(3\), which is neither"),
        ("some_targets:generator", "can be iterated only once"),
        ("some_targets:empty", "a dataset of length 0"),
        ("some_targets:raises", r"raised OSError at .*some_targets\.py:8 in raises: disk gone"),
        ("some_targets:plain", "is a list, not a function"),
        ("no_such_module:make", r"there is no module 'no_such_module'; looked in"),
        ("broken_targets:make", r"raised AttributeError at .*broken_targets\.py:2"),
        ("needy_targets:make", "it imports 'a_package_nobody_has'"),
        ("photoz", "Did you mean 'photos'"),
        ("photos:size=3", "photos has no parameter 'size'; it has samples, stored"),
        ("photos:3", "'3' should read key=value, as in photos:samples=1000"),
        ("simulated:sleep_ms=fast", "'fast' is not a number"),
        ("simulated:sleep_ms=-1", "should not be negative"),
        ("simulated:samples=0", "at least one sample"),
        ("simulated:bytes=0", "at least one byte"),
        ("tensors:shape=1y2", "not a shape such as 1x128x128"),
        ("faces:path=/nowhere/lfw.tgz", "does not exist"),
        (".", r"no pictures under \.: looked for \.jpg"),
    ],
)
def test_what_cannot_be_measured_says_why(folder: Path, options: DatasetOptions, text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        resolve(text, options)


class Counting(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Batches:
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.zeros(2)])


def test_datasets_and_loaders_are_told_apart() -> None:
    def kind(thing: object) -> tuple[bool, bool]:
        target = judge("x", thing)
        return target.is_loader, target.is_map

    assert kind(DataLoader([1, 2])) == (True, False)  # type: ignore[arg-type]
    assert kind(Batches()) == (True, False)
    assert kind(Counting()) == (False, False)
    assert kind([1, 2]) == (False, True)


def test_the_place_is_the_last_line_of_ones_own_code() -> None:
    frames = ("/home/me/data.py", 7, "__getitem__"), (torch.__file__, 9, "zeros"), ("<string>", 1, "x")
    text = "\n".join(f'File "{file}", line {line}, in {function}' for file, line, function in frames)
    assert place_of(text) == "/home/me/data.py:7 in __getitem__"
    assert place_of(f'File "{torch.__file__}", line 9, in zeros') == ""
