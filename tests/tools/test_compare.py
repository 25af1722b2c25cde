"""tools/compare.py and tools/report.py as commands; neither needs a node."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(capsys):
    """Runs a tool's main() here: its exit status, what it printed, what it said."""

    def run(name, *arguments):
        spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        try:
            status = module.main([str(each) for each in arguments])
        except SystemExit as end:
            status = end.code
        return SimpleNamespace(status=status, **capsys.readouterr()._asdict())

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
