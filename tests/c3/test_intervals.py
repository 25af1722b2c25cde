"""Medians, bootstrap intervals and ties."""

import numpy as np
import pytest

from hsakit.c3.intervals import Estimate, differ, estimate, median
from hsakit.c3.metrics import percent_of_ideal
from hsakit.ffi.errors import InvalidArgument


def test_median_by_hand():
    found = median([3, 1, 2, 10, 4])
    assert (found.value, found.least, found.most, found.samples) == (3, 1, 10, 5)
    assert 1 <= found.low <= 3 <= found.high <= 10


def test_the_interval_covers_the_median_as_often_as_it_says():
    rng = np.random.default_rng(7)
    inside = sum(e.low <= 5.0 <= e.high for e in (median(rng.normal(5, 1, 15)) for _ in range(200)))
    assert 170 <= inside <= 198  # of few samples, somewhat less often than 95 %


def test_the_same_samples_give_the_same_interval():
    samples = np.random.default_rng(3).normal(100, 5, 9).tolist()
    assert median(samples) == median(samples)


def test_one_sample_has_no_interval():
    assert median([5]) == Estimate(5, None, None, 1, 5, 5)
    assert median([5]).show() == "5"


def test_a_figure_of_medians():
    found = estimate(percent_of_ideal, [6, 6, 6], [4, 4, 4], [7, 7, 7])
    assert found.value == found.low == found.high == pytest.approx(100 * 9 / 14)


def test_drift_that_hits_all_alike_does_not_widen_a_ratio():
    drift = np.linspace(1, 2, 9)
    together = estimate(lambda a, b: b / a, 10 * drift, 12 * drift)
    assert together.low == pytest.approx(1.2) and together.high == pytest.approx(1.2)
    assert median(10 * drift).high > 1.1 * median(10 * drift).low


def test_differences_and_ties():
    noise = np.random.default_rng(5).normal(0, 1, (2, 15))
    a, b = 100 + noise
    assert differ(a, b).tie and "tie" in str(differ(a, b))
    slower = differ(a, b + 20)
    assert not slower.tie and slower.change.value == pytest.approx(0.2, abs=0.03)
    assert str(slower).startswith("+")


def test_a_difference_of_models_is_exact():
    assert differ([100], [100]).tie
    assert str(differ([100], [101])) == "+1.0%"


def test_sessions_apart_may_have_unlike_counts():
    change = differ([100, 101, 99], [110, 111, 109, 110, 112], paired=False)
    assert not change.tie and change.change.low > 0


def test_lists_of_unlike_rounds_are_refused():
    with pytest.raises(InvalidArgument, match=r"\[2, 3\]"):
        estimate(max, [1, 2], [1, 2, 3])
    with pytest.raises(InvalidArgument):
        median([])
