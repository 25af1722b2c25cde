"""A HIP stream as a queue: it waits for HSA signals, completes one, and has times of the GPU's."""

import time
import weakref

import pytest

from hsakit.blas import StreamQueue
from hsakit.ffi.errors import DeadlineExceeded, InvalidArgument
from hsakit.gate import Gate
from hsakit.kernels import Kernels


class Copy:
    """Something that exists only as work for a stream: a copy by a kernel."""

    words = "a copy"

    def __init__(self, kernels, dst, src):
        self.launch = kernels.copy(dst, src, workgroups=4)

    def enqueue(self, stream):
        self.launch.launch(stream)


@pytest.fixture
def kernels(node):
    with Kernels(node.gpus[0].device) as made:
        yield made


@pytest.fixture
def memory(node):
    dst, src = (node.allocate(100_000) for _ in range(2))
    src.view()[:] = 7
    dst.view()[:] = 0
    yield dst, src
    dst.close()
    src.close()


def test_it_waits_for_every_signal_and_completes_one(node, kernels, memory):
    gpu, (dst, src) = node.gpus[0], memory
    with StreamQueue(gpu, kernels) as queue, Gate(node, (0, 3000, 90_000)) as gate, node.create_signal(1) as done:
        work = queue.prepare(Copy(kernels, dst, src), gate.signals[1:], done)
        for _ in range(2):
            dst.view()[:] = 0
            done.store(1)
            gate.hold([work])
            time.sleep(0.02)
            assert done.value == 1 and not dst.view().any()
            gate.release()
            done.wait(deadline=30)
            assert (dst.view() == 7).all()  # seen by whoever sees the signal
            gate.wait()
            start, end = done.times
            assert gate.starts[2] <= start < end
            assert start - gate.starts[2] < 1e6


def test_an_aql_queue_waits_for_it(node, kernels, memory):
    gpu, (dst, src) = node.gpus[0], memory
    with (
        StreamQueue(gpu, kernels) as queue,
        gpu.create_queue(64) as other,
        node.create_signal(1) as go,
        node.create_signal(1) as done,
        node.create_signal(1) as last,
    ):
        other.prepare(gpu.kernels.empty(), [done], last).submit()
        queue.prepare(Copy(kernels, dst, src), [go], done).submit()
        time.sleep(0.02)
        assert last.value == 1
        go.store(0)
        last.wait(deadline=30)
        done.wait(deadline=30)
        assert last.times[0] >= done.times[1]
        queue.drain()


def test_its_cost_is_that_of_the_gaps_between_kernels(node, kernels, memory):
    gpu, (dst, src) = node.gpus[0], memory
    with StreamQueue(gpu, kernels) as queue, node.create_signal(1) as done:
        cost = queue.cost()
        assert 0 < cost < 1e6
        queue.prepare(Copy(kernels, dst, src), completion=done).submit()
        done.wait(deadline=30)
        start, end = done.times
        assert end - start >= cost / 2


def test_one_run_at_a_time_and_a_signal(node, kernels, memory):
    gpu, (dst, src) = node.gpus[0], memory
    with StreamQueue(gpu, kernels) as queue, node.create_signal(1) as go, node.create_signal(1) as done:
        with pytest.raises(InvalidArgument, match="completion"):
            queue.prepare(Copy(kernels, dst, src))
        work = queue.prepare(Copy(kernels, dst, src), [go], done)
        work.submit()
        with pytest.raises(InvalidArgument, match="cannot complete another operation"):
            work.submit()
        with pytest.raises(DeadlineExceeded, match="a copy on stream .* which waits for|a copy on stream"):
            done.wait(deadline=0.01)
        go.store(0)
        done.wait(deadline=30)
        done.store(2)
        with pytest.raises(InvalidArgument, match="set it to 1"):
            work.submit()


def test_the_signal_that_it_completes_lives_as_long_as_the_work(node, kernels, memory):
    gpu, (dst, src) = node.gpus[0], memory
    with StreamQueue(gpu, kernels) as queue, node.create_signal(1) as go:
        done = node.create_signal(1)
        handle = weakref.ref(done.handle())
        queue.prepare(Copy(kernels, dst, src), [go], done).submit()
        done.close()
        assert handle() is not None  # a kernel is about to write it
        go.store(0)
        queue.drain()


def test_a_mask_by_numbers_of_cus(node, kernels):
    with StreamQueue(node.gpus[0], kernels, cu_mask=range(8, node.gpus[0].cu_count)) as queue:
        assert len(queue.stream.cu_mask) == node.gpus[0].cu_count - 8
    with pytest.raises(InvalidArgument, match="priority"):
        StreamQueue(node.gpus[0], kernels, "high", range(8, node.gpus[0].cu_count))


def test_a_latch_that_gave_up_is_an_error(node, kernels, memory, monkeypatch):
    gpu, (dst, src) = node.gpus[0], memory
    monkeypatch.setattr("hsakit.blas.queue.PATIENCE", 1e-5)
    with StreamQueue(gpu, kernels) as queue, node.create_signal(1) as go, node.create_signal(1) as done:
        queue.prepare(Copy(kernels, dst, src), [go], done).submit()
        with pytest.raises(DeadlineExceeded, match="a copy on stream .* waited for its signals"):
            done.wait("<", -5, deadline=20)
        go.store(0)
        queue.drain()
