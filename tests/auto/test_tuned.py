"""`tuned="stoker.toml"`: what is written is read again, files that cannot be used say why, nothing is overruled."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker.auto.processor import cores
from stoker.auto.tuned import Tuned, read_tuned
from stoker.errors import TunedError
from stoker.options import SHARES, START_METHODS, Workers

steady = settings(deadline=None, derandomize=True)  # the same examples every run, however busy the machine
if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATA = list(range(12))
SETTINGS = st.builds(
    Tuned,
    processes=st.integers(0, 64),
    threads=st.integers(0, 64),
    start_method=st.sampled_from([None, *START_METHODS]),
    share=st.sampled_from([None, *SHARES]),
    prefetch_factor=st.none() | st.integers(1, 64),
    batch_size=st.none() | st.integers(1, 10**6),
    cores=st.none() | st.integers(1, 512),
    found=st.dictionaries(
        st.sampled_from(["target", "goal", "speed", "when"]),
        st.text(st.characters(exclude_categories=["Cs"]))
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False),
    ),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "stoker.toml"


@steady
@given(SETTINGS)
def test_what_is_written_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, tuned: Tuned) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.toml"
    tuned.save(path)
    assert read_tuned(path) == tuned
    assert not path.with_name(f"{path.name}.partial").exists()


def test_names_that_no_encoding_knows_are_written_all_the_same() -> None:
    text = Tuned(0, found={"target": "caf\udce9"}).to_toml()
    assert tomllib.loads(text)["found"]["target"] == "caf?"


def test_a_loader_takes_its_settings_from_the_file(file: Path) -> None:
    Tuned(processes=1, threads=2, prefetch_factor=3, batch_size=4).save(file)
    loader = stoker.DataLoader(DATA, tuned=file)
    assert loader.workers == Workers(processes=1, threads=2)
    assert (loader.batch_size, loader.prefetch_factor) == (4, 3)
    assert [batch.tolist() for batch in loader] == [DATA[:4], DATA[4:8], DATA[8:]]


def test_what_the_file_does_not_say_is_the_arguments(file: Path) -> None:
    Tuned(processes=0).save(file)
    loader = stoker.DataLoader(DATA, batch_size=6, tuned=str(file))
    assert (loader.batch_size, loader.prefetch_factor, loader.num_workers) == (6, None, 0)


def test_a_batch_sampler_keeps_its_own_batches(file: Path) -> None:
    Tuned(processes=0, batch_size=64).save(file)
    loader = stoker.DataLoader(DATA, batch_sampler=[[0, 1], [2]], tuned=file)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 8}, "batch_size=8 was given, but .* says 4"),
        ({"batch_size": None}, "batch_size=None was given"),
        ({"num_workers": 3}, "num_workers=3 was given, but .* says 1"),
        ({"num_workers": "auto"}, "num_workers='auto' was given"),
        ({"workers": Workers(processes=1)}, "both say who loads"),
        ({"prefetch_factor": 7}, "prefetch_factor=7 was given, but .* says 2"),
        ({"multiprocessing_context": "spawn"}, "both say how workers start"),
    ],
)
def test_an_argument_that_says_otherwise_is_refused_with_both_values(
    file: Path, options: dict[str, Any], words: str
) -> None:
    Tuned(processes=1, start_method="fork", prefetch_factor=2, batch_size=4).save(file)
    with pytest.raises(TunedError, match=words):
        stoker.DataLoader(DATA, tuned=file, **options)


def test_arguments_that_agree_are_fine(file: Path) -> None:
    Tuned(processes=1, prefetch_factor=2, batch_size=4).save(file)
    loader = stoker.DataLoader(DATA, batch_size=4, num_workers=1, prefetch_factor=2, tuned=file)
    assert loader.num_workers == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("format = ", "cannot be read as TOML"),
        ("[loader]\nprocesses = 1", "format is None"),
        ("format = 2\n[loader]\nprocesses = 1", "format is 2, and this Stoker reads 1"),
        ("format = 1\nloader = 3", "loader should be a table"),
        ("format = 1", "has no processes"),
        ("format = 1\nextra = 1\n[loader]\nprocesses = 1", "the file has 'extra'"),
        ("format = 1\n[loader]\nproceses = 1", "'proceses', which is not among batch_size, processes"),
        ("format = 1\n[loader]\nprocesses = -1", "processes should be a whole number from 0, but is -1"),
        ("format = 1\n[loader]\nprocesses = true", "processes should be a whole number"),
        ("format = 1\n[loader]\nprocesses = 1\nthreads = -1", "threads should be a whole number from 0"),
        ('format = 1\n[loader]\nprocesses = 1\nstart_method = "thread"', "start_method should be one of"),
        ('format = 1\n[loader]\nprocesses = 1\nshare = "half"', "share should be one of"),
        ("format = 1\n[loader]\nprocesses = 1\n[machine]\ncores = 1.5", "cores should be a whole number"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(file: Path, text: str, words: str) -> None:
    file.write_text(text)
    with pytest.raises(TunedError, match=words) as raised:
        stoker.DataLoader(DATA, tuned=file)
    assert str(file) in str(raised.value)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(TunedError, match=r"there is no such file .* `stoker tune TARGET` makes one"):
        stoker.DataLoader(DATA, tuned=tmp_path / "none.toml")
    with pytest.raises(TunedError, match="cannot be read"):
        stoker.DataLoader(DATA, tuned=tmp_path)


@pytest.mark.parametrize("here", [True, False])
def test_another_machine_is_logged_and_no_warning(file: Path, caplog: pytest.LogCaptureFixture, here: bool) -> None:
    Tuned(processes=0, cores=cores() if here else cores() + 6).save(file)
    with caplog.at_level(logging.INFO, logger="stoker.tuned"):
        stoker.DataLoader(DATA, tuned=file)
    assert (f"was tuned on {cores() + 6} cores" in caplog.text) is not here
    assert all(record.levelno == logging.INFO for record in caplog.records)
