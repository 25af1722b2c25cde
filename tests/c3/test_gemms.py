"""By whom GEMMs are: a sweep with a library's, on the stand-in."""

import pytest

from hsakit.c3 import strategy
from hsakit.c3.gemms import Gemms
from hsakit.c3.interference import InterferenceSweep
from hsakit.c3.scenario import of_gemm, parse
from hsakit.c3.sweep import C3Sweep, Settings
from hsakit.c3.tables import remarks
from hsakit.ffi.errors import InvalidArgument
from hsakit.sweep.load_spec import parse_gemm

SCENARIO = parse("bf16:130x70x24:tn+all-gather:2050")
NAMES = "gemm kernels engines serial c3_base conccl_rp".split()  # gated, in a row, by the host


def test_every_part_is_verified_timed_and_counted(few, blas):
    settings = Settings(repeats=1, warmup=0, quick=True, deadline=30, gemm=blas.name)
    with C3Sweep(few, settings) as sweep:
        points = sweep.plan([SCENARIO], strategy.select(NAMES))
        rows = [sweep.run(point) for point in points]
    assert [row["error"] for row in rows] == [None] * len(NAMES)
    assert {row["verified"] for row in rows} == {"full"} and all(f" by {blas.name}" in row["key"] for row in rows)
    for row in rows:
        by = row["parameters"]["gemm_by"]
        assert by["name"] == blas.name and by["version"] and by["stamps"] > 0
    alone = next(row for row in rows if row["parameters"]["strategy"] == "gemm")
    if alone["packets"]["counted"] is not None:  # and compared with the plan, or there would be an error
        # On 2 GPUs: the latch, the stand-in's two kernels, the stamp, what tells; and the gate's conductor
        assert alone["packets"]["planned"]["aql_dispatch"] == 2 * 5 + 1
    driven = next(row for row in rows if row["parameters"]["strategy"] == "conccl_rp")
    assert driven["launch"] == "host" and driven["parameters"]["order"] == []
    base = next(row for row in rows if row["parameters"]["strategy"] == "c3_base")
    assert base["parameters"]["apart"] >= by["stamps"]  # the second part is let go when the GEMM has begun
    (said,) = [each for each in remarks(rows) if blas.name in each]
    assert by["version"] in said and f"{by['stamps']} ns" in said


def test_a_product_that_went_wrong_is_no_row(few, blas):
    with C3Sweep(few, Settings(repeats=1, warmup=0, quick=True, deadline=30, gemm=blas.name)) as sweep:
        (point,) = sweep.plan([SCENARIO], strategy.select(["gemm"]))
        sweep.machine  # noqa: B018 - so that the next product is the scenario's
        blas.tell.standin_fail(6)
        row = sweep.run(point)
    assert "internal" in row["error"].lower() and row["verified"] == "none"


def test_interference(few, blas):
    settings = Settings(repeats=1, warmup=0, quick=True, deadline=30, gemm=blas.name)
    with InterferenceSweep(few, settings, 1025) as sweep:
        rows = [sweep.run(point) for point in sweep.plan([of_gemm(parse_gemm("f16:64x64x16"))], (1,))]
    assert [row["error"] for row in rows] == [None] * 3 and {row["verified"] for row in rows} == {"full"}


def test_providers_by_name(few):
    with Gemms(few) as ours:
        assert ours.as_json() == {"name": "hsakit"} and ours.apart == few.apart
    with pytest.raises(InvalidArgument, match="hsakit, hipblaslt, rocblas"):
        Gemms(few, "cublas")

    class Others:
        gpus = (object(),)
        apart = 0.0

    with pytest.raises(InvalidArgument, match="for AMD's GPUs"):
        Gemms(Others(), "rocblas")
