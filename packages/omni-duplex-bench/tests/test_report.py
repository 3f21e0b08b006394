"""report.html and results.csv: whole, escaped, and honest about what is missing."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from omni_duplex_bench.cases import Prepared
from omni_duplex_bench.charts import histogram, ticks
from omni_duplex_bench.export import results_csv
from omni_duplex_bench.report import report_html
from omni_duplex_bench.results import RunResult
from omni_duplex_bench.tables import figure, headline, plural
from omni_duplex_bench.testing import Fault, Script

Bench = Callable[..., RunResult]
Inputs = Callable[..., list[Prepared]]


class Balance(HTMLParser):
    """Checks that every element is closed, and collects tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_what_servers_say_is_escaped(bench: Bench, inputs: Inputs) -> None:
    evil = "<script>alert(1)</script> & =cmd()"
    run = bench(Script(text=evil), inputs("a<b>"))
    page = report_html([run]).decode()
    assert evil not in page
    assert "&lt;script&gt;" in page
    balance = Balance()
    balance.feed(page)
    assert not balance.open
    assert {"svg", "rect", "table", "figure", "article"} <= balance.tags
    assert "prefers-color-scheme: dark" in page


def test_a_run_without_anything_measured_and_a_sweep_are_pages_too(bench: Bench, inputs: Inputs) -> None:
    broken = bench(Script(faults=(Fault("session.created", "close"),)), inputs("a"))
    assert "Nothing was measured" in report_html([broken]).decode()
    both = report_html([broken, bench(Script(), inputs("a"), label="c2")]).decode()
    assert "Sweep" in both
    assert both.count("<details>") == 2


def test_cells_are_numbers_or_harmless_text(bench: Bench, inputs: Inputs) -> None:
    run = bench(Script(text='=HYPERLINK(1) äß, "x"'), inputs("a"))
    data = results_csv(run)
    assert data.startswith(b"\xef\xbb\xbf")
    (row,) = csv.DictReader(io.StringIO(data.decode("utf-8-sig")))
    assert row["text"] == '\'=HYPERLINK(1) äß, "x"'
    assert float(row["ttfp_ms"]) > 0
    assert row["barge_in_ms"] == ""
    assert row["response_status"] == "completed"


def test_a_session_without_responses_still_has_its_row(bench: Bench, inputs: Inputs) -> None:
    run = bench(Script(decide="listen"), inputs("a"))
    (row,) = csv.DictReader(io.StringIO(results_csv(run).decode("utf-8-sig")))
    assert row["decision"] == "listen"
    assert row["ttft_ms"] == ""


@pytest.mark.parametrize("values", [[1.0], [5.0, 5.0, 5.0], [0.0], [-1.0, 3.0], list(map(float, range(1000)))])
def test_histograms_of_anything(values: list[float]) -> None:
    drawn = histogram(values, "x", "ms")
    assert "nan" not in drawn
    assert f"n {len(values)}" in drawn


def test_ticks_are_round_and_few() -> None:
    assert ticks(3.4) == [0.0, 1.0, 2.0, 3.0]
    assert ticks(0.0) == [0.0]
    for length in (0.01, 7.0, 59.0, 900.0, 12_345.0):
        assert 2 <= len(ticks(length)) <= 7
        assert ticks(length)[-1] <= length + 1e-9


def test_figures_show_digits_that_mean_something() -> None:
    assert [figure(v, "ms") for v in (None, 0.0, 12.34, 123.4, -0.01)] == ["–", "0.0", "12.3", "123", "0.0"]
    assert [figure(v, "") for v in (0.0, 0.5, 0.012)] == ["0.00", "0.50", "0.012"]
    assert [plural(n, "x") for n in (0, 1, 2)] == ["0 xs", "1 x", "2 xs"]


def test_an_incomplete_run_says_so(bench: Bench, inputs: Inputs) -> None:
    run = bench(Script(), inputs("a"))
    run.complete = False
    assert "INCOMPLETE" in headline(run)
    assert "incomplete: interrupted" in report_html([run]).decode()
