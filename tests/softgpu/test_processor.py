"""The thread that plays all queues: progress of all, idleness, destruction while busy, and Python threads beside it."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from hsakit.softgpu.processor import Processor
from tests.softgpu.rawhsa import ACTIVE, BARRIER_AND, packet


def test_two_queues_that_wait_for_each_other_in_turn_both_finish(raw):
    a, b = raw.queue(raw.gpus[0]), raw.queue(raw.gpus[7])
    steps = [raw.signal() for _ in range(40)]
    for i, signal in enumerate(steps):  # each waits for the other's last
        (a, b)[i % 2].submit(packet(BARRIER_AND, [steps[i - 1]] if i else [], signal))
    assert raw.wait(steps[-1]) == 0


def test_a_long_copy_does_not_hold_up_the_other_queues(raw):
    size = 256 << 20
    source, _ = raw.host(size)
    device, queue = raw.allocate(raw.gpus[1], size), raw.queue(raw.gpus[0])
    raw.check("profiling", raw.lib.hsa_amd_profiling_async_copy_enable(True))
    gate = raw.signal()
    copied = raw.copy(device, raw.gpus[1], source, raw.cpu, size, after=[gate])
    passed = queue.barrier([gate])
    raw.store(gate, 0)
    assert raw.wait(passed) == raw.wait(copied, 60) == 0
    time_of_copy = raw.ffi.new("hsa_amd_profiling_async_copy_time_t *")
    raw.check("time", raw.lib.hsa_amd_profiling_get_async_copy_time(copied, time_of_copy))
    end_of_barrier = raw.view(passed + 40, 8).view(np.uint64)[0] * 10  # ticks of 10 ns
    assert end_of_barrier + 1_000_000 < time_of_copy.end
    raw.free(device)
    raw.free(source)


def test_an_idle_node_costs_next_to_nothing(raw):
    raw.queue().barrier()
    time.sleep(1.1)
    before = time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)
    time.sleep(2)
    assert time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) - before < 0.05 * 2


def test_queues_are_destroyed_while_busy(raw, caplog):
    for gpu in raw.gpus:
        raw.queue(gpu).destroy()  # with the first one, the runtime makes one of its own
    gate, before = raw.signal(), set(raw.driver._queues)
    for i in range(100):
        queue = raw.queue(raw.gpus[i % 8])
        queue.submit(*[packet(BARRIER_AND)] * 30, packet(BARRIER_AND, [gate]), *[packet(BARRIER_AND)] * 10)
        queue.destroy()
    assert set(raw.driver._queues) == before and "doorbell" not in caplog.text
    assert raw.wait(raw.queue().barrier()) == 0


@pytest.mark.parametrize("how", ["in C", "in Python"])
def test_a_thread_that_spins_and_the_processor_do_not_starve_each_other(raw, how):
    """Round trips while the waiting thread never sleeps."""
    queue, signal = raw.queue(), raw.signal()
    value = raw.ffi.cast("int64_t *", signal + 8)
    one = packet(BARRIER_AND, completion=signal)
    before = time.thread_time()
    for _ in range(50):
        value[0] = 1
        queue.submit(one)
        if how == "in C":
            assert raw.wait(signal, how=ACTIVE) == 0
        else:
            deadline = time.monotonic() + 20
            while value[0]:
                assert time.monotonic() < deadline
    assert time.thread_time() - before < 2  # the spinning itself: 50 round trips, not 50 time slices


def test_signals_are_counted_down_beside_other_threads(raw):
    """The node's decrement and the host's are both one instruction."""
    queue, count = raw.queue(), 4000
    done = raw.signal(2 * count)

    def host():
        for _ in range(count):
            raw.lib.hsa_signal_subtract_scacq_screl(done, 1)

    thread = threading.Thread(target=host)
    thread.start()
    for _ in range(count // 40):
        queue.submit(*[packet(BARRIER_AND, completion=done)] * 40)
    thread.join(60)
    assert raw.wait(done) == 0


class Stuck:
    """A queue that raises."""

    id, call, gpu, closed, halted = 1, "packet", 3, False, False

    def ring(self, value):
        raise ZeroDivisionError

    def halt(self):
        self.halted = True

    def describe(self):
        return "queue under test"


def test_a_mistake_in_the_node_is_hung_hardware_and_not_a_hung_application(bench, caplog):
    event = bench.driver.events.create(3, False)  # hardware exceptions
    doorbells = np.zeros(8, dtype=np.uint64)
    processor = Processor(bench.driver, doorbells)
    try:
        stuck = Stuck()
        with processor.stopped():
            processor.attach(5, stuck, 0)
        doorbells[5] = 1
        deadline = time.monotonic() + 10
        while not event.signaled and time.monotonic() < deadline:
            time.sleep(0.001)
        assert event.data == ("hw", bench.driver.gpu_id(3)) and stuck.halted
        assert "queue under test: internal error" in caplog.text and "ZeroDivisionError" in caplog.text
        assert processor._thread.is_alive()
    finally:
        processor.halt()
    assert not processor._thread.is_alive()


def test_a_doorbell_without_a_queue_is_an_error(bench, caplog):
    doorbells = np.zeros(8, dtype=np.uint64)
    processor = Processor(bench.driver, doorbells)
    try:
        doorbells[2] = 1
        deadline = time.monotonic() + 10
        while "doorbell 2 was rung" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.001)
        assert "doorbell 2 was rung" in caplog.text
    finally:
        processor.halt()
