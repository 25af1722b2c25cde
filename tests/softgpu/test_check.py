"""``tools/node.py`` on this node: it is what its file says, also where the file is another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hsakit.softgpu.node import NODES, load

ROOT = Path(__file__).resolve().parents[2]
TEXT = (NODES / "mi300x-8.toml").read_text()


def tool(*arguments, **environment):
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "node.py"), arguments[0], "--node", "soft", *arguments[1:]],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


@pytest.fixture
def file(tmp_path):
    def write(*changes):
        text = TEXT
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path = tmp_path / "other.toml"
        path.write_text(text)
        return str(path)

    return write


def lines(done, *starts):
    """Of the table, what follows the name of each line that starts so."""
    found = []
    for start in starts:
        (line,) = [line for line in done.stdout.splitlines() if line.strip().startswith(start + "  ")]
        found.append(line.strip()[len(start) :].split())
    return found


def test_copies_and_their_costs_are_as_the_node_file_says():
    done = tool("check", "--only", "engines.link", "engines.egress", "engines.local", "engines.packet",
                "queues.packets", "memory.peer", "memory.hbm", "clocks", "gate", "visible")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (large, out) = lines(done, "32 MiB", "7 links out")
    assert abs(float(large[1]) - 48) < 1 and abs(float(out[1]) - 7 * 48) < 7


def test_links_twice_as_fast_are_one_file_and_calibrate_finds_them(file, tmp_path):
    twice = file(("[xgmi]\nweight = 15\nmin_bandwidth = 50000\nmax_bandwidth = 50000",
                  "[xgmi]\nweight = 15\nmin_bandwidth = 100000\nmax_bandwidth = 100000"))  # fmt: skip
    only = ("--only", "parts.links", "engines.link", "engines.egress")
    done = tool("check", *only, "--against", "mi300x-8", HSAKIT_NODE_FILE=twice)
    assert done.returncode == 1, done.stdout + done.stderr
    large, out = lines(done, "32 MiB", "7 links out")
    assert large[3] == out[3] == "differs" and abs(float(large[1]) - 96) < 2 and abs(float(out[1]) - 7 * 96) < 30
    mine = str(tmp_path / "mine.toml")
    done = tool("calibrate", *only, "--against", "mi300x-8", "--out", mine, HSAKIT_NODE_FILE=twice)
    assert done.returncode == 0, done.stdout + done.stderr
    spec = load(mine)
    assert spec.xgmi["max_bandwidth"] == 100_000
    assert abs(spec.model["calibrated"].link_efficiency - 0.96) < 0.01
    done = tool("check", *only, HSAKIT_NODE_FILE=mine)  # the node is now what was measured
    assert done.returncode == 0, done.stdout + done.stderr


def test_sixteen_engines_for_links(file):
    more = file(("sdma_xgmi_engines = 14", "sdma_xgmi_engines = 16"))
    done = tool("check", "--only", "engines.accept", "engines.rate", HSAKIT_NODE_FILE=more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines(done, "take it, and every byte comes", "slowest of 16")[0][:3] == ["2-17", "2-17", "ok"]


def test_four_gpus(file, tmp_path):
    table = TEXT[TEXT.index("[recommended_engines]") :]
    four = file(("gpus = 8", "gpus = 4"), (table, ""))
    done = tool("check", "--only", "parts", "engines.accept", "engines.egress", "clocks.domain", HSAKIT_NODE_FILE=four)
    assert done.returncode == 0, done.stdout + done.stderr
    mine = str(tmp_path / "mine.toml")
    made = tool("calibrate", "--only", "parts", "--against", "mi300x-8", "--out", mine, HSAKIT_NODE_FILE=four)
    assert made.returncode == 0 and (load(mine).gpus, load(mine).recommended_engines) == (4, ()), made.stderr
    (out,) = lines(done, "3 links out")
    assert abs(float(out[1]) - 3 * 48) < 5 and out[3] == "ok"
