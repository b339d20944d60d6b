"""The example runs, at its small size, and says what it should."""

from __future__ import annotations

import re

from tests.programs import ROOT, Nursery


def test_the_example_measures_both_cases_and_gives_a_verdict(nursery: Nursery) -> None:
    done = nursery.run(ROOT / "examples/poptorch_style.py", "--quick")
    assert done.returncode == 0, done.stderr
    assert [int(size) for size in re.findall(r"= (\d+) samples a step", done.stdout)] == [8, 16]
    for name in ("loader", "as published", "synthetic", "real"):
        rates = re.findall(rf"^ *{name} +([\d,]+) items/s", done.stdout, re.MULTILINE)
        assert len(rates) == 2
        assert all(int(rate.replace(",", "")) > 0 for rate in rates)
    assert len(re.findall(r"the loader makes [\d.]+ × the model's pace", done.stdout)) == 2
