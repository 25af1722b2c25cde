import threading
import time

import pytest

from hsakit.ffi.errors import ClosedError, DeadlineExceeded, InvalidArgument
from hsakit.hsa import Batch, barrier_and


def test_what_can_be_created(runtime, gpu):
    low, high = gpu.queue_sizes
    for size in (0, low // 2, low + 1, high * 2, 64.0):
        with pytest.raises(InvalidArgument, match=f"powers of two from {low} to {high}"):
            gpu.create_queue(size)
    with pytest.raises(InvalidArgument, match="priority 'urgent' is none of low, normal, high"):
        gpu.create_queue(priority="urgent")
    with pytest.raises(InvalidArgument, match="CPU 0 has no queue"):
        runtime.cpus[0].create_queue()


@pytest.mark.parametrize("priority", ["low", "normal", "high"])
def test_priorities_work(runtime, gpu, priority):
    with gpu.create_queue(128, priority=priority) as queue:
        assert (queue.size, queue.priority) == (128, priority)
        queue.barrier_and()
        queue.drain(deadline=5)


def test_cu_mask_is_read_back(gpu):
    with gpu.create_queue() as queue:
        assert queue.cu_mask == tuple(range(gpu.cu_count))
    wanted = (0, 7, 31, 32, gpu.cu_count - 1)
    with gpu.create_queue(cu_mask=wanted) as queue:
        assert queue.cu_mask == wanted


@pytest.mark.parametrize("mask", [[], [-1], [10**6], ["a"]])
def test_bad_cu_masks(gpu, mask):
    with pytest.raises(InvalidArgument, match="CU numbers from 0 to" if mask else "no CU"):
        gpu.create_queue(cu_mask=mask)


def test_a_mask_that_the_environment_reduces_is_an_error(script):
    done = script(
        """
        from hsakit.hsa import Runtime
        from hsakit.ffi.errors import InvalidArgument
        with Runtime() as runtime:
            try:
                runtime.gpus[0].create_queue(cu_mask=range(8))
            except InvalidArgument as error:
                print(error)
            with runtime.gpus[0].create_queue(cu_mask=range(4)) as queue:
                print(queue.cu_mask)
        """,
        HSA_CU_MASK="0:0-3",
    )
    assert "0000000f where" in done.stdout and "HSA_CU_MASK" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "(0, 1, 2, 3)"


def test_barriers_run_in_order(runtime, queue, gate):
    signals = [runtime.create_signal(1) for _ in range(10)]
    queue.barrier_and([gate])
    for before, signal in zip([None, *signals], signals):
        queue.barrier_and([before] if before else [], signal)
    time.sleep(0.05)
    assert [signal.value for signal in signals] == [1] * 10
    gate.store(0)
    signals[-1].wait(deadline=5)
    assert [signal.value for signal in signals] == [0] * 10
    assert queue.packets == queue.write_index == 11
    for signal in signals:
        signal.close()


def test_barrier_or_needs_one(runtime, queue, gate):
    with runtime.create_signal(1) as other, runtime.create_signal(1) as done:
        queue.barrier_or([gate, other], done)
        with pytest.raises(DeadlineExceeded, match="barrier-or"):
            done.wait(deadline=0.1)
        other.store(0)
        done.wait(deadline=5)
        assert gate.value == 1


def test_more_than_five_dependencies_take_a_chain(runtime, queue):
    signals = [runtime.create_signal(1) for _ in range(13)]
    with runtime.create_signal(1) as done:
        assert queue.barrier_and(signals, done) == 2
        for signal in signals:
            assert done.value == 1
            signal.store(0)
        done.wait(deadline=5)
    for signal in signals:
        signal.close()


def test_the_ring_wraps(runtime, queue):
    with runtime.create_signal(1) as done:
        for i in range(500):
            queue.barrier_and([], done if i == 499 else None, deadline=10)
        assert done.wait(deadline=10) == 0
    assert queue.packets == 500


def test_batches_wrap(runtime, queue):
    counted = runtime.create_signal(37 * 20)
    packet = barrier_and([], counted)
    batch = Batch([packet] * 37)
    for i in range(20):  # 37 does not divide 64: every place in the ring is a first packet, and batches are cut
        assert queue.submit_batch(batch, deadline=10) == 37 * (i + 1) - 1
    assert counted.wait(deadline=10) == 0
    counted.close()


def test_every_submission_rings_its_last_packet(runtime, queue, monkeypatch):
    rung, ring = [], queue._ring_doorbell
    monkeypatch.setattr(queue, "_ring_doorbell", lambda doorbell, value: (rung.append(value), ring(doorbell, value)))
    with runtime.create_signal(1) as done:
        queue.barrier_and()
        queue.submit_batch([barrier_and() for _ in range(5)])
        queue.barrier_and([], done)
        done.wait(deadline=10)
    assert rung == [0, 5, 6]


def test_a_batch_is_complete_or_not_there(runtime, queue):
    with runtime.create_signal(2) as done:
        with pytest.raises(InvalidArgument, match="a batch of 65 packets does not fit the ring of 64"):
            queue.submit_batch([barrier_and()] * 65)
        with pytest.raises(InvalidArgument, match="cannot complete another operation"):
            queue.submit_batch([barrier_and([], done)] * 3)
        assert queue.packets == 0
        queue.submit_batch([barrier_and([], done)] * 2)
        assert done.wait(deadline=5) == 0
        queue.submit_batch([barrier_and()] * 64, deadline=5)


def test_a_full_ring_is_waited_for_with_a_deadline(runtime, queue, gate, later):
    queue.barrier_and([gate])
    for _ in range(63):
        queue.barrier_and()
    for submit in (queue.barrier_and, lambda deadline: queue.submit_batch([barrier_and()] * 2, deadline)):
        begin = time.monotonic()
        with pytest.raises(DeadlineExceeded) as caught:
            submit(deadline=0.2)
        assert time.monotonic() - begin < 2
        assert f"{queue._state.label} within 0.2 s: it holds packets 0 to 63 of 64" in str(caught.value)
        assert "packet 0 (barrier-and) waits for signal" in str(caught.value)
    later(0.1, gate.store, 0)
    assert queue.barrier_and(deadline=10) == 64
    queue.drain(deadline=10)


def test_closing_frees_those_who_wait_for_room(runtime, gpu, gate, later):
    queue = gpu.create_queue(64)
    queue.submit_batch([barrier_and([gate])] * 64)
    later(0.1, queue.close)
    with pytest.raises(ClosedError):
        queue.barrier_and(deadline=20)


def test_threads_submit_to_one_queue(runtime, queue):
    threads, each = 4, 300
    with runtime.create_signal(threads * each) as done:
        packet, batch = barrier_and([], done), Batch([barrier_and([], done)] * 3)

        def work():
            for _ in range(each // 6):
                for _ in range(3):
                    queue.submit(packet)
                queue.submit_batch(batch)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert done.wait(deadline=20) == 0
    assert queue.packets == threads * each


def test_drain(runtime, queue, gate):
    queue.barrier_and([gate])
    with pytest.raises(DeadlineExceeded, match="packet 1"):
        queue.drain(deadline=0.1)
    gate.store(0)
    queue.drain(deadline=5)
    assert queue.read_index == queue.packets


def test_closed(runtime, gpu):
    queue = gpu.create_queue(64)
    queue.close()
    queue.close()
    assert queue.closed and "closed" in repr(queue)
    for use in (queue.barrier_and, queue.drain, lambda: queue.read_index, lambda: queue.cu_mask):
        with pytest.raises(ClosedError):
            use()


def test_a_queue_that_is_dropped_finishes_its_work(runtime, gpu, gate):
    done = runtime.create_signal(1)
    gpu.create_queue(64).barrier_and([gate], done)
    runtime.create_signal().close()  # gives the runtime the occasion to destroy what was dropped
    gate.store(0)
    assert done.wait(deadline=5) == 0
    done.close()


def test_many_queues_destroyed_while_busy(runtime, gpu, gate):
    for i in range(25):
        done = runtime.create_signal(1)
        queue = gpu.create_queue(64)
        queue.submit_batch([barrier_and([gate])] * (i % 64 + 1))
        queue.barrier_and([], done) if i % 64 < 60 else None
        queue.close()
        done.close()
