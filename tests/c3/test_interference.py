"""A GEMM beside copies: what is measured, and what is read from rows, by hand."""

import pytest

from hsakit.c3 import interference
from hsakit.c3.interference import InterferenceSweep, figures, rate, slowed
from hsakit.c3.outcome import Measured
from hsakit.c3.scenario import of_gemm
from hsakit.c3.sweep import Settings
from hsakit.ffi.errors import InvalidArgument
from hsakit.sweep.load_spec import parse_gemm

GEMM = of_gemm(parse_gemm("f16:64x64x16"))


def test_copies_by_both_means_are_verified_and_counted(few):
    with InterferenceSweep(few, Settings(repeats=1, warmup=0, quick=True, deadline=30), 1025) as sweep:
        points = sweep.plan([GEMM], (1,))
        alone, engines, kernels = rows = [sweep.run(point) for point in points]
    assert [row["error"] for row in rows] == [None] * 3 and {row["verified"] for row in rows} == {"full"}
    assert [row["parameters"]["by"] for row in rows] == ["alone", "engines", "kernels"]
    count = engines["parameters"]["count"]
    assert count >= 1 and engines["packets"]["planned"]["sdma_copy"] == 2 * count
    assert engines["packets"]["planned"]["aql_dispatch"] == 3
    assert kernels["packets"]["planned"]["aql_dispatch"] == 3 + 2 * kernels["parameters"]["count"]
    assert kernels["parameters"]["workgroups"] >= 1
    assert {s.by for s in slowed(rows)} == {"engines", "kernels"}


def test_kernels_may_have_cus_of_their_own(few):
    with InterferenceSweep(few, Settings(repeats=1, warmup=0, quick=True, deadline=30), 1025) as sweep:
        *_, apart = rows = [sweep.run(point) for point in sweep.plan([GEMM], (1,), (8,))]
    assert [row["error"] for row in rows] == [None] * 4 and apart["parameters"]["cus"] == 8
    assert slowed(rows)[-1].by == "kernels on 8 CUs of their own"


def test_a_smaller_size_that_cannot_be_staged_is_an_error_in_the_rows(few, monkeypatch):
    settings = Settings(repeats=1, warmup=0, quick=True, deadline=30, scaled=True)
    with InterferenceSweep(few, settings, 1025) as sweep:
        stage = sweep._stage

        def refusing(scenario, verify):
            if verify:
                raise InvalidArgument("no room")
            return stage(scenario, verify)

        monkeypatch.setattr(sweep, "_stage", refusing)
        rows = [sweep.run(point) for point in sweep.plan([GEMM], (1,))]
    assert all("at a smaller size: no room" in row["error"] for row in rows)
    assert {row["verified"] for row in rows} == {"none"}


@pytest.fixture
def beside(row):
    """A GEMM of 1000 ns alone; beside engines that move 2000 bytes in 500 ns each it takes 1100."""

    def make(by, gemm, copies):
        works = [("gemm", 0, "queue"), *[("collective", 0, "engine 2")] * len(copies)]
        made = row(f"{by} 1", [[(0, gemm), *copies]] * 3, works=works)
        made["kind"] = "interference"
        made["parameters"] |= {"by": by, "peers": 1, "nbytes": 2000, "copy_alone": 400.0}
        return made

    return [
        make("alone", 1000, []),
        make("engines", 1100, [(-100, 400), (400, 900), (900, 1400)]),
        make("kernels", 1500, [(0, 500), (500, 1000), (1000, 1500)]),
    ]


def test_the_rate_is_of_the_time_that_the_gemm_ran(beside):
    measured = Measured(beside[1])
    # Alone a copy takes 400 ns. 100 ns of the first were alone, so 3/4 of it were moved in the other 400; all of the
    # second; of the third 1/4: 2 copies of 2000 bytes in 1100 ns
    assert rate(measured, measured.samples[0]) == pytest.approx(4000 / 1100)


def test_slowdowns(beside):
    engines, kernels = slowed(beside)
    assert engines.gemm_slowdown.value == pytest.approx(1.1)
    assert kernels.gemm_slowdown.value == pytest.approx(1.5)
    assert engines.copy_slowdown == pytest.approx(1100 / (2 * 400))  # 2 copies in 400 + 500 + 200 ns
    assert kernels.copy_slowdown == pytest.approx(500 / 400)
    assert slowed(beside[1:]) == []  # without the GEMM alone nothing can be said


def test_the_plot(beside):
    (figure,) = figures(beside)
    assert [(s.name, s.x, s.y) for s in figure.series] == [
        ("copies by engines", (pytest.approx(4000 / 1100),), (pytest.approx(1.1),)),
        ("copies by kernels", (pytest.approx(4.0),), (pytest.approx(1.5),)),
    ]
    assert "Clock: device" in figure.caption and "assumption" not in figure.caption
    for each in beside:
        each["clock"] = "model"
    assert "its assumption, not a finding" in figures(beside)[0].caption


def test_copies_that_end_too_early_are_told(beside):
    measured = Measured(beside[1])
    assert interference._covered(measured.works, measured.samples[0]) is None
    short = [span if span[0] < 900 else [900, 1000] for span in measured.samples[0]]
    assert "ended before the GEMM" in interference._covered(measured.works, short)
