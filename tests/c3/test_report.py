"""The folder that a sweep leaves."""

import dataclasses
import re

import pytest

from hsakit import plots
from hsakit.c3 import report
from hsakit.c3.scenario import Scenario
from hsakit.results import Writer

SCENARIO = Scenario("s1-ag", "bf16", 512, 512, 512, "all-gather", 1 << 20, "made up", "mine")
MACHINE = {"cus": 304, "flops": 1e15, "bandwidth": 4e12}


@pytest.fixture
def folder(tmp_path):
    def write(rows):
        with Writer(tmp_path / report.ROWS) as out:
            for row in rows:
                out.write(row)
        return tmp_path

    return write


def test_everything_is_written(folder, rows):
    written = report.write(folder(rows))
    names = {path.name for path in written.page.parent.iterdir()}
    assert {"averages.txt", "averages.csv", "report.md", "report.html"} <= names
    page, markdown = written.page.read_text(), (written.page.parent / "report.md").read_text()
    for text in (page, markdown):
        assert "Clock: device" in text and "not the paper" in text
        assert "c3_base" in text and "16.7" in text
    assert ("data:image/png" in page) == plots.available() == (written.without_plots is None)
    assert not re.search(r'(src|href)="?http', page)  # the page stands alone


def test_any_of_the_strategies_and_scenarios_make_a_report(tmp_path, row, rows, monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)
    other = dataclasses.replace(SCENARIO, name="s2-ag", m=4096, n=4096, k=4096)
    every = [
        *rows,
        row("kernels_quarter", [[None, (0, 1500)]] * 3),
        row("gemm_by_cus", [[(0, 8000), None]] * 3, variant={"cus": 272}),
        row("kernels_by_cus", [[None, (0, 5000)]] * 3, variant={"cus": 32}),
    ]
    every = [{**each, "parameters": {**each["parameters"], "machine": MACHINE, "gemm_per_cu": 2}} for each in every]
    of_other = [
        {**row("c3_base", [[(0, 6600), (100, 9000)]] * 3, by="kernels", scenario=other), "key": "other base"},
        {**row("gemm_by_cus", [[(0, 6600), None]] * 3, variant={"cus": 272}, scenario=other), "key": "other curve"},
    ]
    for number in range(len(every)):
        for chosen in (every[: number + 1], every[number:], [*every[:number], *every[number + 1 :]]):
            for more in ([], of_other):
                folder = tmp_path / f"{number}-{len(chosen)}-{len(more)}"
                folder.mkdir(exist_ok=True)
                with Writer(folder / report.ROWS) as out:
                    for each in (*chosen, *more):
                        out.write(each)
                assert report.write(folder).page.exists()


def test_a_report_without_plots_says_so(folder, rows, monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)
    written = report.write(folder(rows))
    assert "matplotlib" in written.without_plots and "matplotlib" in written.page.read_text()


def test_pictures_of_other_rows_are_not_shown(folder, rows, monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)
    (folder(rows) / "fig08_strategies.png").write_bytes(b"of an earlier sweep")
    page = report.write(folder(rows)).page
    assert "data:image/png" not in page.read_text() and "![" not in page.with_suffix(".md").read_text()


def test_what_is_left_out_stands_at_the_top(folder, rows, row):
    wrong = row("c3_sp", [[(0, 1), (0, 1)]], error="transfer 0-1 was skipped <b>")
    page = report.write(folder([*rows, wrong])).page.read_text()
    assert "1 rows are left out" in page and "transfer 0-1 was skipped &lt;b&gt;" in page


def test_the_last_row_of_a_point_counts(folder, rows, row):
    again = row("c3_base", [[(0, 1), (0, 1)]], error="wrong now")
    assert "c3_base" not in (report.write(folder([*rows, again])).page.parent / "averages.txt").read_text()


def test_folders_without_rows_are_refused(tmp_path, folder, row):
    with pytest.raises(report.ReportError, match="has no rows.jsonl"):
        report.write(tmp_path)
    folder([])
    with pytest.raises(report.ReportError, match="no rows of a c3 or interference"):
        report.write(tmp_path)
