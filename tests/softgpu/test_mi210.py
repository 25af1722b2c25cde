"""A node of another generation, one MI210 (gfx90a): the kernels are tested on it in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from hsakit.softgpu.node import load
from tests.softgpu.rawhsa import ROOT

TESTS = ("tests/kernels", "tests/test_kernels.py")
NOT_THIS_PART = ("this node has one GPU", "a part of 8 XCCs with 4 shader engines each")  # what may be left out


def test_the_part():
    spec = load("mi210-1")
    assert (spec.gpus, spec.gpu.target, spec.gpu.total_cus, spec.gpu.xccs) == (1, "gfx90a", 104, 1)


@pytest.mark.deadline(600)
def test_kernels_on_gfx90a():
    environment = {**os.environ, "HSAKIT_NODE": "soft", "HSAKIT_NODE_FILE": "mi210-1"}
    command = [sys.executable, "-m", "pytest", "-q", "--node", "soft", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 65, done.stdout[-500:]
    for reason in re.findall(r"SKIPPED .*: (.*)", done.stdout):
        assert reason in NOT_THIS_PART
