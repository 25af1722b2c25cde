import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def cc() -> str:
    """A C compiler: the machine's, or the one that ``make rocm`` leaves."""
    for name in ("cc", "gcc", "clang", str(ROOT / "build/rocm/cc")):
        found = shutil.which(name)
        if found:
            return found
    pytest.fail("no C compiler: neither cc, gcc nor clang on PATH, nor build/rocm/cc (make rocm)")
