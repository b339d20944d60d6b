"""A public kit for tests: checks that users can run over their own datasets, samplers and loaders.

`resume`      `assert_resumes_everywhere` saves a loader before every step, resumes in a new one, and compares
`difference`  where two batches differ, in words: types, dtypes, shapes, values to the last bit

Nothing here needs a test framework: a check that fails raises an AssertionError that says what to look at.
"""

from __future__ import annotations

from stoker.testing.difference import difference
from stoker.testing.resume import assert_resumes_everywhere

__all__ = ["assert_resumes_everywhere", "difference"]
