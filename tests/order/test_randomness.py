"""A sample's generator: the same wherever it is made, different for every sample."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.order import generator_for, sample_key

steady = settings(deadline=None, derandomize=True)  # the same examples every run, however busy the machine

GOLDEN = Path(__file__).parents[1] / "golden" / "order_randomness.json"
words = st.integers(0, 2**64 - 1)


@steady
@given(seed=words, epoch=words, position=words)
def test_the_same_sample_draws_the_same_numbers(seed: int, epoch: int, position: int) -> None:
    one, other = (generator_for(seed, epoch, position) for _ in range(2))
    assert one is not other
    assert one.random(5).tolist() == other.random(5).tolist()
    assert one.integers(0, 1000, 5).tolist() == other.integers(0, 1000, 5).tolist()


def test_keys_of_a_run_are_all_different_in_both_halves() -> None:
    keys = [sample_key(seed, epoch, position) for seed in range(4) for epoch in range(10) for position in range(1000)]
    assert len({key >> 64 for key in keys}) == len({key % 2**64 for key in keys}) == len(keys)


def test_first_draws_of_neighbouring_samples_are_uniform_and_unrelated() -> None:
    draws = np.array([generator_for(0, 0, position).random(2) for position in range(20_000)])
    counts = np.histogram(draws[:, 0], bins=50, range=(0, 1))[0]
    assert abs(((counts - 400) ** 2 / 400).sum() - 49) < 5 * np.sqrt(2 * 49)
    assert abs(np.corrcoef(draws[1:, 0], draws[:-1, 0])[0, 1]) < 0.03
    assert abs(np.corrcoef(draws[:, 0], draws[:, 1])[0, 1]) < 0.03


def test_a_kept_generator_is_not_changed_by_the_next_sample() -> None:
    kept = generator_for(1, 2, 3)
    generator_for(1, 2, 4).random(100)
    assert kept.random() == generator_for(1, 2, 3).random()


def test_keys_and_draws_are_those_of_the_golden_file() -> None:
    for case in json.loads(GOLDEN.read_text()):
        where = (case["seed"], case["epoch"], case["position"])
        assert f"{sample_key(*where):032x}" == case["key"]
        assert generator_for(*where).integers(0, 2**63, 3).tolist() == case["draws"]


def test_a_negative_position_is_refused() -> None:
    with pytest.raises(ValueError, match="position should be at least 0, but got -1"):
        sample_key(0, 0, -1)
