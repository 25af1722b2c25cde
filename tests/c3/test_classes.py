"""Means by class, and where a strategy's time goes, by hand."""

from hsakit.c3 import classes
from hsakit.c3.outcome import outcomes
from hsakit.c3.scenario import Scenario

OTHER = Scenario("s2-a2a", "bf16", 512, 512, 512, "all-to-all", 1 << 20)


def line(table, first):
    (found,) = [each for each in table.lines if each[0] == first]
    return dict(zip(table.headers, found))


def test_means_are_by_class_and_by_collective(rows, row):
    more = [
        row("gemm", [[(0, 2000), None]] * 3, scenario=OTHER),
        row("kernels", [[None, (0, 4000)]] * 3, scenario=OTHER),
        row("conccl", [[(100, 2300), (0, 3000)]] * 3, scenario=OTHER, by="engines"),
    ]
    table, _ = classes.tables(outcomes([*rows, *more]))
    assert [each[:2] for each in table.lines] == [
        ["G-long, all-gather", "1"],
        ["C-long, all-to-all", "1"],
        ["G-long", "1"],
        ["C-long", "1"],
        ["all-gather", "1"],
        ["all-to-all", "1"],
        ["all", "2"],
    ]
    assert line(table, "C-long")["c3_base"] == "-"
    assert line(table, "C-long")["engines, nothing slowed"] == "-"  # engines alone were not measured
    assert line(table, "G-long")["engines, nothing slowed"] == "100.0"
    assert line(table, "C-long")["conccl"] == "200.0 [200.0, 200.0]"  # S is 2, the ideal 1.5
    mean = (100 * (10 / 6.5 - 1) / (4 / 6) + 200) / 2
    assert line(table, "all")["conccl"].startswith(f"{mean:.1f} ")


def test_the_time_beyond_the_ideal_is_taken_apart(rows, row):
    late = row("conccl_gated", [[(200, 6300), (0, 6400)]] * 3, by="engines")
    _, table = classes.tables(outcomes([*rows, late]))
    assert table.lines == [["s1-ag", "G-long", "conccl_gated", "0.4", "0.1", "0.2", "0.1"]]


def test_without_strategies_there_is_nothing_to_say(rows):
    assert classes.tables(outcomes(rows[:3])) == []
