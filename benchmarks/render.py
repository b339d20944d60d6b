"""A saved record to a table in a documentation page, between two markers; nothing is typed by hand.

The page keeps all that stands outside the markers. A page without markers is refused rather than guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from stoker.bench import CaseRecord, Finding, Record, summarise

BEGIN = "<!-- rendered from {name}: begin -->"
END = "<!-- rendered from {name}: end -->"


def render_into(page: Path, record: Record, name: str, table: Callable[[Record], str] | None = None) -> None:
    """Put the record's tables (`table`: another view of it) between the markers of `name` in this page."""
    body = (table or render)(record)
    page.write_text(replace_between(page.read_text(encoding="utf-8"), name, body), encoding="utf-8")


def replace_between(text: str, name: str, body: str) -> str:
    """The text with what lies between the markers replaced."""
    begin, end = BEGIN.format(name=name), END.format(name=name)
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"the page needs one line '{begin}' and after it one line '{end}'")
    before, after = text.split(begin)[0], text.split(end)[1]
    return f"{before}{begin}\n\n{body.strip()}\n\n{end}{after}"


def render(record: Record) -> str:
    """The machine, a table of all findings, and the series behind them."""
    return "\n\n".join([_machine(record), _findings(record), "### Series", _series(record)])


def findings_table(record: Record) -> str:
    """The machine and the findings, without the series."""
    return "\n\n".join([_machine(record), _findings(record)])


def case_table(record: Record, columns: Mapping[str, str]) -> str:
    """The machine, and a row a case: its findings by what their claims end in, and what stands beside the first."""
    rows = [_case_row(name, case, columns) for name, case in record.cases.items()]
    heads = ("", *columns.values(), "")
    return "\n\n".join([_machine(record), _table(heads, ("---", *("--:" for _ in columns), "---"), rows)])


def _case_row(name: str, case: CaseRecord, columns: Mapping[str, str]) -> tuple[str, ...]:
    cells = []
    for ending in columns:
        found = next((one for one in case.findings if one.claim.endswith(ending)), None)
        short = found is not None and not found.passed
        text = "" if found is None else figure(found.measured)
        cells.append(f"**{text}** (target {target(found)})" if short and found is not None else text)
    return name, *cells, case.findings[0].detail


def _machine(record: Record) -> str:
    machine = record.machine
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    when = sorted(case.measured_at for case in record.cases.values())
    load = max((case.load_before for case in record.cases.values()), default=0.0)
    span = f" Measured {when[0]} to {when[-1]}, load before a case at most {load:g}." if when else ""
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, {machine['system']}; "
        f"{versions}.{span}"
    )


def _findings(record: Record) -> str:
    rows = [row for case in record.cases.values() for row in _finding_rows(case)]
    return _table(("what", "target", "measured", "", "medians"), ("---", "--:", "--:", "---", "---"), rows)


def _finding_rows(case: CaseRecord) -> Iterator[tuple[str, ...]]:
    for found in case.findings:
        verdict = "pass" if found.passed else "**short**"
        yield found.claim, target(found), f"{figure(found.measured)} {found.unit}", verdict, found.detail


def target(found: Finding) -> str:
    """The bound in the way a reader expects it: '≥ 8 × torch'."""
    return f"{'≥' if found.sense == 'at least' else '≤'} {found.bound:g} {found.unit}"


def figure(value: float) -> str:
    """Three figures, and never more digits than were measured: 0.0843, 1.24, 15.1, 172."""
    if value == 0:
        return "0"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def _series(record: Record) -> str:
    rows = [row for name, case in record.cases.items() for row in _series_rows(name, case)]
    return _table(
        ("case", "series", "values", "least", "median", "most", ""),
        ("---", "---", "--:", "--:", "--:", "--:", "---"),
        rows,
    )


def _series_rows(name: str, case: CaseRecord) -> Iterator[tuple[str, ...]]:
    for series, values in case.series.items():
        summary = summarise(values)
        low, middle, high = (figure(value) for value in (summary.least, summary.median, summary.most))
        yield name, series, str(summary.count), low, middle, high, "" if summary.is_steady else "unsteady"


def _table(heads: tuple[str, ...], rules: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))
