import os
import re
import signal as signals
import threading
import time

import pytest

from hsakit.ffi.errors import ClosedError, DeadlineExceeded, InvalidArgument


@pytest.mark.parametrize(
    "condition, value, after", [("<", 1, 0), ("==", 3, 3), ("!=", 5, 6), (">=", 9, 9), ("<", -4, -5)]
)
def test_conditions(runtime, condition, value, after, later):
    with runtime.create_signal(5) as signal:
        later(0.05, signal.store, after)
        assert signal.wait(condition, value, deadline=5) == after


def test_a_wait_that_is_over_makes_no_call(runtime, monkeypatch):
    with runtime.create_signal(0) as signal:
        monkeypatch.setattr(runtime.lib, "hsa_signal_wait_scacquire", None)
        assert signal.wait() == 0


def test_bad_arguments(runtime):
    with runtime.create_signal(1) as signal:
        with pytest.raises(InvalidArgument, match="condition '<=' is none of ==, !=, <, >="):
            signal.wait("<=", 0)
        for deadline in (None, -1, float("inf"), float("nan"), "1"):
            with pytest.raises(InvalidArgument, match="every wait has one"):
                signal.wait(deadline=deadline)


def test_deadline_names_queue_and_packet(runtime, queue, gate):
    with runtime.create_signal(1) as done:
        queue.barrier_and()
        queue.barrier_and([gate])
        index = queue.barrier_and([], done)
        begin = time.monotonic()
        with pytest.raises(DeadlineExceeded) as caught:
            done.wait(deadline=0.3)
        assert 0.3 <= time.monotonic() - begin < 1.5
        message = str(caught.value)
        assert "did not become < 1 within 0.3 s" in message
        assert f"packet {index} (barrier-and) of queue" in message and "on GPU 0" in message
        assert "of 3 packets submitted 1 are processed" in message
        assert f"which waits for signal 0x{gate.handle().raw:x} (1): nothing submitted will complete it" in message
        gate.store(0)
        done.wait(deadline=5)


def test_deadline_names_the_chain_of_copies(runtime, gpu, host, queue, gate):
    with host(64) as a, host(64) as b, gpu.pool("coarse").allocate(64) as c:
        done = runtime.create_signal(1)
        queue.barrier_and([gate], done)
        first = gpu.engine(0).copy(c, a, after=[done])
        second = gpu.engine(1).copy(b, c, after=[first])
        with pytest.raises(DeadlineExceeded) as caught:
            second.wait(deadline=0.1)
        lines = str(caught.value).splitlines()
        assert "engine 1 of GPU 0, 64 bytes" in lines[1]
        done_there, all_there = re.search(r"\[(\d+) of (\d+) copies there are complete\]", lines[1]).groups()
        assert int(all_there) == int(done_there) + 1
        assert "engine 0 of GPU 0" in lines[2]
        assert "packet 0 (barrier-and)" in lines[3]
        assert lines[4].endswith("nothing submitted will complete it")
        gate.store(0)
        second.wait(deadline=5)
        for each in (done, first, second):
            each.close()


def test_deadline_of_a_signal_that_nobody_completes(runtime):
    with (
        runtime.create_signal(1) as signal,
        pytest.raises(DeadlineExceeded, match="nothing submitted will complete it"),
    ):
        signal.wait(deadline=0)


def test_a_blocked_wait_sleeps(runtime):
    with runtime.create_signal(1) as signal:
        for wait in (signal.wait, lambda deadline: runtime.wait_any([signal], deadline=deadline)):
            begin = time.thread_time()
            with pytest.raises(DeadlineExceeded):
                wait(deadline=1)
            assert time.thread_time() - begin < 0.2


def test_interrupt_ends_a_wait(runtime, later):
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signals.SIGINT)

    with runtime.create_signal(1) as signal:
        for _ in range(5):
            later(0.1, interrupt)
            with pytest.raises(KeyboardInterrupt):
                signal.wait(deadline=20)
            assert time.monotonic() - sent.pop() < 1  # a slice is 50 ms


def test_closing_the_queue_ends_the_wait(runtime, gpu, gate, later):
    with runtime.create_signal(1) as done:
        queue = gpu.create_queue(64)
        index = queue.barrier_and([gate], done)
        later(0.1, queue.close)
        begin = time.monotonic()
        with pytest.raises(ClosedError, match=rf"packet {index} .* will not complete: queue .* was closed"):
            done.wait(deadline=20)
        assert time.monotonic() - begin < 5
        done.store(1)  # nothing counts on it any more


def test_wait_any(runtime, later):
    made = [runtime.create_signal(1) for _ in range(12)]
    later(0.05, made[7].store, 0)
    assert runtime.wait_any(made, deadline=5) == 7
    with pytest.raises(DeadlineExceeded, match="none of 2 signals became == 9 within 0.1 s"):
        runtime.wait_any(made[:2], "==", 9, deadline=0.1)
    with pytest.raises(InvalidArgument, match="at least one"):
        runtime.wait_any([])
    for each in made:
        each.close()


def test_several_threads_wait_for_one_signal(runtime, queue, gate):
    with runtime.create_signal(1) as done:
        queue.barrier_and([gate], done)
        values = []
        threads = [threading.Thread(target=lambda: values.append(done.wait(deadline=10))) for _ in range(4)]
        for thread in threads:
            thread.start()
        gate.store(0)
        for thread in threads:
            thread.join()
        assert values == [0] * 4
