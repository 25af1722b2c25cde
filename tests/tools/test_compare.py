"""tools/compare.py and tools/report.py as commands; neither needs a node."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool():
    """Runs a tool: its exit status, what it printed, what it said."""

    def run(name, *arguments, stdout=subprocess.PIPE):
        command = [sys.executable, ROOT / "tools" / f"{name}.py", *arguments]
        done = subprocess.run(list(map(str, command)), stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60)
        return SimpleNamespace(status=done.returncode, out=done.stdout, err=done.stderr)

    return run


def write(path, *ends):
    """A file with one row of so many runs."""
    scenario = {"name": "a-ag", "group": "", "collective": "all-gather", "nbytes": 64, "gemm": "g", "gemm_bytes": 1}
    row = {
        "schema": 1, "kind": "c3", "key": "k", "time": "t", "verified": "full", "launch": "gated", "clock": "device",
        "parameters": {
            "scenario": scenario, "strategy": "gemm", "variant": {}, "gpus": 2, "works": [["gemm", 0, "queue"]],
        },
        "samples": [[[0, end]] for end in ends], "packets": {"planned": {}, "counted": None}, "versions": {},
        "environment": {}, "error": None,
    }  # fmt: skip
    path.write_text(json.dumps(row) + "\n")
    return path


def test_the_exit_status_tells_what_became_slower(tool, tmp_path):
    a, b = write(tmp_path / "a.jsonl", 100, 101, 99), write(tmp_path / "b.jsonl", 110, 111, 109)
    slower = tool("compare", a, b)
    assert slower.status == 1 and "+10.0%" in slower.out and "1 slower" in slower.err
    assert tool("compare", b, a).status == 0
    assert tool("compare", a, b, "--slower", 15).status == 0
    assert tool("compare", a, tmp_path / "nowhere").status == 2


def test_a_report_of_rows_from_elsewhere(tool, tmp_path):
    write(tmp_path / "rows.jsonl", 100)
    assert tool("report", tmp_path).status == 0
    assert (tmp_path / "report.html").exists()
    refused = tool("report", tmp_path / "nowhere")
    assert refused.status == 2 and "no rows.jsonl" in refused.err


def test_an_output_that_is_full(tool, tmp_path):
    rows = write(tmp_path / "rows.jsonl", 100)
    with open("/dev/full", "w") as full:
        for name, arguments in (("compare", (rows, rows)), ("report", (tmp_path,))):
            done = tool(name, *arguments, stdout=full)
            assert done.status == 1
            assert done.err.splitlines()[-1] == f"{name}.py: standard output: No space left on device"


@pytest.mark.parametrize(
    "arguments", [("compare.py", "a", "b"), ("report.py", "a"), ("sweep.py", "plot", "a", "--out", "b.png")]
)
def test_a_python_without_numpy_is_no_traceback(arguments):
    command = [sys.executable, "-S", ROOT / "tools" / arguments[0], *arguments[1:]]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
    # In the Python of `make rocm` it says so; any other goes on there.
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "has no numpy and no cffi" in done.stderr or "error: " in done.stderr
