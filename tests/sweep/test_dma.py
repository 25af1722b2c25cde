"""The dma sweep on a node: rows are right when copies are, and say what is wrong when they are not."""

import pytest

from hsakit import counters
from hsakit.ffi.errors import InvalidArgument
from hsakit.hsa import CopyEngine
from hsakit.sweep import dma, stats
from hsakit.sweep.dma import DmaSweep, Settings, machine_of, packet_bytes
from hsakit.sweep.plan import HOST, Point, Selection, Transfer, plan

PEER, BACK = Transfer(0, 1, 2), Transfer(1, 0, 3)


@pytest.fixture
def sweep(node):
    with DmaSweep(node, Settings(repeats=2, warmup=1, deadline=20)) as made:
        yield made


@pytest.fixture
def altered(monkeypatch):
    """Copies between GPUs that do something else: a function (dst, src) -> (dst, src) for what the engine is given."""
    prepare = CopyEngine.prepare

    def alter(change):
        def changed(self, dst, src, *arguments, **named):
            if dst.agent.kind == src.agent.kind:
                dst, src = change(dst, src)
            return prepare(self, dst, src, *arguments, **named)

        monkeypatch.setattr(CopyEngine, "prepare", changed)

    return alter


def moved(span, by, nbytes=None):
    return span.buffer[span.offset + by : span.offset + by + (nbytes or span.nbytes)]


@pytest.mark.parametrize(
    "transfer",
    [
        PEER,
        BACK,
        Transfer(HOST, 1, 0),
        Transfer(1, HOST, 1),
        Transfer(HOST, 0, 5),
        Transfer(0, 0, 0),
        Transfer(1, 1, 9),
    ],
)
@pytest.mark.parametrize("nbytes", [1, 64, 4095, 300_001])
def test_a_copy_is_verified_and_its_row_complete(sweep, transfer, nbytes):
    row = sweep.run(Point("one-way", (transfer,), nbytes))
    assert row["error"] is None and row["verified"] == "full" and row["launch"] == "host"
    assert len(row["samples"]) == 2
    assert all(start == 0 and end >= 0 for sample in row["samples"] for start, end in sample)
    (found,) = row["parameters"]["transfers"]
    assert (found["src"], found["dst"], found["engine"], found["owner"]) == (
        transfer.src, transfer.dst, transfer.engine, transfer.owner,
    )  # fmt: skip
    assert row["packets"]["planned"]["sdma_copy"] == 3
    if counters.snapshot() is None:
        assert row["packets"]["counted"] is None
    else:
        assert row["packets"]["counted"]["sdma_copy"] == 3 and row["packets"]["counted"]["sdma_timestamp"] == 6


def test_several_copies_wait_for_the_gate_and_are_all_verified(sweep):
    transfers = (PEER, BACK, Transfer(0, 2, 4), Transfer(HOST, 1, 0), Transfer(1, HOST, 1), Transfer(2, 1, 5))
    row = sweep.run(Point("together", transfers, 65_537))
    assert row["error"] is None and row["launch"] == "gated"
    assert all(len(sample) == 6 for sample in row["samples"])
    assert min(start for sample in row["samples"] for start, _ in sample) == 0
    assert row["packets"]["planned"]["sdma_copy"] == 18
    if row["packets"]["counted"] is not None:  # each looks at both halves of the gate's value before it begins
        assert row["packets"]["counted"]["sdma_poll"] == 2 * 18
    assert stats.gigabytes_per_second(row) > 0


def test_large_copies_are_staged_and_verified(sweep):
    row = sweep.run(Point("one-way", (PEER,), (16 << 20) + 1))
    assert row["error"] is None


def test_waking_learns_which_engine_a_number_is(sweep, node):
    """Whatever order other tests used them in: two numbers are two engines, and packets keep to them."""
    points = [
        Point("one-way", (Transfer(0, 1, engine.index),), 64)
        for engine in node.gpus[0].engines
        if engine.kind == "xgmi"
    ]
    assert sweep.wake(points) == []
    rows = [sweep.run(point) for point in reversed(points)]
    assert not any(row["error"] for row in rows)
    given = [row["parameters"]["transfers"][0]["driver_engine"] for row in rows]
    if counters.snapshot() is None:
        assert set(given) == {None}
    else:
        assert len(set(given)) == len(points)
        assert [row["packets"]["counted"]["engines"] for row in rows] == [{f"0/{engine}": 3} for engine in given]


def test_packets_on_another_engine_than_before_are_an_error(sweep, monkeypatch):
    assert sweep.wake([Point("one-way", (PEER,), 64)]) == []
    engine = CopyEngine.prepare
    monkeypatch.setattr(CopyEngine, "prepare", lambda self, *a, **k: engine(self.agent.engine(4), *a, **k))
    row = sweep.run(Point("one-way", (PEER,), 64))
    if counters.snapshot() is None:
        assert row["packets"]["counted"] is None
    else:
        assert "engines counted" in row["error"] and row["verified"] == "none"


def test_a_missing_copy_is_seen_even_of_one_byte(sweep, altered, node):
    elsewhere = node.gpus[1].agent.pool("coarse").allocate(4096, access=[node.gpus[0].agent])
    altered(lambda dst, src: (elsewhere[: dst.nbytes], src))
    for nbytes in (1, 64, 1000):
        row = sweep.run(Point("one-way", (PEER,), nbytes))
        assert row["verified"] == "none" and row["samples"] == []
        assert f"{nbytes} of {nbytes} bytes wrong, the first at offset 0" in row["error"]
        assert "poison: never written" in row["error"]
        assert "rank 0 (GPU 0) to GPU 1 on engine 2" in row["error"] and "warm-up 1 of 1" in row["error"]


def test_a_lost_tail_is_seen(sweep, altered):
    altered(lambda dst, src: (moved(dst, 0, dst.nbytes - 1), moved(src, 0, src.nbytes - 1)))
    error = sweep.run(Point("one-way", (PEER,), 1000))["error"]
    assert "1 of 1000 bytes wrong, the first at offset 999" in error and "poison" in error


def test_bytes_of_another_offset_are_named(sweep, altered):
    altered(lambda dst, src: (dst, moved(src, 24)))
    error = sweep.run(Point("one-way", (PEER,), 4096))["error"]
    assert "expected" in error and "(rank 0's pattern at 4096)" in error
    assert "which is rank 0's pattern at 4120" in error


def test_swapped_destinations_are_named(sweep, altered):
    """Two transfers from one GPU carry different bytes, so that a swap shows and says which came."""
    spans = []

    def swap(dst, src):
        spans.append(src)
        return dst, moved(src, 4096 if len(spans) == 1 else 0)

    altered(swap)
    error = sweep.run(Point("engines", (PEER, Transfer(0, 2, 3)), 4096))["error"]
    assert "which is rank 0's pattern at 8192" in error


@pytest.mark.parametrize("before, behind, said", [(0, 1, "1 bytes behind"), (2, 0, "2 bytes before")])
def test_bytes_written_outside_the_destination_are_seen(sweep, altered, before, behind, said):
    altered(lambda dst, src: tuple(moved(span, -before, before + span.nbytes + behind) for span in (dst, src)))
    error = sweep.run(Point("one-way", (PEER,), 1000))["error"]
    assert said in error and "overwritten" in error


def test_a_failure_leaves_the_next_point_alone(sweep, altered, monkeypatch):
    altered(lambda dst, src: (dst, moved(src, 8)))
    assert sweep.run(Point("one-way", (PEER,), 100))["error"]
    monkeypatch.undo()
    assert sweep.run(Point("one-way", (PEER,), 100))["error"] is None


def test_a_stuck_engine_costs_one_deadline_and_is_named(node):
    """A copy that waits for ever in front of ours: our wait ends, and later points do not try that engine again."""
    with DmaSweep(node, Settings(repeats=1, warmup=0, deadline=0.3)) as sweep:
        gpu, peer = node.gpus[0].agent, node.gpus[1].agent
        here = gpu.pool("coarse").allocate(4096, access=[peer])
        there = peer.pool("coarse").allocate(4096, access=[gpu])
        never = node.runtime.create_signal(1)
        blocked = gpu.engine(6).copy(there, here, after=[never])
        try:
            row = sweep.run(Point("engines", (PEER, Transfer(0, 1, 6)), 64))
            assert "within" in row["error"] and "engine 6 of GPU 0" in row["error"] and row["verified"] == "none"
            row = sweep.run(Point("one-way", (Transfer(0, 2, 6),), 64))
            assert "not run: engine 6 of GPU 0 missed a deadline" in row["error"]
            assert row["packets"]["planned"]["sdma_copy"] == 0
            assert sweep.run(Point("one-way", (PEER,), 64))["error"] is None
        finally:
            never.store(0)
            blocked.wait(deadline=20)


def test_packets_that_differ_from_the_plan_are_an_error(sweep, monkeypatch):
    if counters.snapshot() is None:
        assert sweep.run(Point("one-way", (PEER,), 5000))["packets"]["counted"] is None
        return
    monkeypatch.setattr(dma, "_PACKET_BYTES_1_13", 4096)
    monkeypatch.setattr(dma, "_PACKET_BYTES", 4096)
    with DmaSweep(sweep._node, Settings(repeats=1)) as other:
        row = other.run(Point("one-way", (PEER,), 5000))
    assert row["packets"]["planned"]["sdma_copy"] == 4
    assert "sdma_copy counted 2, planned 4" in row["error"] and row["verified"] == "none"


@pytest.mark.parametrize(
    "version, nbytes",
    [("1.13 (1.13.0-local-build-unknown)", 0x3FFFFFFF), ("1.14 (1.14.0)", 0x3FFFFF), ("2.0 (x)", 0x3FFFFF)],
)
def test_bytes_of_a_packet_depend_on_the_runtime(version, nbytes, monkeypatch):
    monkeypatch.delenv("HSA_ENABLE_SDMA_COPY_SIZE_OVERRIDE", raising=False)
    assert packet_bytes(version) == nbytes
    monkeypatch.setenv("HSA_ENABLE_SDMA_COPY_SIZE_OVERRIDE", "0")
    assert packet_bytes(version) == 0x3FFFE0


def test_memory_stays_within_the_budget(node):
    budget = 40 << 20
    with DmaSweep(node, Settings(repeats=1, warmup=0, memory=budget)) as sweep:
        for src in range(len(node.gpus)):
            for nbytes in (12 << 20, 1):
                point = Point("one-way", (Transfer(src, (src + 1) % len(node.gpus), 3),), nbytes)
                assert sweep.fits(point)
                assert sweep.run(point)["error"] is None
                assert sweep._buffers.nbytes <= budget
        assert not sweep.fits(Point("one-way", (PEER,), 16 << 20))


def test_the_plan_of_the_machine(node):
    machine = machine_of(node)
    for gpu in machine.gpus:
        assert set(machine.peer_engines[gpu]) <= set(machine.engines[gpu])
    assert all(engine in machine.engines[src] for (src, _), engine in machine.recommended.items())
    points = plan(machine, Selection(sizes=(64,), modes=("one-way",), pairs=("peer",), quick=True))
    assert {(t.src, t.dst) for point in points for t in point.transfers} == machine.linked


def test_an_engine_that_cannot_is_refused_before_anything_runs(sweep):
    with pytest.raises(InvalidArgument):
        sweep.check([Point("one-way", (Transfer(0, 1, 99),), 64)])


@pytest.mark.parametrize(
    "wrong", [{"repeats": 0}, {"warmup": -1}, {"deadline": 0}, {"deadline": float("nan")}, {"memory": 1000}]
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        Settings(**wrong)


def test_after_what_ends_everything_nothing_more_is_measured(sweep, monkeypatch, hang):
    monkeypatch.setattr("hsakit.sweep.dma.Run.all", hang)
    row = sweep.run(Point("one-way", (PEER,), 64))
    assert "GPU hang" in row["error"] and "GPU hang" in sweep.broken
