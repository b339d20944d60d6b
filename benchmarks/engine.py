"""Measures the engine against torch's DataLoader and writes what it finds.

    python benchmarks/engine.py                      all cases, about five minutes on two cores
    python benchmarks/engine.py --only tiny          one case (may be given several times)
    python benchmarks/engine.py --quick              small sizes, one round: does everything run?
    python benchmarks/engine.py --repeats 5          more rounds
    python benchmarks/engine.py --render             no measuring: render the page from the saved record

The record is benchmarks/results/engine.json, and docs/benchmarks.md is rendered from it.
"""

from __future__ import annotations

import sys

from engine_cases import CASES
from suite import Suite, run

SUITE = Suite(
    "engine", "Measure Stoker's engine against torch's DataLoader.", CASES, packages=("torch", "numpy", "pillow")
)

if __name__ == "__main__":
    sys.exit(run(SUITE, sys.argv[1:]))
