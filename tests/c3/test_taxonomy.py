"""Classes of scenarios: edges, and the figures that decided."""

import pytest

from hsakit.c3.metrics import Undefined
from hsakit.c3.scenario import parse, select
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
    "gemm, intensity, label",
    [
        # In 2 bytes an element: 1 / (1/m + 1/n + 1/k) operations a byte, against 0.6 x 1307 / 4.2 = 186.7
        ("8192x8192x8192", 8192 / 3, "compute-bound"),
        ("8192x8192x28672", 8192 * 7 / 16, "compute-bound"),  # k is 7/2 of the others: 1 / (1 + 1 + 2/7) = 7/16
        ("128x106496x16384", 1 / (1 / 128 + 1 / 106496 + 1 / 16384), "memory-bound"),
        ("8192x106496x128", 1 / (1 / 8192 + 1 / 106496 + 1 / 128), "memory-bound"),
    ],
)
def test_intensity_by_hand(gemm, intensity, label):
    scenario = parse(f"bf16:{gemm}+all-gather:448M")
    assert scenario.intensity == pytest.approx(intensity, rel=1e-12)
    assert bound_of_gemm(scenario.intensity, 0.6 * 1307e12, 4.2e12).label == label


def test_the_shipped_scenarios_are_what_their_names_say():
    # cb: bound by computing, mb: by memory
    labels = {s.name[:2]: set() for s in select(["llama"])}
    for scenario in select(["llama"]):
        labels[scenario.name[:2]].add(bound_of_gemm(scenario.intensity, 0.6 * 1307e12, 4.2e12).label)
    assert labels == {"cb": {"compute-bound"}, "mb": {"memory-bound"}}


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
