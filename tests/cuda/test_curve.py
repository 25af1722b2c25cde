"""What is measured of collectives: on the stand-in the sequences run and are verified, whatever its times are."""

import pytest

from hsakit.c3 import curve, parts

FEW = ("streamed", "engines")


@pytest.fixture
def few(monkeypatch):
    every = curve.implementations
    monkeypatch.setattr(curve, "implementations", lambda node: {name: every(node)[name] for name in FEW})


@pytest.mark.parametrize("name", ["all-gather", "all-to-all"])
def test_every_run_of_a_curve_is_verified(cuda_node, few, name):
    rows = list(curve.measure(cuda_node, (name,), [1024], 3))
    assert [(row["parameters"]["by"], row["verified"], row["error"]) for row in rows] == [
        (by, "full", None) for by in FEW
    ]
    assert all(len(row["samples"]) == 3 and all(end >= 0 for run in row["samples"] for _, end in run) for row in rows)


def test_a_table_has_the_slower_rank_over_nccls():
    def row(by, *times):
        samples = [[[0, time], [0, time // 2]] for time in times]
        return {"parameters": {"operation": "all-gather", "size": 1024, "by": by}, "error": None, "samples": samples}

    rows = [row("nccl", 8000, 9000, 10000), row("streamed", 4500, 18000, 5000), row("kernels 4", 18000)]
    headers, [line] = curve.table(rows)
    found = dict(zip(headers, line))
    assert found["engines us"] == "5.0" and found["engines least us"] == "4.5" and found["engines/NCCL"] == "0.56"
    assert found["kernels us (workgroups)"] == "18.0 (4)" and found["kernels/NCCL"] == "2.00"
    assert found["engines without a kernel us"] == ""


def test_parts_are_told_by_what_they_add(cuda_node):
    rows = list(parts.measure(cuda_node, 2))
    headers, lines = parts.table(rows)
    assert lines[0][0] == "nothing" and lines[0][-1] == "0.0" and len(lines) == len(rows) > 10
    assert headers[-1] == "over nothing us"
