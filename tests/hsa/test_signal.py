import threading

import pytest

from hsakit.ffi.errors import ClosedError, InvalidArgument
from hsakit.hsa import Packet, barrier_and


def test_value_is_what_the_library_sees(runtime):
    with runtime.create_signal(7) as signal:
        assert signal.value == signal.load() == 7
        signal.store(-(1 << 63))
        assert signal.value == signal.load() == -(1 << 63)
        signal.store(5)
        signal.add(-8)
        assert signal.value == signal.load() == -3


def test_adding_completes_nothing_in_other_threads_eyes(runtime, queue, gate, monkeypatch):
    seen, threads, add = [], [], runtime.lib.hsa_signal_add_screlease
    with runtime.create_signal(1) as done:
        queue.barrier_and([gate], done)
        handle = done.handle()

        def slowly(raw, value):  # meanwhile another thread looks for what is complete
            threads.append(threading.Thread(target=lambda: seen.append(handle.settle())))
            threads[0].start()
            threads[0].join(0.2)
            add(raw, value)

        monkeypatch.setattr(runtime.lib, "hsa_signal_add_screlease", slowly)
        done.add(1)
        threads[0].join()
        assert seen == [False] and "packet" in done.operation
        gate.store(0)
        assert done.wait("==", 1, deadline=5) == 1


@pytest.mark.parametrize("initial", [1 << 63, -(1 << 63) - 1, 1.0, None])
def test_initial_value_is_a_64_bit_integer(runtime, initial):
    with runtime.create_signal(2) as signal:
        for use in (runtime.create_signal, signal.store, signal.add):
            with pytest.raises(InvalidArgument, match="64-bit"):
                use(initial)
        assert signal.value == 2


def test_closed(runtime):
    signal = runtime.create_signal()
    signal.close()
    signal.close()
    assert signal.closed and repr(signal) == "<Signal closed>"
    for use in (lambda: signal.value, signal.load, lambda: signal.store(1), lambda: signal.add(1), signal.wait):
        with pytest.raises(ClosedError):
            use()
    with pytest.raises(ClosedError):
        barrier_and([signal])


def test_more_operations_than_its_value_are_refused(runtime, queue, gate):
    with runtime.create_signal(2) as done:
        queue.barrier_and([gate], done)
        queue.barrier_and([], done)
        with pytest.raises(InvalidArgument, match="set to 2 .* 2 operations in flight"):
            queue.barrier_and([], done)
        assert queue.packets == 2  # the refused one was not written
        gate.store(0)
        assert done.wait(deadline=5) == 0
        with pytest.raises(InvalidArgument, match="Store"):
            queue.barrier_and([], done)
        done.store(1)
        queue.barrier_and([], done)
        assert done.wait(deadline=5) == 0


def test_storing_while_an_operation_counts_down_is_refused(runtime, queue, gate):
    with runtime.create_signal(1) as done:
        queue.barrier_and([gate], done)
        with pytest.raises(InvalidArgument, match=r"packet 0 \(barrier-and\) of queue"):
            done.store(1)
        gate.store(0)
        done.wait(deadline=5)
        done.store(1)
        assert done.value == 1


def test_operation_says_what_will_complete_it(runtime, queue, gate):
    with runtime.create_signal(1) as done:
        assert done.operation is None
        index = queue.barrier_and([gate], done)
        assert f"packet {index} (barrier-and)" in done.operation
        gate.store(0)
        done.wait(deadline=5)
        assert done.operation is None


def test_times_of_a_packet(runtime, queue):
    with runtime.create_signal(1) as first, runtime.create_signal(1) as second:
        with pytest.raises(InvalidArgument, match="no operation"):
            _ = first.times
        queue.barrier_and([], first)
        queue.barrier_and([], second)
        second.wait(deadline=5)
        (start, end), (next_start, next_end) = first.times, second.times
        assert 0 < start <= end <= next_end and start <= next_start <= next_end


def test_times_before_completion_are_refused(runtime, queue, gate):
    with runtime.create_signal(1) as done:
        queue.barrier_and([gate], done)
        with pytest.raises(InvalidArgument, match="Wait for it"):
            _ = done.times
        gate.store(0)
        done.wait(deadline=5)
        assert done.times


def test_a_packet_may_be_submitted_again(runtime, queue):
    with runtime.create_signal(3) as done:
        packet = barrier_and([], done)
        assert isinstance(packet, Packet)
        for _ in range(3):
            queue.submit(packet)
        assert done.wait(deadline=5) == 0
