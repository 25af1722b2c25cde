"""The paper's heuristics, by hand."""

import pytest

from hsakit.c3.heuristics import (
    Machine,
    SlowdownTable,
    TableError,
    gemm_name,
    gemm_slowdown,
    judge,
    launch_order,
    pick_split,
    roofline,
    score,
    splits,
)
from hsakit.c3.scenario import parse
from hsakit.ffi.errors import InvalidArgument

COMPUTE = parse("bf16:8192x8192x8192+all-gather:448M")
MEMORY = parse("bf16:128x106496x16384+all-gather:448M")
MACHINE = Machine(304, 600e12, 4e12)
SATURATING = {8: 4.0, 16: 2.0, 32: 1.0, 64: 1.0, 128: 1.0, 256: 1.0, 304: 1.0}


def table(**kernels):
    return SlowdownTable(304, "device", {"all-gather": SATURATING, **kernels})


def test_sp_launches_the_smaller_grid_first():
    assert launch_order({"gemm": 4096, "collective": 64}) == ("collective", "gemm")
    assert launch_order({"gemm": 4, "collective": 64}) == ("gemm", "collective")
    assert launch_order({"gemm": 64, "collective": 64}) == ("gemm", "collective")


def test_splits_are_powers_of_two_from_one_cu_an_xcd_on():
    assert splits(304) == (8, 16, 32, 64, 128, 256)
    assert splits(104) == (8, 16, 32, 64)
    with pytest.raises(InvalidArgument, match="8 at the least"):
        splits(8)


def test_the_roofline_by_hand():
    # 2 * 8192^3 operations at 0.7 * 600e12 a second
    assert roofline(COMPUTE, MACHINE, 304) == pytest.approx(2 * 8192**3 / 420e12 * 1e9)
    assert gemm_slowdown(COMPUTE, table(), MACHINE, 152) == pytest.approx(2.0)
    # what memory bounds does not mind lost CUs until computing takes longer
    assert gemm_slowdown(MEMORY, table(), MACHINE, 296) == 1.0
    assert gemm_slowdown(MEMORY, table(), MACHINE, 8) > 1.0


def test_the_table_goes_before_the_roofline():
    known = table(**{gemm_name(COMPUTE): {152: 3.0, 304: 1.0}})
    assert gemm_slowdown(COMPUTE, known, MACHINE, 152) == 3.0


def test_between_counts_it_is_linear_in_their_reciprocal():
    known = table(perfect={100: 2.0, 200: 1.0})
    assert known.slowdown("perfect", 150) == pytest.approx(200 / 150)
    assert known.slowdown("unknown", 150) is None
    with pytest.raises(TableError, match="100 to 200"):
        known.slowdown("perfect", 99)


def test_rp_picks_the_split_that_balances():
    # Tc 1 ms: 4, 2, 1, 1 ms by 8, 16, 32, 64 CUs. Tg 1.5 ms, slowed by 304/296, 304/288, 304/272, 304/240:
    # max(1.54, 4), max(1.58, 2), max(1.68, 1), max(1.9, 1)
    picked = pick_split(COMPUTE, table(), MACHINE, 1.5e6, 1e6)
    assert picked.cus == 32
    assert picked.predicted[16] == pytest.approx(2e6)
    assert picked.predicted[32] == pytest.approx(1.5e6 * 304 / 272)
    # a long GEMM leaves the collective its time
    assert pick_split(COMPUTE, table(), MACHINE, 10e6, 1e6).cus == 8
    # where the collective decides, the GEMM keeps what does not help it
    assert pick_split(MEMORY, table(), MACHINE, 0.1e6, 1e6).cus == 32


def test_a_collective_that_is_not_in_the_table_is_refused():
    with pytest.raises(TableError, match="no all-gather"):
        pick_split(COMPUTE, SlowdownTable(304, "device"), MACHINE, 1, 1)


def test_saved_and_loaded(tmp_path):
    made = table()
    made.save(tmp_path / "table.json")
    assert SlowdownTable.load(tmp_path / "table.json") == made
    (tmp_path / "wrong.json").write_text('{"cus": 304}')
    for wrong in ("wrong.json", "nowhere.json"):
        with pytest.raises(TableError, match="no table of slowdowns"):
            SlowdownTable.load(tmp_path / wrong)


def test_picks_against_the_oracle():
    hit = judge("a", 16, {8: 2.0, 16: 1.0, 32: 1.5})
    tie = judge("b", 32, {8: 2.0, 16: 1.0, 32: 1.0})
    miss = judge("c", 8, {8: 1.1, 16: 1.0})
    assert hit.hit and tie.hit and not miss.hit
    assert (miss.best, miss.loss) == (16, pytest.approx(0.1))
    assert score([hit, tie, miss]) == (2, 3, pytest.approx(0.1))
    with pytest.raises(InvalidArgument):
        judge("d", 64, {8: 1.0})
