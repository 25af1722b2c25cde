"""Heuristics against rows, by hand."""

import pytest

from hsakit.c3.heuristics import Machine
from hsakit.c3.judged import OURS, PAPERS, as_table, judge, presence, table_of
from hsakit.c3.outcome import outcomes
from hsakit.c3.scenario import Scenario

MACHINE = Machine(304, 1e12, 1e12)
# 2 * 304 tiles: two rounds; 1 TFLOP/s are 1000 operations a nanosecond
SCENARIO = Scenario("s1-ag", "bf16", 2432, 2048, 512, "all-gather", 1 << 20)
TG = SCENARIO.flops / 1000


@pytest.fixture
def found(row):
    def make(strategy, gemm, collective, **more):
        spans = [(0, round(gemm)) if gemm else None, (0, round(collective)) if collective else None]
        made = row(strategy, [spans], scenario=SCENARIO, **more)
        made["parameters"] |= {"gemm_per_cu": 1, "workgroups": {"gemm": 304, "collective": 64}}
        return made

    tc = TG / 2
    rows = [make("gemm", TG, 0), make("kernels", 0, tc)]
    for cus, slow in ((8, 4.0), (16, 2.0), (32, 1.0), (64, 1.0), (128, 1.0), (256, 1.0)):
        rows.append(make("kernels_by_cus", 0, tc * slow, variant={"cus": cus}))
        rows.append(make("gemm_by_cus", 2 * TG, 0, variant={"cus": 304 - cus}))  # two rounds instead of one
        # while the collective ran the GEMM advanced by 4/5 of the time
        together = 2 * TG + 0.2 * tc if slow == 1 else 2 * TG + tc * slow
        rows.append(make("c3_rp", together, tc * slow, variant={"cus": cus}, by="kernels"))
    return outcomes(rows)


def test_the_table_comes_from_the_curves(found):
    table = table_of(found, MACHINE)
    assert table.clock == "device" and set(table.kernels) == {"bf16:2432x2048x512", "all-gather"}
    assert table.slowdown("all-gather", 16) == pytest.approx(2.0)
    assert table.slowdown("bf16:2432x2048x512", 296) == pytest.approx(2.0)
    assert table.slowdown("all-gather", 304) == 1.0


def test_how_much_a_collective_slows_a_gemm(found):
    # 0.2 of tc is lost over the 0.8 that it advanced meanwhile
    assert presence(found, MACHINE) == pytest.approx(0.25, rel=0.3)


def test_picks_against_the_fastest(found):
    judged = judge(found, table_of(found, MACHINE), MACHINE)
    assert [len(each) for each in judged.values()] == [1, 1]
    papers, ours = judged[PAPERS][0], judged[OURS][0]
    assert (papers.best, papers.picked) == (32, 8)  # two rounds take as long as the collective with 8 CUs
    assert papers.loss > 0 and ours.loss <= papers.loss
    lines = as_table(judged, table_of(found, MACHINE)).lines
    assert lines[0][:3] == ["s1-ag", "32", "8"] and lines[1][2] == "0 of 1"
