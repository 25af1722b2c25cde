"""Rows read as results, by hand."""

import numpy as np
import pytest

from hsakit.c3.outcome import CURVE_KERNELS, average_percent, label, outcomes, strategies
from hsakit.c3.scenario import Scenario


def test_figures_of_a_scenario(rows):
    (outcome,) = outcomes(rows)
    assert outcome.ideal.value == pytest.approx(10 / 6)
    assert outcome.duration.label == "G-long"
    base = outcome.results["c3_base"]
    assert base.time.value == 9000
    assert base.speedup.value == pytest.approx(10 / 9)
    assert base.percent.value == pytest.approx(100 * (1 / 9) / (4 / 6))
    assert base.gemm_slowdown.value == pytest.approx(1.1)
    assert base.collective_slowdown.value == pytest.approx(8900 / 4000)
    assert base.overlap == pytest.approx(6500 / 6600)


def test_the_best_split_stands_for_an_oracle(rows):
    result = outcomes(rows)[0].results["c3_rp"]
    assert result.best.label == "c3_rp cus=32" and result.oracle
    assert [each.variant["cus"] for each in result.tried] == [64, 32]
    assert result.time.value == 7000


def test_engines_are_compared_with_their_own_time_where_they_slow(rows):
    (outcome,) = outcomes(rows)
    conccl = outcome.results["conccl"]
    assert conccl.collective_slowdown.value == pytest.approx(1.0)  # of the 5 us that engines take alone
    assert conccl.percent.value == pytest.approx(100 * (10 / 6.5 - 1) / (4 / 6))  # of the ideal that kernels set
    assert not conccl.oracle


def test_the_average_is_over_scenarios(rows, row):
    other = Scenario("s2-ag", "bf16", 512, 512, 512, "all-gather", 1 << 20)
    more = [
        row("gemm", [[(0, 4000), None]] * 3, scenario=other),
        row("kernels", [[None, (0, 4000)]] * 3, scenario=other),
        row("c3_base", [[(0, 4000), (0, 8000)]] * 3, scenario=other, by="kernels"),
    ]
    found = outcomes(rows + more)
    assert average_percent(found, "c3_base").value == pytest.approx((100 / 6 + 0) / 2)
    assert average_percent(found, "conccl").value == pytest.approx(found[0].results["conccl"].percent.value)
    assert average_percent(found, "nobody") is None
    assert strategies(found) == ["c3_base", "c3_rp", "conccl"]


def test_bad_rows_are_no_results(rows, row):
    wrong = row("c3_sp", [[(0, 1), (0, 1)]], by="kernels", error="a tile was skipped")
    (outcome,) = outcomes([*rows, wrong])
    assert "c3_sp" not in outcome.results


def test_without_isolated_times_there_are_no_results(rows):
    (outcome,) = outcomes(rows[2:])
    assert not outcome.complete and outcome.results == {}


def test_the_fastest_and_who_ties_with_it(row):
    noise = np.random.default_rng(3).integers(-50, 50, (4, 9))
    times = {"gemm": 6000, "kernels": 4000, "a": 7000, "b": 7001}
    spans = {name: [time + int(n) for n in noise[i]] for i, (name, time) in enumerate(times.items())}
    rows = [
        row("gemm", [[(0, t), None] for t in spans["gemm"]]),
        row("kernels", [[None, (0, t)] for t in spans["kernels"]]),
        row("a", [[(0, t), (0, 100)] for t in spans["a"]], by="kernels"),
        row("b", [[(0, t), (0, 100)] for t in spans["b"]], by="kernels"),
        row("c", [[(0, t + 900), (0, 100)] for t in spans["b"]], by="kernels"),
    ]
    (outcome,) = outcomes(rows)
    assert set(outcome.fastest()) == {"a", "b"}
    assert not outcome.against("a", "c").tie


def test_bounds_of_the_collective(rows, row):
    assert outcomes(rows)[0].bound_of_collective() is None
    quarter = row("kernels_quarter", [[None, (0, 3800)]] * 3)
    assert outcomes([*rows, quarter])[0].bound_of_collective().label == "latency-bound"


def test_where_nccl_sets_tc_curves_are_of_the_kernels_all_the_same(rows, row):
    nccl = row("nccl", [[None, (0, 2000)]] * 3)
    curve = row("kernels_by_cus", [[None, (0, 8000)]] * 3, variant={"cus": 32})
    (outcome,) = outcomes([*rows, nccl, curve])
    assert outcome.collective == [2000] * 3
    assert outcome.curve(CURVE_KERNELS)[32].value == 2.0  # of the 4 us of the kernels alone


def test_labels():
    assert label("c3_rp", {"cus": 8}) == "c3_rp cus=8"
    assert label("c3_base", {}) == "c3_base"
