"""What pictures show, by hand."""

import pytest

from hsakit.ffi.errors import InvalidArgument
from hsakit.figure import HeatMap
from hsakit.sweep.pictures import pictures


def row(sweep, samples, error=None, launch="gated", **parameters):
    verified = "none" if error else "full"
    head = {"kind": sweep, "error": error, "verified": verified, "launch": launch, "clock": "device"}
    return {**head, "samples": samples, "parameters": parameters}


def copy(engine, src, dst, nbytes, taken, mode="one-way", error=None):
    transfers = [{"src": src, "dst": dst, "engine": engine}]
    kind = "h2d" if src == "host" else "peer"
    return row("dma", [[[0, taken]]], error, mode=mode, kind=kind, nbytes=nbytes, transfers=transfers)


def masked(cus, taken, mask=None, error=None):
    same = {"gpu": 0, "api": "hsa", "load": "gemm 1", "label": "gemm"}
    return row("cu-mask", [[[0, taken]]], error, mask=mask or str(cus), cus=cus, **same)


def gathered(size, taken, by="engines", launch="gated", workgroups=None):
    name = by if workgroups is None else f"{by}, {workgroups} workgroups"
    what = {"implementation": by, "by": name, "workgroups": workgroups, "cus": None}
    what |= {"op": "all-gather", "gpus": 4, "in_place": False, "size": size, "bus_bytes": size // 2}
    return row("collective", [[[0, taken]]], launch=launch, **what)


def test_copies_by_size_with_the_range_of_a_kind():
    rows = [copy(2, 0, 1, 64, 32), copy(3, 0, 2, 64, 64), copy(2, 0, 1, 640, 64), copy(0, "host", 0, 64, 16)]
    lines, _ = pictures(rows)
    (peers,) = lines.series  # host to device was measured at one size only
    assert (peers.name, peers.x, peers.y) == ("one-way peer", (64, 640), (1.5, 10.0))
    assert peers.intervals == ((1.0, 2.0), None)
    assert lines.log_x and lines.log_y and lines.words(65536) == "64K"
    assert "Clock: device" in lines.caption


def test_engines_by_peers_at_the_largest_size():
    rows = [copy(10, 0, 1, 640, 64), copy(2, 10, 1, 640, 32), copy(2, 0, 1, 640, 10, error="no"), copy(2, 2, 1, 64, 1)]
    (heat,) = [drawn for drawn in pictures(rows) if isinstance(drawn, HeatMap)]
    assert (heat.rows, heat.columns) == (("2", "10"), ("0-1", "10-1"))
    assert heat.values == ((None, 20.0), (10.0, None)) and "640" in heat.title


def test_slowdown_by_cus():
    rows = [masked(304, 100, "all"), masked(8, 400), masked(8, 600, "0xff"), masked(16, 1, error="no")]
    (figure,) = pictures(rows)
    (series,) = figure.series
    assert (series.name, series.x, series.y) == ("gemm hsa GPU 0", (8, 304), (5.0, 1.0))
    assert series.intervals == ((4.0, 6.0), None) and figure.lines == {"all CUs": 1.0}


def test_collectives_by_size_their_ratio_and_saturation():
    rows = [
        *(gathered(64, 32), gathered(128, 32)),
        *(gathered(64, 16, "kernels-ring", workgroups=1), gathered(64, 8, "kernels-ring", workgroups=2)),
        *(gathered(128, 64, "kernels-ring", workgroups=1), gathered(128, 64, "kernels-ring", workgroups=2)),
    ]
    bandwidth, ratio, workgroups = pictures(rows)
    assert [s.name for s in bandwidth.series][0] == "engines, gated" and bandwidth.series[0].y == (1.0, 2.0)
    assert len(bandwidth.series) == 3 and "all-gather, 4 GPUs, out of place" in bandwidth.title
    (series,) = ratio.series
    assert (series.x, series.y) == ((64, 128), (4.0, 0.5)) and ratio.lines == {"par": 1.0}
    (series,) = workgroups.series  # the largest size only
    assert (series.x, series.y) == ((1, 2), (1.0, 1.0)) and series.name.endswith("kernels-ring, 128")


def test_launches_of_one_implementation_have_its_colour():
    rows = [gathered(size, 32, by, launch=launch) for size in (64, 128) for launch in ("gated", "host")
            for by in ("engines", "kernels-ring")]  # fmt: skip
    bandwidth, ratio = pictures(rows)
    assert {(s.name, s.group) for s in bandwidth.series} == {
        (f"{by}, {launch}", by) for by in ("engines", "kernels-ring") for launch in ("gated", "host")
    }
    assert [s.name.rpartition(", ")[2] for s in ratio.series] == ["host", "gated"]
    assert len({s.group for s in ratio.series}) == 1


def test_nothing_to_draw():
    for rows in ([], [copy(2, 0, 1, 64, 32, error="no")], [row("launch", [[[0, 1]]])], [gathered(64, 32)]):
        with pytest.raises(InvalidArgument, match="nothing to draw"):
            pictures(rows)
