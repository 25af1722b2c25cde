"""The cu-mask sweep on a node: rows are right, and say what is wrong."""

import re

import pytest

from hsakit import compiler, counters
from hsakit.cumask import CuMask
from hsakit.ffi.errors import InvalidArgument
from hsakit.hsa import Queue
from hsakit.kernels import Kernels
from hsakit.sweep import stats
from hsakit.sweep.cumask import CuMaskSweep, describe
from hsakit.sweep.loads import Argument, Copy, Gemm, Job, Program
from hsakit.sweep.masked import OPEN
from hsakit.sweep.masks import ALL, Masks
from hsakit.sweep.sweep import Settings

COPY, GEMM = Copy(5001, 3), Gemm("f32", 65, 66, 5)


@pytest.fixture
def sweep(node):
    with CuMaskSweep(node, Settings(repeats=2, warmup=1, deadline=30)) as made:
        yield made


@pytest.fixture
def latch(node):
    """A kernel that looks at a flag that does not come, and gives up and reports."""
    file = compiler.kernels("latch", node.gpus[0].agent.target.partition(":")[0])

    values = (Argument("value", value=1), Argument("value", value=3))
    return Program(file, "latch", (1,), (64,), (Argument("in", nbytes=64), *values, Argument("out", nbytes=32)))


@pytest.mark.parametrize("load, reference", [(COPY, "pattern"), (GEMM, "float64")], ids=["copy", "gemm"])
@pytest.mark.parametrize("api", OPEN)
def test_rows_are_complete(sweep, node, api, load, reference):
    agent = node.gpus[0].agent
    points = sweep.plan([0], [api], [load], Masks(per_xcc=(2,)))
    assert [point.name for point in points] == [ALL, "2/xcc"]
    for point in points:
        row = sweep.run(point)
        assert row["error"] is None and row["verified"] == "full" and row["launch"] == "host"
        assert len(row["samples"]) == 2 and all(start == 0 < end for ((start, end),) in row["samples"])
        p = row["parameters"]
        cus = agent.cu_count if point.name == ALL else 2 * agent.xcc_count
        assert (p["gpu"], p["api"], p["mask"], p["reference"]) == (0, api, point.name, reference)
        assert p["cus"] == p["cus_asked"] == p["census"]["cus"] == cus == sum(p["cus_by_xcc"])
        assert p["read_back"] == p["bits"] == f"{point.mask.value:#x}"
        assert sum(int(word, 16).bit_count() for xcc in p["census"]["places"] for word in xcc) == cus
        assert p["timer"] == ("events" if api == "hip" else "completion signal") and p["notes"] == []
        workgroups = {"copy": 3, "gemm": 4}[load.label.split()[0]]
        assert (p["workgroups"], p["waves"], p["waves_a_cu"]) == (workgroups, 4 * workgroups, 4 * workgroups / cus)
        assert 4 <= p["waves_a_cu_holds"] <= 32
        assert row["packets"]["planned"] == {"aql_dispatch": 4}  # the census, a warm-up, two repeats
        if counters.snapshot() is not None:
            assert row["packets"]["counted"]["aql_dispatch"] == 4
        assert stats.median_ns(row) > 0
        assert ("hip" in row["versions"]) == (api == "hip")
        assert row["key"] == f"cu-mask gpu0 {api} {load} mask {point.name} r2 w1"


def test_a_plan_goes_over_gpus_loads_and_apis(sweep, node):
    gpus = [0, len(node.gpus) - 1]
    points = sweep.plan(gpus, ["hip", "hsa"], [COPY, GEMM], Masks(per_xcc=(1,)))
    assert len(points) == 16 and len(set(points)) == (16 if gpus[1] else 8)
    assert [point.name for point in points] == [ALL, "1/xcc"] * 8
    assert [point.api for point in points[:4]] == ["hip"] * 2 + ["hsa"] * 2
    assert describe(points[:8]) == "8 points: 2 masks, 2 kernels, through hip and hsa, on 1 GPU"


@pytest.mark.parametrize(
    "gpus, apis, load, masks, valid",
    [
        ([99], ["hsa"], COPY, Masks(), "this node has 0 to"),
        ([0], ["opencl"], COPY, Masks(), "hsa, hip"),
        ([0], ["hsa"], COPY, Masks(counts=(9999,)), "a mask of this part has"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(sweep, gpus, apis, load, masks, valid):
    with pytest.raises(InvalidArgument, match=valid):
        sweep.plan(gpus, apis, [load], masks)


def test_hip_that_does_not_see_the_gpu(sweep, node, monkeypatch):
    monkeypatch.setitem(node.__dict__, "hip_devices", {})
    with pytest.raises(InvalidArgument, match="HIP does not see .*go through hsa only"):
        sweep.plan([0], ["hip"], [COPY], Masks())


@pytest.mark.parametrize("api", OPEN)
def test_wrong_bytes_are_in_the_row_and_the_next_point_is_right(sweep, monkeypatch, api):
    (point,) = sweep.plan([0], [api], [COPY], Masks())
    copy = Kernels.copy
    with monkeypatch.context() as patch:
        patch.setattr(Kernels, "copy", lambda self, dst, src, **k: copy(self, dst, src, src.nbytes - 1, **k))
        row = sweep.run(point)
    assert row["verified"] == "none" and row["samples"] == []
    assert f"gpu0 {api} copy 5001B/3 mask all, warm-up 1 of 1" in row["error"]
    assert "1 of 5001 bytes wrong, the first at offset 5000" in row["error"] and "poison: never written" in row["error"]
    assert sweep.run(point)["error"] is None


def test_a_queue_on_other_cus_than_its_row_says_is_an_error(sweep, node, monkeypatch):
    _, point = sweep.plan([0], ["hsa"], [COPY], Masks(per_xcc=(1,)))
    every = CuMask.all(point.mask.layout)
    create = type(node.gpus[0].agent).create_queue
    with monkeypatch.context() as patch:
        patch.setattr(type(node.gpus[0].agent), "create_queue", lambda self, n, cu_mask: create(self, n, cu_mask=None))
        row = sweep.run(point)
    assert row["verified"] == "none" and row["samples"] == [] and row["parameters"]["census"] is None
    assert f"found {len(every) - len(point.mask)} CUs outside of" in row["error"]
    monkeypatch.setattr(Queue, "cu_mask", property(lambda self: tuple(every)))
    row = sweep.run(point)
    assert f"reports the mask {every.value:#x} after {point.mask.value:#x} was set" in row["error"]


def test_a_dispatch_too_many_is_an_error(sweep, node, monkeypatch, counted_packets):
    (point,) = sweep.plan([0], ["hsa"], [COPY], Masks())
    run = OPEN["hsa"].run
    monkeypatch.setattr(OPEN["hsa"], "run", lambda *each: run(*each) and run(*each))
    row = sweep.run(point)
    assert "8 dispatches were counted, 4 planned" in row["error"] and row["verified"] == "none"


def test_a_program_is_compared_with_its_unmasked_run(sweep, latch):
    """Its report has ticks, which are others every time."""
    points = sweep.plan([0], ["hsa"], [latch], Masks())
    row = sweep.run(points[0])
    assert row["parameters"]["reference"] == "unmasked run" and row["parameters"]["kernel"] == "latch"
    # a time stamp: eight bytes from 8 on
    assert re.search(r"bytes of argument 3 wrong, the first at (8|9|1\d)\b", row["error"])


def test_a_program_that_nothing_is_known_of_is_not_verified(sweep, node):
    file = compiler.kernels("latch", node.gpus[0].agent.target.partition(":")[0])
    (point,) = sweep.plan([0], ["hip"], [Program(file, "empty", (5,), (64,))], Masks())
    row = sweep.run(point)
    assert row["error"] is None and row["verified"] == "none" and len(row["samples"]) == 2
    assert row["parameters"]["waves"] == 5


def test_the_environment_is_in_the_rows(sweep, node, monkeypatch):
    """What is asked for is what the variable leaves; the notes say what it took."""
    half = sum(1 << bit for bit in range(node.gpus[0].agent.cu_count // 16 * 8))
    monkeypatch.setenv("ROC_GLOBAL_CU_MASK", f"{half:#x}")
    every, eight = sweep.plan([0], ["hip"], [COPY], Masks(counts=(8,)))
    assert every.effective.mask.value == half and eight.effective.notes == ()
    row = sweep.run(every)
    assert row["error"] is None
    p = row["parameters"]
    assert p["cus_asked"] == node.gpus[0].agent.cu_count and p["cus"] == p["census"]["cus"] == half.bit_count()
    assert p["read_back"] == f"{half:#x}"
    assert "ROC_GLOBAL_CU_MASK takes away" in p["notes"][0] and "are left were asked for" in p["notes"][1]
    assert row["environment"]["ROC_GLOBAL_CU_MASK"] == f"{half:#x}"


class Held:
    """A load that waits for a flag."""

    label = "latch"

    def __init__(self, flag, report):
        self.flag, self.report = flag, report

    def job(self, memory):
        return Job(memory, (), "nothing", None)

    def launch(self, kernels, job):
        return kernels.latch(self.flag, self.report)


@pytest.mark.parametrize("api", OPEN)
def test_a_kernel_that_does_not_end_costs_one_deadline(node, api):
    gpu = len(node.gpus) - 1
    memory = node.cpus[0].pool("fine").allocate(64, access=node.gpus[gpu].agent)
    memory.view()[:] = 0
    try:
        with CuMaskSweep(node, Settings(repeats=1, warmup=0, deadline=0.5)) as sweep:
            (held,) = sweep.plan([gpu], [api], [Held(memory[:8], memory[8:])], Masks())
            (point,) = sweep.plan([gpu], [api], [COPY], Masks())
            assert sweep.run(point)["error"] is None
            row = sweep.run(held)
            assert "within 0.5 s" in row["error"] and row["verified"] == "none" and row["parameters"]["census"]
            assert f"not run: GPU {gpu} missed a deadline before" in sweep.run(point)["error"]
            assert sweep.broken is None
            if gpu:
                assert sweep.run(sweep.plan([0], [api], [COPY], Masks())[0])["error"] is None
    finally:
        memory.view("<u8")[0] = 1


def test_after_what_ends_everything_nothing_more_is_measured(sweep, monkeypatch, hang):
    monkeypatch.setattr("hsakit.sweep.cumask._Trial.all", hang)
    row = sweep.run(sweep.plan([0], ["hsa"], [COPY], Masks())[0])
    assert "GPU hang" in row["error"] and "GPU hang" in sweep.broken
