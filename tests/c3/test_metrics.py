"""Speedup and per cent of ideal, by hand."""

import math

import pytest

from hsakit.c3.metrics import Undefined, check_collective, ideal_speedup, percent_of_ideal, speedup


def test_by_hand():
    # GEMM 6 ms, collective 4 ms, together 7 ms: S = 10/7, S_ideal = 10/6, (3/7) / (4/6) = 9/14
    assert speedup(6, 4, 7) == 10 / 7
    assert ideal_speedup(6, 4) == 10 / 6
    assert percent_of_ideal(6, 4, 7) == pytest.approx(100 * 9 / 14, rel=1e-15)


def test_the_longer_part_does_not_matter():
    assert percent_of_ideal(4, 6, 7) == percent_of_ideal(6, 4, 7)


def test_edges():
    assert percent_of_ideal(6, 4, 10) == 0  # as long as one after the other
    assert percent_of_ideal(6, 4, 6) == 100
    assert ideal_speedup(5, 5) == 2


def test_slower_than_serial_is_negative():
    # together 12 ms: S = 10/12, (-2/12) / (4/6) = -1/4
    assert percent_of_ideal(6, 4, 12) == pytest.approx(-25, rel=1e-15)


def test_a_faster_collective_passes_100():
    # the collective that ran takes 1 ms where the one of Tc takes 6, with a GEMM of 4: together 4.5
    assert percent_of_ideal(4, 6, 4.5) == pytest.approx(100 * (10 / 4.5 - 1) / (10 / 6 - 1), rel=1e-12)
    assert percent_of_ideal(4, 6, 4.5) > 100


def test_the_papers_baseline_fits_this_reading():
    # a mean S of 1.13 and a mean ideal of 1.62 are 21 per cent
    tg, tc = 1.0, 0.62
    assert percent_of_ideal(tg, tc, 1.62 / 1.13) == pytest.approx(21, abs=0.1)


def test_no_cancellation_where_one_part_is_tiny():
    assert percent_of_ideal(1e9, 1, 1e9) == 100
    assert percent_of_ideal(10**15, 1, 10**15 + 1) == 0


@pytest.mark.parametrize("times", [(0, 4, 7), (6, 0, 7), (6, 4, 0), (-1, 4, 7), (6, math.nan, 7), (6, 4, math.inf)])
def test_without_times_there_is_nothing(times):
    with pytest.raises(Undefined):
        percent_of_ideal(*times)
    with pytest.raises(Undefined):
        speedup(*times)


def test_collectives_that_move_nothing():
    check_collective(2, 1)
    with pytest.raises(Undefined, match="1 GPU moves nothing"):
        check_collective(1, 1 << 20)
    with pytest.raises(Undefined, match="0 bytes moves nothing"):
        check_collective(8, 0)
