"""The verdict over three throughputs follows from their ratios and from nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.bench.throughputs import Throughputs


@pytest.mark.parametrize(
    ("loader", "real", "said"),
    [
        (3.2, 0.95, "The model is the limit, and loading is not"),
        (3.2, 0.77, "Neither alone is the limit"),
        (1.02, 0.9, "about equally fast"),
        (0.5, 0.48, "The loader is the limit"),
        (0.5, 0.2, "slower still beside it"),
        (3.2, 1.5, "Measure again"),
    ],
)
def test_each_row_of_the_table_has_its_sentence(loader: float, real: float, said: str) -> None:
    assert said in Throughputs(loader * 1000, 1000, real * 1000).verdict()


@given(st.floats(0.01, 100), st.floats(0.01, 1), st.floats(0.1, 1e6))
def test_the_unit_does_not_matter(loader: float, real: float, unit: float) -> None:
    one = Throughputs(round(loader, 3), 1.0, round(real, 3))
    other = Throughputs(round(loader, 3) * unit, unit, round(real, 3) * unit)
    assert one.headroom == pytest.approx(other.headroom)
    assert (
        one.verdict().split(":")[0] == other.verdict().split(":")[0]
        or min(abs(one.headroom - edge) for edge in (0.95, 1.05)) < 1e-6
        or min(abs(one.reached - 0.9), abs(one.real - 0.9 * one.loader)) < 1e-6
    )


def test_the_published_first_case_is_called_what_it_was() -> None:
    assert "Neither alone is the limit" in Throughputs(70523, 22170, 17150).verdict()  # 77% of the model's pace
    assert "90% of it" in Throughputs(182716, 40773, 36542).verdict()
