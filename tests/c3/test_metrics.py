"""Speedup and per cent of ideal, by hand."""

import math

import numpy as np
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


@pytest.mark.parametrize(
    ("speed", "percent"),
    # 1 + percent / 100 * 0.62, the mean ideal being 1.62: what the paper's averages say of mean speedups
    [(1.1302, 21), (1.2604, 42), (1.2542, 41), (1.4092, 66), (1.4464, 72)],
)
def test_the_papers_averages_as_speedups(speed, percent):
    assert percent_of_ideal(1.0, 0.62, 1.62 / speed) == pytest.approx(percent, rel=1e-12)
    # S / S_ideal is no reading of them: it puts the baseline near 70
    assert 100 * speedup(1.0, 0.62, 1.62 / 1.1302) / ideal_speedup(1.0, 0.62) == pytest.approx(69.77, abs=0.01)


def test_the_papers_best_speedup():
    # 1.67 is possible where the shorter part is 67 per cent of the longer or more; there it is all of the ideal
    assert percent_of_ideal(100, 67, 100) == 100 and speedup(100, 67, 100) == 1.67
    # and in a scenario of equal parts, 77 per cent: at 1.15 to 1 the ideal is 43/23, so (67/100) / (20/23) = 1541/2000
    assert ideal_speedup(23, 20) == pytest.approx(43 / 23, rel=1e-15)
    assert percent_of_ideal(23, 20, 43 / 1.67) == pytest.approx(77.05, rel=1e-12)


def test_all_to_all_from_base_to_conccl():
    # Tg 8, Tc 5, ideal 13/8: 1.05 is (1/20) / (5/8) = 8 per cent, 1.43 is (43/100) / (5/8) = 68.8
    assert percent_of_ideal(8, 5, 13 / 1.05) == pytest.approx(8, rel=1e-12)
    assert percent_of_ideal(8, 5, 13 / 1.43) == pytest.approx(68.8, rel=1e-12)


def test_arrays_and_their_mean_are_not_the_per_cent_of_means():
    # 6 and 4 in 8: (1/4) / (2/3) = 37.5. 9 and 1 in 10: 0. The mean is 18.75; of the mean times (7.5, 2.5, 9) it is
    # (1/9) / (1/3) = 33.3
    each = percent_of_ideal(np.array([6, 9]), np.array([4, 1]), np.array([8, 10]))
    assert each.tolist() == pytest.approx([37.5, 0])
    assert percent_of_ideal(7.5, 2.5, 9) == pytest.approx(100 / 3)


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
