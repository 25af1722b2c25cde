"""The c3 sweep as a command, and the folder that it leaves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hsakit.results import read

ROOT = Path(__file__).parents[2]
TINY = "f16:64x64x16+all-gather:4096"

pytestmark = pytest.mark.node


def run(*arguments):
    """(exit status, stdout, stderr)"""
    command = [sys.executable, str(ROOT / "tools" / "sweep.py"), "c3", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=os.environ)
    return done.returncode, done.stdout, done.stderr


def test_a_folder_with_rows_report_and_trace(tmp_path):
    few = ("--strategies", "gemm,kernels,engines,conccl_gated", "--repeats", "1", "--warmup", "0", "--quick")
    folder, trace = tmp_path / "out", tmp_path / "trace.json"
    status, out, err = run(*few, "--scenarios", TINY, "--out", folder, "--trace", trace)
    assert status == 0, err
    assert "conccl_gated" in out and "% of ideal" in out and "4 of 4 points verified" in err
    rows = read(folder / "rows.jsonl")
    assert [row["parameters"]["strategy"] for row in rows] == ["gemm", "kernels", "engines", "conccl_gated"]
    assert {row["verified"] for row in rows} == {"full"}
    for row in rows:
        planned, counted = row["packets"]["planned"], row["packets"]["counted"]
        assert counted is None or {name: counted[name] for name in planned} == planned
    assert TINY in (folder / "report.html").read_text()
    assert {e["pid"] for e in json.loads(trace.read_text())["traceEvents"]} == set(range(8))


def test_several_processes_leave_the_rows_of_one(tmp_path):
    few = ("--strategies", "gemm,engines", "--repeats", "1", "--warmup", "0", "--quick")
    scenarios = ("--scenarios", f"{TINY},f16:64x64x16+all-to-all:4096")
    left = []
    for jobs in (1, 2):
        status, _, err = run(*few, *scenarios, "--jobs", jobs, "--out", tmp_path / str(jobs))
        if jobs == 2 and "which all would share" in err:
            assert status == 2  # hardware
            return
        assert status == 0, err
        left.append([{**row, "time": None} for row in read(tmp_path / str(jobs) / "rows.jsonl")])
    assert left[0] == left[1]


def test_what_is_not_there_is_refused():
    status, _, err = run("--scenarios", "lama")
    assert status == 2 and "a set (llama, unseen, quick)" in err


@pytest.mark.parametrize(
    "option, path, said", [("--out", "file", "cannot be a folder"), ("--trace", "none/t.json", "cannot be written")]
)
def test_what_cannot_be_written_is_said_before_anything_is_measured(tmp_path, option, path, said):
    (tmp_path / "file").touch()
    status, out, err = run("--quick", "--scenarios", TINY, "--strategies", "gemm", option, tmp_path / path)
    assert status == 2 and said in err.splitlines()[-1] and "verified" not in err and out == "", err
