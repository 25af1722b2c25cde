"""tools/model.py: the whole study, small; and what it says of input that is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def tool(*arguments):
    return subprocess.run(
        [sys.executable, ROOT / "tools/model.py", *arguments], capture_output=True, text=True, timeout=110
    )


def test_the_quick_study_prints_every_table_and_is_the_same_twice():
    first = tool("--quick", "--draws", "2", "--processes", "2")
    assert first.returncode == 0, first.stderr
    for line in ("conccl_rp", "memory-bound", "share of a copy that is not copying", "phi = 0", "c3_base is the worst"):
        assert line in first.stdout
    again = tool("--quick", "--draws", "2", "--processes", "1")
    assert again.stdout == first.stdout


def test_the_fit_starts_from_the_calibrated_constants():
    done = tool("--quick", "--fit", "0")
    assert done.returncode == 0, done.stderr
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("pi "))
    assert row[1] == row[2]


def test_rules_are_judged_on_the_sets_and_on_a_draw():
    done = tool("--quick", "--rules", "7")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if " of 5 " in line]
    assert len(rows) == 2 * 3 * 3  # constants, lists, rules
    assert sum("drawn:7" in row for row in rows) == 6 and sum(" ours " in row for row in rows) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--node-file", "none"), "no node file 'none'"),
        (("--set", "none"), "no set 'none'"),
        (("--scenarios", "/dev/null"), "no file of scenarios"),
        (("--draws", "0"), "at least 1"),
    ],
)
def test_bad_input_is_refused_with_what_is_wrong(arguments, said):
    done = tool(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
