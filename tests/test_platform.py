"""The node is what collectives and C3 need of a machine."""

import numpy as np
import pytest

from hsakit.ffi.errors import InvalidArgument
from hsakit.pattern import Pattern

PATTERN = Pattern(9, 2)


def test_a_node_and_its_objects_are_those_of_the_protocol(node, follows_protocol):
    follows_protocol(node)


def test_engines_towards_peers_are_those_of_the_links(node):
    gpu, last = node.gpus[0], node.gpus[-1]
    there = gpu.engines_to(last)
    assert there and all(engine.agent == gpu.agent for engine in there)
    kinds = {engine.kind for engine in gpu.engines}
    assert {engine.kind for engine in there} == ({"xgmi"} if "xgmi" in kinds else kinds)
    if last != gpu:
        mask = gpu.link_to(last).recommended_engines
        assert [engine.mask for engine in gpu.recommended_to(last)] == [e.mask for e in there if e.mask & mask]
    assert gpu.recommended_to(gpu) == ()


@pytest.mark.parametrize("kind", ["coarse", "fine"])
def test_memory_of_a_gpu_is_for_all_of_them(node, kind):
    gpu = node.gpus[-1]
    with gpu.allocate(300_001, kind) as buffer:
        assert {each.agent for each in node.gpus} <= buffer.grants and buffer.agent == gpu.agent
        gpu.put(buffer, PATTERN.fill)
        assert (gpu.get(buffer) == PATTERN.bytes(0, 300_001)).all()
        gpu.put(buffer[5:7], lambda view: np.copyto(view, np.array([1, 2], np.uint8)))
        assert gpu.get(buffer[4:8]).tolist()[1:3] == [1, 2]


def test_prepared_work_waits_runs_and_counts_down(node):
    gpu = node.gpus[0]
    befores = [node.create_signal(1) for _ in range(7)]
    done = node.create_signal(0)
    with gpu.create_queue(64) as queue, node.allocate(8) as tick:
        work = queue.prepare(gpu.kernels.stamp(tick), after=befores, completion=done)
        assert [(place, cost) for place, cost in work.costs] == [(queue, 3)]  # 5 signals a barrier, and the launch
        for _ in range(3):
            for each in befores:
                each.store(1)
            done.store(1)
            tick.view()[:] = 0
            work.submit()
            for each in befores[:6]:
                each.store(0)
            assert done.value == 1 and not tick.view().any()
            befores[6].store(0)
            done.wait(deadline=30)
            start, end = done.times
            at = gpu.time_of_tick(int(tick.view().view(np.uint64)[0]))
            slack = 2e9 / gpu.tick_frequency  # times are rounded to ticks
            assert start - slack <= at <= end + slack


def test_what_exceeds_a_ring_is_refused(node):
    gpu = node.gpus[0]
    gate = node.create_signal(1)
    with gpu.create_queue(64) as queue:
        queue.check_room([60, 4])
        with pytest.raises(InvalidArgument, match="65 packets do not fit queue"):
            queue.check_room([60, 5])
        queue.prepare(after=[gate]).submit()
        with pytest.raises(InvalidArgument, match="of 64 places 63 are free"):
            queue.check_room([64])
        gate.store(0)
        queue.drain()
        queue.check_room([64])
    engine = gpu.engines[0]
    engine.check_room([1000] * 100)
    with pytest.raises(InvalidArgument, match="do not fit the ring of engine"):
        engine.check_room([1000] * 1100)


@pytest.mark.parametrize("variable, value", [("HSA_ENABLE_SDMA", "0"), ("HSA_ENABLE_PEER_SDMA", "0")])
def test_the_environment_may_forbid_engines(node, monkeypatch, variable, value):
    node.check_engines()
    monkeypatch.setitem(node.runtime.environment, variable, value)
    with pytest.raises(InvalidArgument, match=f"{variable}=0 runs .* as kernels"):
        node.check_engines()


def test_packets_are_counted(node):
    tally = node.tally()
    with node.gpus[0].create_queue(64) as queue:
        with tally:
            queue.drain()
    totals = tally.totals()
    assert totals is None or totals["aql_barrier_and"] == 1 and totals["aql_dispatch"] == 0
