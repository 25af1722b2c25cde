"""Classes of scenarios: edges, and the figures that decided."""

import pytest

from hsakit.c3.metrics import Undefined
from hsakit.c3.taxonomy import bound_of_collective, bound_of_gemm, duration


@pytest.mark.parametrize(
    "tg, tc, label",
    [
        (115, 100, "GC-equal"),  # exactly 1.15
        (115.5, 100, "G-long"),
        (100, 115, "GC-equal"),
        (100, 115.5, "C-long"),
        (1150000001, 1000000000, "G-long"),
        (1150000000, 1000000000, "GC-equal"),
        (3 * 115, 3 * 100, "GC-equal"),
        (1, 1, "GC-equal"),
    ],
)
def test_duration(tg, tc, label):
    assert duration(tg, tc).label == label


def test_the_figures_stand_beside_it():
    assert str(duration(2_000_000, 1_000_000)) == "G-long (Tg 2 ms, Tc 1 ms: Tg is 2.000 Tc, the limit is 1.15)"
    assert "Tc is 4.000 Tg" in str(duration(1_000_000, 4_000_000))


def test_bound_of_a_gemm():
    # 600 TFLOP/s over 4 TB/s is a balance of 150
    assert bound_of_gemm(150, 600e12, 4e12).label == "compute-bound"
    verdict = bound_of_gemm(149.9, 600e12, 4e12)
    assert verdict.label == "memory-bound"
    assert verdict.because == "149.9 operations a byte, less than the machine's 150.0: 600 TFLOP/s over 4 TB/s"


@pytest.mark.parametrize(
    "time, quarter, label",
    [
        (115, 100, "latency-bound"),
        (116, 100, "bandwidth-bound"),
        (400, 100, "bandwidth-bound"),
        (90, 100, "latency-bound"),
    ],
)
def test_bound_of_a_collective(time, quarter, label):
    assert bound_of_collective(time, quarter).label == label


def test_without_figures_no_class():
    for wrong in (lambda: duration(0, 1), lambda: bound_of_gemm(1, 0, 1), lambda: bound_of_collective(1, 0)):
        with pytest.raises(Undefined):
            wrong()
