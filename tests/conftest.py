"""Options, fixtures and the per-test deadline. Tests that use a node carry the marker ``node``."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DEADLINE = 120.0  # seconds; a test that needs more says @pytest.mark.deadline(seconds)
_real_stderr = None
# A job in a shell's background begins with Ctrl-C ignored, and so would its children: tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption(
        "--node",
        choices=("soft", "hw", "auto"),
        default=os.environ.get("HSAKIT_NODE") or "auto",
        help="the node the tests run on: the software node, hardware, or hardware if there is any (default)",
    )


def pytest_configure(config):
    from hsakit.ffi import node_choice

    global _real_stderr
    config.addinivalue_line("markers", "deadline(seconds): this test may take so long")
    _real_stderr = os.dup(2)  # before pytest captures it
    # Decided before any test loads a library, and passed on to the processes that tests start.
    os.environ["HSAKIT_NODE"] = node_choice.choose(config.getoption("--node"))


def pytest_collection_modifyitems(config, items):
    for item in items:
        if {"runtime", "node"} & set(item.fixturenames):
            item.add_marker("node")
    _deselect(config, items)


_left_out = {}  # what this machine lacks: how many tests need it


def _deselect(config, items):
    """Tests of what `make` does not set up, NVIDIA's GPUs and toolkit, libraries of GEMMs, run where these are."""
    lacking = {marker: why for marker, (there, why) in _MAY_LACK.items() if not there()}
    needless = [item for item in items if any(item.get_closest_marker(marker) for marker in lacking)]
    for item in needless:
        why = next(why for marker, why in lacking.items() if item.get_closest_marker(marker))
        _left_out[why] = _left_out.get(why, 0) + 1
    if needless:
        config.hook.pytest_deselected(items=needless)
        items[:] = [item for item in items if item not in needless]


def _has_toolkit():
    from hsakit.cuda import nvcc
    from hsakit.ffi.errors import CompilerNotFound

    try:
        return nvcc.toolkit() is not None
    except CompilerNotFound:
        return False


def _has_nvidia_header(name):
    from hsakit.cuda import nvcc

    folders = (nvcc.toolkit() / "include", Path("/usr/include")) if _has_toolkit() else ()
    return any((folder / name).is_file() for folder in folders)


def _has_gpu():
    from hsakit.ffi import node_choice

    return node_choice.vendor() == "nvidia"


def _has_header(header):
    """Of a library of ROCm's that is in its own package, beside HIP's header."""
    roots = [Path(root) for root in (os.environ.get("ROCM_PATH"), "/opt/rocm", sys.base_prefix) if root]
    found = next((root for root in roots if (root / "include/hip/hip_runtime_api.h").exists()), None)
    return found is not None and (found / "include" / header).exists()


def _has_library(name):
    from hsakit.ffi import loader, node_choice
    from hsakit.ffi.errors import LibraryNotFound

    if os.environ["HSAKIT_NODE"] != "hw" or node_choice.vendor() != "amd":
        return False  # its kernels are for a GPU
    try:
        return getattr(loader, name)() is not None
    except LibraryNotFound:
        return False


_MAY_LACK = {
    "rocblas_library": (lambda: _has_library("rocblas"), "no rocBLAS with hardware to run it"),
    "hipblaslt_library": (lambda: _has_library("hipblaslt"), "no hipBLASLt with hardware to run it"),
    "rocblas_header": (lambda: _has_header("rocblas/rocblas.h"), "no rocblas/rocblas.h beside HIP's headers"),
    "hipblaslt_header": (lambda: _has_header("hipblaslt/hipblaslt.h"), "no hipblaslt/hipblaslt.h beside HIP's headers"),
    "cuda_toolkit": (_has_toolkit, "no CUDA toolkit (nvcc, cuda.h)"),
    "nccl_header": (lambda: _has_nvidia_header("nccl.h"), "no nccl.h"),
    "cublaslt_header": (lambda: _has_nvidia_header("cublasLt.h"), "no cublasLt.h"),
    "cuda_gpu": (_has_gpu, "this run's node is no NVIDIA GPU"),
}


def pytest_terminal_summary(terminalreporter):
    for why, count in _left_out.items():
        terminalreporter.write_line(f"{count} tests left out: {why}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    marker = item.get_closest_marker("deadline")
    # A test may hang inside a C call, where no exception can reach it: show every thread's stack and end the run.
    faulthandler.dump_traceback_later(marker.args[0] if marker else DEADLINE, exit=True, file=_real_stderr)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def runtime():
    """The process's HSA runtime, closed at the end of the session."""
    from hsakit.hsa import Runtime

    with Runtime() as opened:
        yield opened


@pytest.fixture(scope="session")
def node(request):
    """The node's GPUs, links and engines; with --node hw those of NVIDIA's where there are none of AMD's."""
    from hsakit.ffi import node_choice
    from hsakit.node import open_node

    if node_choice.vendor() == "amd":
        request.getfixturevalue("runtime")
    with open_node() as opened:
        yield opened


@pytest.fixture
def counted_packets(node):
    """For what only a node that counts packets shows: the software node does, AMD's driver does not."""
    from hsakit import counters

    if counters.snapshot() is None:
        assert os.environ["HSAKIT_NODE"] == "hw", "the software node counts no packets"
        pytest.skip("this node's driver does not count packets")


@pytest.fixture(scope="session")
def need_gpus():
    """``need_gpus(gpus, n)`` leaves out what needs more GPUs than there are. The software node has its eight."""

    def need(gpus, n):
        if len(gpus) < n:
            smaller = os.environ["HSAKIT_NODE"] == "hw" or "HSAKIT_NODE_FILE" in os.environ
            assert smaller, f"the software node shows {len(gpus)} of its GPUs"
            pytest.skip("this node has one GPU" if len(gpus) == 1 else f"this node has {len(gpus)} GPUs")

    return need


@pytest.fixture
def follows_protocol():
    """``follows_protocol(node)``: a platform and what it makes are what ``hsakit.platform`` describes."""
    from hsakit import platform

    def check(node):
        gpu = node.gpus[0]
        engine = gpu.engines_to(node.gpus[-1])[0]
        with gpu.create_queue(64) as queue, node.create_signal() as signal, gpu.allocate(64) as buffer:
            with node.allocate(64) as host:
                for thing, kind in (
                    (node, platform.Platform),
                    (gpu, platform.Gpu),
                    (queue, platform.Queue),
                    (engine, platform.CopyEngine),
                    (signal, platform.Signal),
                    (buffer, platform.Buffer),
                    (buffer[1:2], platform.Span),
                    (engine.prepare(buffer, host), platform.Work),
                    (queue.prepare(completion=signal), platform.Work),
                ):
                    assert isinstance(thing, kind)

    return check


class Blas:
    """A stand-in for a library of GEMMs, loaded in its place. ``name``: whose; ``tell``: functions of its own."""

    def __init__(self, name, tell):
        self.name = name
        self.tell = tell


@pytest.fixture(scope="session")
def _blas(tmp_path_factory):
    """The stand-in, built for both libraries."""
    folder = tmp_path_factory.mktemp("blas")
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang", str(ROOT / "build/rocm/cc")))), None)
    if found is None:
        pytest.fail("no C compiler: neither cc, gcc nor clang on PATH, nor build/rocm/cc (make rocm)")
    made = {name: folder / f"{name}.so" for name in ("rocblas", "hipblaslt")}
    for target in made.values():
        source = Path(__file__).with_name("standin_blas.c")
        subprocess.run([found, "-shared", "-fPIC", "-w", "-O1", "-o", str(target), str(source)], check=True, timeout=60)
    return made


@pytest.fixture(params=["rocblas", "hipblaslt"])
def blas(request, monkeypatch, node, _blas):
    """Each of AMD's libraries of GEMMs by a stand-in, which launches our own kernels through HIP."""
    from hsakit import compiler
    from hsakit.ffi import loader

    library = str(_blas[request.param])
    tell = ctypes.CDLL(library)
    hip, target = str(loader.hip().path), node.gpus[0].device.arch
    files = [str(compiler.kernels(family, target)).encode() for family in ("gemm", "latch")]
    assert tell.standin_setup(hip.encode(), *files)
    monkeypatch.setattr(loader, f"{request.param.upper()}_NAMES", (library,))
    getattr(loader, request.param).cache_clear()
    yield Blas(request.param, tell)
    getattr(loader, request.param).cache_clear()


@pytest.fixture
def script():
    """``script(text)`` runs Python text in a process of its own, on the node of this run."""

    def run(text, timeout=60, **environment):
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(text)],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )

    return run
