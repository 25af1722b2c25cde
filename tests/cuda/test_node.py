"""The node is a platform: on a GPU of NVIDIA's where there is one, else on a stand-in for its driver."""

import time

import numpy as np
import pytest

from hsakit.collectives import Buffers, Operation, engines
from hsakit.collectives.streamed import StreamedCollective
from hsakit.cuda import partition
from hsakit.ffi.errors import ClosedError, CudaError, DeadlineExceeded, InvalidArgument
from hsakit.gate import Gate
from hsakit.pattern import Pattern

PATTERN = Pattern(9, 2)


def test_a_node_and_its_objects_are_those_of_the_protocol(cuda_node, follows_protocol):
    follows_protocol(cuda_node)
    assert cuda_node.clock == "device" and cuda_node.tally().totals() is None


def test_memory_goes_there_and_back(cuda_node):
    gpu = cuda_node.gpus[-1]
    with gpu.allocate(300_001) as buffer:
        gpu.put(buffer, PATTERN.fill)
        assert (gpu.get(buffer) == PATTERN.bytes(0, 300_001)).all()
        gpu.put(buffer[5:7], lambda view: np.copyto(view, np.array([1, 2], np.uint8)))
        assert gpu.get(buffer[4:8]).tolist()[1:3] == [1, 2]
        assert buffer[7:7].nbytes == 0
        with pytest.raises(InvalidArgument, match="gpu.get and gpu.put"):
            buffer.view()
        with pytest.raises(InvalidArgument, match="some of the bytes 0 to 300001"):
            buffer[5:300_002]
    with pytest.raises(ClosedError):
        buffer.handle()
    with pytest.raises(InvalidArgument, match="coarse or fine"):
        gpu.allocate(8, "warm")
    with pytest.raises(InvalidArgument, match="1 or more"):
        gpu.allocate(0)


@pytest.mark.parametrize("deadline", [float("inf"), float("nan"), -1, None])
def test_no_wait_is_endless(cuda_node, deadline):
    with cuda_node.create_signal(1) as signal, pytest.raises(InvalidArgument, match="every wait has one"):
        signal.wait(deadline=deadline)
    with cuda_node.gpus[0].create_queue(64) as queue, pytest.raises(InvalidArgument, match="every wait has one"):
        queue.drain(deadline)


def test_what_the_driver_refuses_is_an_error_with_its_words(cuda_node):
    with pytest.raises(CudaError, match=r"^cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY \(2\): .*close buffers"):
        cuda_node.gpus[0].allocate(1 << 44)


def test_prepared_work_waits_runs_and_counts_down(cuda_node):
    gpu = cuda_node.gpus[0]
    befores = [cuda_node.create_signal(1) for _ in range(7)]
    done = cuda_node.create_signal(0)
    with gpu.create_queue(64) as queue, cuda_node.allocate(8) as tick:
        work = queue.prepare(gpu.kernels.stamp(tick), after=befores, completion=done)
        for _ in range(3):
            for each in befores:
                each.store(1)
            done.store(1)
            tick.view()[:] = 0
            work.submit()
            for each in befores[:6]:
                each.store(0)
            time.sleep(0.01)
            assert done.value == 1 and not tick.view().any()
            with pytest.raises(InvalidArgument, match="counts 1 works in flight .*has completed . of . works"):
                done.store(1)
            befores[6].store(0)
            done.wait(deadline=10)
            start, end = done.times
            assert start - 20_000 <= gpu.time_of_tick(int(tick.view().view(np.uint64)[0])) <= end + 20_000


def test_a_signal_counts_as_many_works_as_it_was_set_to(cuda_node):
    first, other = cuda_node.gpus[:2]
    counted = cuda_node.create_signal(3)
    gate = cuda_node.create_signal(1)
    queues = [gpu.create_queue(8) for gpu in (first, other, first)]
    for queue in queues[1:]:
        queue.prepare(completion=counted).submit()
    queues[0].prepare(after=[gate], completion=counted).submit()
    behind = cuda_node.create_signal(1)
    queues[1].prepare(after=[counted], completion=behind).submit()
    assert counted.wait("==", 1, deadline=10) == 1 and behind.value == 1
    with pytest.raises(InvalidArgument, match="was set to 3 and cannot complete another"):
        queues[2].prepare(completion=counted).submit()
    with pytest.raises(InvalidArgument, match="or several"):
        _ = counted.times
    gate.store(0)
    behind.wait(deadline=10)
    assert counted.value == 0


def test_a_missed_deadline_says_how_far_it_came(cuda_node):
    gate, first, done = (cuda_node.create_signal(1) for _ in range(3))
    with cuda_node.gpus[0].create_queue(8) as queue:
        queue.prepare(completion=first).submit()
        queue.prepare(after=[gate], completion=done).submit()
        with pytest.raises(DeadlineExceeded, match="stream 0x.* has completed 1 of 2 works"):
            done.wait(deadline=0.2)
        with pytest.raises(DeadlineExceeded, match="is not empty within 0.1 s"):
            queue.drain(0.1)
        queue.check_room([6])
        with pytest.raises(InvalidArgument, match="8 works do not fit GPU 0 .*: of 8 places 7 are free"):
            queue.check_room([8])
        gate.store(0)
        queue.drain(10)
        assert done.value == 0


def test_what_is_not_of_this_node_is_refused(cuda_node):
    first, other = cuda_node.gpus[:2]
    with first.create_queue(8) as queue, first.allocate(64) as buffer:
        with pytest.raises(InvalidArgument, match="5 is no signal of this node"):
            queue.prepare(after=[5])
        with pytest.raises(InvalidArgument, match="is for GPU 1, not for GPU 0"):
            queue.prepare(other.kernels.empty())
        with pytest.raises(InvalidArgument, match="no more than both have"):
            first.engines[0].prepare(buffer[:10], buffer[20:31])
        with pytest.raises(InvalidArgument, match="priority 'urgent'"):
            first.create_queue(8, "urgent")
        closed = cuda_node.create_signal()
        closed.close()
        closed.close()
        with pytest.raises(ClosedError):
            queue.prepare(completion=closed)
    queue.close()
    with pytest.raises(ClosedError):
        queue.prepare().submit()


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("form", engines.FORMS)
def test_engines_gather_every_byte(cuda_node, in_place, form):
    operation = Operation("all-gather", len(cuda_node.gpus), 100_001, in_place=in_place)
    with Buffers(cuda_node, operation) as buffers:
        prepared = engines.prepare(
            cuda_node, operation, buffers.send, buffers.recv, form=form, split=2, split_from=1000
        )
        with prepared as gathered:
            for _ in range(3):
                buffers.run(gathered, 10)


def test_a_gate_lets_go_in_its_order(cuda_node):
    queues = [gpu.create_queue(8) for gpu in cuda_node.gpus[:2]]
    done = [cuda_node.create_signal(1) for _ in queues]
    with Gate(cuda_node, (0, 50_000)) as gate:
        works = [
            queue.prepare(after=[opened], completion=signal)
            for queue, opened, signal in zip(queues, gate.signals, done)
        ]
        gate.hold(works)
        time.sleep(0.01)
        assert [signal.value for signal in done] == [1, 1]
        gate.release()
        for signal in done:
            signal.wait(deadline=10)
        gate.wait()
        released, (first, second) = gate.released, gate.starts
        assert released <= first <= second


def test_memory_in_flight_is_held(cuda_node):
    first, other = cuda_node.gpus[:2]
    source, target = first.allocate(1000), other.allocate(1000)
    first.put(source, PATTERN.fill)
    gate = cuda_node.create_signal(1)
    done = first.engines[0].copy(target[:], source[:], after=[gate])
    source.close()
    del source
    cuda_node.sweep()
    first.allocate(1000).close()
    assert not cuda_node.idle()
    gate.store(0)
    done.wait(deadline=10)
    assert (other.get(target) == PATTERN.bytes(0, 1000)).all()


def test_multiprocessors_are_granted_in_steps(cuda_node):
    gpu = cuda_node.gpus[0]
    count = gpu.cu_count
    with gpu.create_queue(8, "normal", range(16)) as few, gpu.create_queue(8, "high", range(16, count)) as others:
        assert (few.sms, others.sms) == (16, count - 16)
    with gpu.create_queue(8, "normal", range(count)) as every:
        assert every.sms == count
    with pytest.raises(InvalidArgument, match="12 multiprocessors of GPU 0: the driver grants 16 .* in steps of 8"):
        gpu.create_queue(8, "normal", range(12))


@pytest.mark.parametrize(
    "mask, expected",
    [(range(8), (8, False)), (range(8, 132), (8, True)), (range(132), (132, False)), ([1, 0], (2, False))],
)
def test_a_mask_is_one_end_or_the_other(mask, expected):
    assert partition.cut(mask, 132) == expected


@pytest.mark.parametrize("mask", [[3], range(8, 131), [0, 2], []])
def test_other_masks_are_refused(mask):
    with pytest.raises(InvalidArgument, match=r"range\(n\), or of the others, range\(n, 132\)"):
        partition.cut(mask, 132)


@pytest.mark.parametrize("name", ["all-gather", "all-to-all", "scatter"])
def test_engines_as_part_of_the_ranks_streams_move_every_byte(cuda_node, name):
    operation = Operation(name, len(cuda_node.gpus), 100_001, in_place=name == "all-gather")
    queues = [gpu.create_queue(64) for gpu in cuda_node.gpus]
    with Buffers(cuda_node, operation) as buffers:
        with StreamedCollective(cuda_node, operation, buffers.send, buffers.recv, queues) as collective:
            for _ in range(3):
                buffers.run(collective, 10)
    in_place = Operation("all-to-all", len(cuda_node.gpus), 8, in_place=True)
    with Buffers(cuda_node, in_place) as buffers, pytest.raises(InvalidArgument, match="straight to its place"):
        StreamedCollective(cuda_node, in_place, buffers.send, buffers.recv, queues)


def test_a_rank_of_a_streamed_collective_waits_for_its_peers(cuda_node):
    operation = Operation("all-gather", len(cuda_node.gpus), 4096, in_place=True)
    queues = [gpu.create_queue(64) for gpu in cuda_node.gpus]
    late = cuda_node.create_signal(1)
    with Buffers(cuda_node, operation) as buffers:
        with StreamedCollective(cuda_node, operation, buffers.send, buffers.recv, queues) as collective:
            buffers.run(collective, 10)  # what is loaded is loaded
            for _ in range(2):
                late.store(1)
                buffers.prepare(collective)
                queues[1].prepare(after=[late]).submit()
                collective.submit()
                time.sleep(0.02)
                assert [signal.value for signal in collective.done] == [1] * len(queues)
                late.store(0)
                collective.wait(10)
                buffers.check(collective)


def test_clocks_are_bound_anew_before_a_run_if_nothing_runs(cuda_node, monkeypatch):
    bound = []
    monkeypatch.setattr(cuda_node, "calibrate", lambda: bound.append(cuda_node.idle()))
    gate = cuda_node.create_signal(1)
    with cuda_node.gpus[0].create_queue(8) as queue:
        queue.prepare(after=[gate]).submit()
        monkeypatch.setattr(cuda_node, "_calibrated", time.monotonic() - 10)
        with cuda_node.tally():
            assert bound == []
        gate.store(0)
        queue.drain(10)
        with cuda_node.tally():
            assert bound == [True]
        monkeypatch.setattr(cuda_node, "_calibrated", time.monotonic())
        with cuda_node.tally():
            assert bound == [True]
