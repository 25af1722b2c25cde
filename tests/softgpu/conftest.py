"""Fixtures for the tests of the software node itself; on hardware there is nothing here to test."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def pytest_collection_modifyitems(config, items):
    if os.environ["HSAKIT_NODE"] == "hw":
        mine = [item for item in items if HERE in item.path.parents]
        config.hook.pytest_deselected(items=mine)
        items[:] = [item for item in items if item not in mine]


@pytest.fixture(scope="session")
def raw():
    """The real libraries on the software node, by hand."""
    from tests.softgpu.rawhsa import Raw

    with Raw() as opened:
        yield opened


@pytest.fixture(scope="session")
def bench():
    """A node without libraries and thread."""
    from tests.softgpu.bench import Bench

    return Bench()


@pytest.fixture(scope="session")
def cc() -> str:
    """A C compiler: the machine's, or the one that ``make rocm`` leaves."""
    for name in ("cc", "gcc", "clang", str(ROOT / "build/rocm/cc")):
        found = shutil.which(name)
        if found:
            return found
    pytest.fail("no C compiler: neither cc, gcc nor clang on PATH, nor build/rocm/cc (make rocm)")
