"""The page in a real browser: it opens from disk without a request or an error, and shows what the records say."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.report.scripted import HOSTILE, records

from stoker.bench.groups import METRICS, group
from stoker.report.page import page_of, save_page

CHROMIUM = shutil.which("chromium")
IN_BROWSER = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None,
    reason="needs Debian's chromium and the playwright package",
)
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MADE = [*records(HOSTILE), *records("photos")]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("page") / "report.html"
    save_page(MADE, page, f"run {HOSTILE}", ["trials.jsonl, line 9 was left out"])
    return page


class Opened:
    """The page, open, with everything that it said and asked for meanwhile."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light") -> None:
        self.said: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900})
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn=yes]")

    def rows(self, table: str) -> list[list[str]]:
        script = "rows => rows.filter(r => !r.hidden).map(r => [...r.cells].map(c => c.textContent))"
        found: list[list[str]] = self.page.eval_on_selector_all(f"#{table} tbody tr", script)
        return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    # Driven in one process for the module; started before a test's own count of processes and descriptors.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def opened(browser: Any, path: Path) -> Iterator[Opened]:
    page = Opened(browser, path)
    yield page
    page.context.close()


@IN_BROWSER
def test_it_opens_without_an_error_and_without_a_request(opened: Opened, path: Path) -> None:
    assert opened.said == []
    assert opened.requests == [path.as_uri()]


@IN_BROWSER
def test_every_chart_is_drawn(opened: Opened) -> None:
    plots = opened.page.query_selector_all(".plot")
    assert len(plots) == 9
    assert all(plot.query_selector(".main-svg .xtick") is not None for plot in plots)
    drawn = opened.page.eval_on_selector(
        "#throughput-over-workers .plot", "plot => plot.data.map(t => [t.y, t.error_y.array])"
    )
    means = [mean for line, _ in drawn for mean in line]
    groups = [found for found in group(records(HOSTILE, (0.0,))) if found.records]
    assert sorted(means) == pytest.approx(sorted(found.metric("samples_per_s").mean for found in groups))


@IN_BROWSER
def test_choosing_another_dataset_draws_its_numbers(opened: Opened) -> None:
    chart = opened.page.locator("#throughput-over-workers")
    chart.locator("select").select_option(label="photos, model sleep 0.5 s")
    drawn = chart.locator(".plot").evaluate("plot => plot.data.flatMap(t => t.y)")
    groups = [found for found in group(records("photos")) if found.setting.sleep_s and found.records]
    assert sorted(drawn) == pytest.approx(sorted(found.metric("samples_per_s").mean for found in groups))


@IN_BROWSER
def test_numbers_in_the_tables_equal_the_records(opened: Opened) -> None:
    cells = opened.page.eval_on_selector_all(
        "#settings tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.dataset.value ?? c.textContent))"
    )
    shown = {(row[0], row[1], row[2], row[3], row[4]): row[9 : 9 + len(METRICS)] for row in cells}
    for found in group(MADE):
        setting = found.setting
        values = shown[
            setting.dataset,
            setting.model_name,
            setting.loader,
            str(float(setting.batch_size or 0)),
            str(float(setting.workers or 0)),
        ]  # type: ignore[arg-type]
        if found.records:
            assert [float(value) for value in values] == [found.metric(name).mean for name in METRICS]
        else:
            assert values == ["-"] * len(METRICS)
    assert len(opened.rows("trials")) == len(MADE)


@IN_BROWSER
def test_a_heading_sorts_by_value_and_again_backwards(opened: Opened) -> None:
    head = opened.page.locator("#trials th button", has_text="throughput")
    column = [cell.strip() for cell in opened.page.locator("#trials th").all_text_contents()].index(
        "throughput (samples/s)"
    )

    def values() -> list[float]:
        return [float(text.replace(",", "")) for row in opened.rows("trials") if (text := row[column]) != "-"]

    head.click()
    ascending = values()
    head.click()
    assert ascending == sorted(ascending)
    assert ascending[0] < ascending[-1]
    assert values() == sorted(ascending, reverse=True)


@IN_BROWSER
def test_the_filter_keeps_rows_in_which_all_words_occur(opened: Opened) -> None:
    box = opened.page.locator("input[data-table=settings]")
    box.fill("STOKER photos sleep")
    rows = opened.rows("settings")
    assert len(rows) == 6
    assert {(row[0], row[1], row[2]) for row in rows} == {("photos", "sleep 0.5 s", "stoker")}
    assert opened.page.locator("[data-count=settings]").text_content() == "6 of 50 rows"
    box.fill("")
    assert len(opened.rows("settings")) == 50


@IN_BROWSER
def test_hostile_names_are_shown_as_text(opened: Opened) -> None:
    assert opened.page.title() == f"run {HOSTILE}"
    assert opened.page.locator("h1").text_content() == f"run {HOSTILE}"
    assert opened.page.query_selector("img, main b") is None
    assert HOSTILE in opened.rows("settings")[0] + opened.rows("settings")[-1]
    options = opened.page.locator("#waits option").all_text_contents()
    assert any(option.startswith(HOSTILE) for option in options)


@IN_BROWSER
def test_the_verdict_and_broken_lines_stand_on_top(opened: Opened) -> None:
    lines = opened.page.locator("#verdict li").all_text_contents()
    assert "Stoker is 2.00 times as fast as torch's loader" in lines[0]
    assert lines[-1] == "trials.jsonl, line 9 was left out"


@pytest.fixture(scope="module")
def dark(browser: Any, path: Path) -> Iterator[Opened]:
    page = Opened(browser, path, "dark")
    yield page
    page.context.close()


@IN_BROWSER
def test_light_and_dark_follow_the_system_and_the_button(dark: Opened) -> None:
    def colours(page: Any) -> tuple[str, str]:
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return paper, page.eval_on_selector(".plot", "plot => plot.layout.font.color")

    assert colours(dark.page) == ("rgb(20, 24, 29)", "#e4e9ee")
    dark.page.click("#theme")
    assert colours(dark.page) == ("rgb(255, 255, 255)", "#1d2329")


def test_the_page_is_whole_in_itself() -> None:
    text = page_of(records(), "title")
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", own)
    assert "default-src 'none'" in own


def test_no_record_can_end_the_script_that_holds_it() -> None:
    text = page_of(records(HOSTILE), "title")
    data = text.split('id="data">', 1)[1].split("</script>", 1)[0]
    assert "<" not in data
    assert HOSTILE not in text
