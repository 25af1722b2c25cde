"""The folder that a sweep leaves."""

import re

import pytest

from hsakit import plots
from hsakit.c3 import report
from hsakit.results import Writer


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


def test_a_report_without_plots_says_so(folder, rows, monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)
    written = report.write(folder(rows))
    assert "matplotlib" in written.without_plots and "matplotlib" in written.page.read_text()


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
