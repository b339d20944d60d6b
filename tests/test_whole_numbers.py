"""Whole numbers as arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stoker import Workers
from stoker.whole_numbers import check_whole


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_whole_numbers_of_any_kind_become_pythons(value: Any) -> None:
    assert type(check_whole("n", value)) is int
    assert type(Workers(processes=value).processes) is int


@pytest.mark.parametrize("value", [True, 1.0, "1", None, np.float32(1)])
def test_what_is_not_whole_is_named_with_its_type(value: Any) -> None:
    with pytest.raises(TypeError, match=rf"n should be a whole number \(rows\), but got .*{type(value).__name__}"):
        check_whole("n", value, what="rows")


def test_too_small_a_number_is_told_what_is_least() -> None:
    with pytest.raises(ValueError, match="n should be at least 1, but got 0"):
        check_whole("n", 0, least=1)
