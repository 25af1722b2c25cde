"""Tables of a report."""

import csv
import io

import pytest

from hsakit.c3.heuristics import Machine
from hsakit.c3.outcome import outcomes
from hsakit.c3.tables import Table, failures, tables


def made(rows, machine=None):
    return {table.name: table for table in tables(rows, outcomes(rows), machine)}


def line(table, first):
    (found,) = [each for each in table.lines if each[0] == first]
    return dict(zip(table.headers, found))


def test_averages_stand_beside_the_papers(rows):
    base = line(made(rows)["averages"], "c3_base")
    assert (base["% of ideal"], base["paper"], base["mean S"]) == ("16.7 [16.7, 16.7]", "21", "1.111")
    assert line(made(rows)["averages"], "c3_rp")["oracle"] == "fastest split"


def test_the_scenario_with_its_classes(rows, row):
    rows = [*rows, row("kernels_quarter", [[None, (0, 1000)]] * 3)]
    found = line(made(rows, Machine(304, 600e12, 4e12))["scenarios"], "s1-ag")
    assert (found["Tg us"], found["Tc us"], found["Tc engines us"]) == ("6.0", "4.0", "5.0")
    assert found["longer: Tg / Tc"] == "G-long, 1.500"
    assert found["collective is: time over a quarter's"] == "bandwidth-bound, 4.000"
    assert found["GEMM is: operations a byte"] == "compute-bound, 171"  # 512 / 3, against 150


def test_the_winner_and_its_split(rows):
    found = line(made(rows)["speedups"], "s1-ag")
    assert found["c3_rp"] == "1.429 [1.429, 1.429]/32"
    assert found["fastest"] == "conccl"


def test_rows_that_are_left_out_are_counted_and_named(rows, row):
    wrong = row("c3_base", [[(0, 1), (0, 1)]], variant={"a": 1}, error="a tile was skipped")
    assert line(made([*rows, wrong])["checks"], "c3_base")["left out"] == "1"
    assert failures([*rows, wrong]) == ["s1-ag c3_base a=1: a tile was skipped"]
    wrong["packets"]["counted"]["aql_dispatch"] = 3
    assert line(made([*rows, wrong])["checks"], "c3_base")["packets as planned"] == "1"


def test_without_any_good_row_only_the_checks_remain(row):
    assert list(made([row("c3_base", [[(0, 1), (0, 1)]], error="wrong")])) == ["checks"]


def test_whose_tc_it_is_stands_below(rows, row):
    assert "the collective by kernels" in made(rows)["averages"].note
    rows = [*rows, row("nccl", [[None, (0, 2000)]] * 3), row("kernels_quarter", [[None, (0, 1000)]] * 3)]
    assert "the collective by NCCL" in made(rows)["averages"].note
    assert line(made(rows)["scenarios"], "s1-ag")["collective is: time over a quarter's"] == "bandwidth-bound, 4.000"


def test_text_and_csv():
    table = Table("t", "title", ("name", "value"), [["a", "1"], ["long, name", "22"]])
    assert table.text().splitlines() == [
        "name        value",
        "----------  -----",
        "a               1",
        "long, name     22",
    ]
    assert list(csv.reader(io.StringIO(table.csv()))) == [["name", "value"], ["a", "1"], ["long, name", "22"]]


@pytest.mark.parametrize("name", ["percent_of_ideal", "parts", "claims"])
def test_the_others_have_a_line_each(rows, name):
    assert made(rows)[name].lines
