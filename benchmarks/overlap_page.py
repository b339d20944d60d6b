"""Measures examples/overlap.py's five triples, keeps the record, and renders the page that shows it.

python benchmarks/overlap_page.py             about a minute and a half on a quiet machine
python benchmarks/overlap_page.py 3 4         the fourth and the fifth triple only; the others stay as they were
python benchmarks/overlap_page.py --render    no measuring: the page from the saved record
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "examples"))

import overlap  # noqa: E402 - examples are not a package
from render import render_into  # noqa: E402

from stoker.bench import load_record, save_record  # noqa: E402

RECORD = HERE / "results" / "overlap.json"
PAGE = HERE.parent / "docs" / "is-loading-my-bottleneck.md"


def main(arguments: list[str]) -> int:
    """Measure, save, render; 1 if a claim fell short."""
    if "--render" not in arguments:
        _measure([overlap.TRIPLES[int(number)] for number in arguments] or list(overlap.TRIPLES))
    record = load_record(RECORD)
    render_into(PAGE, record, RECORD.name)
    return 0 if all(found.passed for case in record.cases.values() for found in case.findings) else 1


def _measure(triples: list[overlap.Triple]) -> None:
    older = load_record(RECORD) if RECORD.exists() else None
    words = [str(part) for each in triples for part in ("--triple", each.model_ms, each.loading_ms, each.workers)]
    overlap.main([*words, "--save", str(RECORD)])
    record = load_record(RECORD)
    if older is not None and older.continues(record.machine, record.versions):
        record.cases = {**older.cases, **record.cases}
        save_record(record, RECORD)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
