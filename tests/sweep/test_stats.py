"""Numbers derived from samples."""

import pytest

from hsakit.sweep import stats


def row(samples, nbytes=1000, transfers=1, clock="device"):
    return {"samples": samples, "parameters": {"nbytes": nbytes, "transfers": [{}] * transfers}, "clock": clock}


def test_span_is_first_start_to_last_end():
    assert stats.span([[0, 10], [5, 30], [2, 8]]) == 30


@pytest.mark.parametrize(
    "sample, part",
    [
        ([[0, 10], [10, 20]], 0.0),
        ([[0, 10], [0, 10]], 1.0),
        ([[0, 10], [5, 20]], 0.25),
        ([[0, 100], [10, 20], [15, 30]], 0.2),
        ([[0, 0], [0, 0]], 0.0),
    ],
)
def test_overlap_is_the_part_in_which_two_or_more_ran(sample, part):
    assert stats.overlap(sample) == pytest.approx(part)


def test_median_spread_and_rate():
    measured = row([[[0, 100]], [[0, 200]], [[0, 250]]])
    assert stats.median_ns(measured) == 200
    assert stats.spread(measured) == pytest.approx(0.75)
    assert stats.gigabytes_per_second(measured) == pytest.approx(5.0)


def test_all_transfers_count_in_the_rate():
    assert stats.gigabytes_per_second(row([[[0, 100], [50, 200]]], transfers=2)) == pytest.approx(10.0)


def test_no_spread_of_one_sample_or_of_a_model():
    assert stats.spread(row([[[0, 100]]])) is None
    assert stats.spread(row([[[0, 100]], [[0, 200]]], clock="model")) is None


def test_a_tick_too_short_to_see_has_no_rate():
    assert stats.gigabytes_per_second(row([[[0, 0]]])) is None
