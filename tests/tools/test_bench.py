import importlib
import sys
from pathlib import Path

import pytest

from hsakit import counters

TOOLS = str(Path(__file__).parents[2] / "tools")


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, TOOLS)
    module = importlib.import_module("bench")
    sys.path.remove(TOOLS)
    module.SAMPLES, module.CALLS = 1, 10
    return module


@pytest.fixture(scope="module")
def c_loops(bench, tmp_path_factory):
    return bench.compile_loops(str(tmp_path_factory.mktemp("bench")))


def crossed(before, name: str, expected: int) -> None:
    """The node's own count of packets, where it keeps one."""
    if before is not None:
        assert (counters.snapshot() - before).total(name) == expected


def test_python_and_c_submit_the_same_packets(bench, c_loops, runtime):
    before = counters.snapshot()
    rows = bench.packet_rows(*c_loops, runtime, runtime.gpus[0])
    assert all(min(row.c) > 0 and min(row.python) > 0 for row in rows)
    samples = 2 * (bench.SAMPLES + 1)  # Python's and C's, and one of each to warm up
    # each sample warms up, and has a gate and an end
    packets = 2 * (bench.WARM + bench.SINGLES + 2) + (bench.BATCH * (1 + bench.BATCHES) + 2)
    crossed(before, "aql_barrier_and", samples * packets)


def test_python_and_c_dispatch_the_same_kernel(bench, c_loops, runtime):
    before = counters.snapshot()
    rows = bench.dispatch_rows(*c_loops, runtime, runtime.gpus[0])
    assert all(min(row.c) > 0 and min(row.python) > 0 for row in rows)
    assert [row.what for row in rows] == [
        "dispatch, Launch.launch",
        "dispatch, scripted",
        f"dispatch, in batches of {bench.BATCH}",
    ]
    if before is not None:
        dispatches = 2 * (bench.WARM + bench.DISPATCHES) + bench.BATCH * (1 + bench.GROUPS)
        loading = (counters.snapshot() - before).total("aql_dispatch") - 2 * (bench.SAMPLES + 1) * dispatches
        assert 0 <= loading < 10  # the runtime's own, which put the code object into memory


def test_launches_through_hip(bench, c_loops, runtime):
    rows = bench.launch_rows(*c_loops)
    names = ["Launch.launch", "1 argument set", "prepared each time", "scripted", "ctypes"]
    if Path(sys.prefix, "hip-python").exists():  # AMD's own, which make test puts there
        names.append("hip-python")
    assert [row.what.removeprefix("launch, ") for row in rows][: len(names)] == names
    assert all(len(row.python) == len(row.c) == bench.SAMPLES and min(row.c + row.python) > 0 for row in rows)


def test_python_and_c_submit_the_same_copies(bench, c_loops, runtime):
    before = counters.snapshot()
    rows = bench.copy_rows(*c_loops, runtime)
    assert all(min(row.c) > 0 and min(row.python) > 0 for row in rows)
    crossed(before, "sdma_copy", len(rows) * 2 * (bench.SAMPLES + 1) * bench.COPIES)


def test_python_and_c_submit_the_same_collective(bench, c_loops, runtime):
    before = counters.snapshot()
    (row,) = bench.collective_rows(*c_loops)
    assert min(row.c) > 0 and min(row.python) > 0
    copies = len(runtime.gpus) ** 2
    crossed(before, "sdma_copy", copies * (1 + 2 * 2 * (bench.SAMPLES + 1)))  # one to begin with; a warm one each


def test_calls_of_0_3_and_11_arguments(bench, c_loops, runtime):
    rows = bench.call_rows(c_loops[1], runtime.gpus[0])
    assert [row.what for row in rows] == [f"call, {n} arguments" for n in (0, 3, 11)]
    assert all(min(row.c) > 0 and min(row.python) > 0 for row in rows)


def test_runs_of_a_gemm_beside_a_collective(bench, runtime, need_gpus):
    need_gpus(runtime.gpus, 2)
    rows = bench.c3_rows("q1-ag", runs=1)
    assert [row[0].rpartition(" ")[2] for row in rows] == ["engines", "kernels"]
    assert all(min(row[1:]) > 0 for row in rows)
