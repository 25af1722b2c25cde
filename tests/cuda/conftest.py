"""``cuda_node``: the node of NVIDIA's GPUs where this run has one, else one on a stand-in for its driver's library.

On the stand-in kernels' files hold no code; their names of arguments are as nvcc would leave them.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from hsakit import compiler
from hsakit.cuda import CudaNode, driver
from hsakit.ffi import loader, node_choice

ROOT = Path(__file__).parents[2]
NAMES = {
    "latch": {
        "latch": [["flag", True], ["released", False], ["limit", False], ["report", True]],
        "conduct": [["flag", True], ["patience", False], ["table", True], ["members", False], ["report", True]],
        "rally": [
            ["mine", True],
            ["theirs", True],
            ["serves", False],
            ["rounds", False],
            ["limit", False],
            ["report", True],
        ],
        "stamp": [["tick", True]],
        "empty": [],
    },
    "wait": {"wait_flags": [["flags", True], ["count", False]]},
    "census": {"census": [["places", True], ["naps", False]]},
    "copy": {"copy": [["dst", True], ["src", True], ["nbytes", False]]},
    "wrong": {"copy": [["dst", True], ["src", True]]},
}


@pytest.fixture(scope="session")
def stub(tmp_path_factory) -> Path:
    """The stand-in, built."""
    folder = tmp_path_factory.mktemp("stub")
    for name in ("cc", "gcc", "clang", str(ROOT / "build/rocm/cc")):
        found = shutil.which(name)
        if found:
            made = folder / "libcuda.so.1"
            source = Path(__file__).with_name("stub.c")
            subprocess.run([found, "-shared", "-fPIC", "-O1", "-o", str(made), str(source)], check=True, timeout=60)
            for family, names in NAMES.items():
                (folder / f"{family}.cubin").write_bytes(b"nothing")
                (folder / f"{family}.json").write_text(json.dumps(names))
            return made
    pytest.fail("no C compiler: neither cc, gcc nor clang on PATH, nor build/rocm/cc (make rocm)")


@pytest.fixture
def cuda_node(request, monkeypatch):
    if node_choice.vendor() == "nvidia":
        with CudaNode() as node:
            yield node
        return
    made = request.getfixturevalue("stub")
    monkeypatch.setattr(loader, "_cuda", None)
    monkeypatch.setattr(loader, "CUDA_NAMES", (str(made),))
    monkeypatch.setattr(driver, "_lib", None)
    monkeypatch.setattr(compiler, "kernels", lambda family, target: made.with_name(f"{family}.cubin"))
    driver.forget()
    with CudaNode() as node:
        yield node
    driver.forget()
