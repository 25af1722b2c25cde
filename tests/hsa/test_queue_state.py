import time

import pytest

from hsakit.ffi.errors import DeadlineExceeded, QueueError
from hsakit.hsa import Packet, barrier_and
from hsakit.hsa.packet import header

RESERVED_TYPE = 6


@pytest.fixture
def broken():
    """A packet of a type that does not exist."""
    good = barrier_and()
    return Packet(good.body, header(RESERVED_TYPE), "reserved", (), None)


def test_a_bad_packet_is_an_error_and_not_a_hang(runtime, gpu, broken):
    with gpu.create_queue(64) as queue, runtime.create_signal(1) as done:
        assert queue.error is None
        queue.barrier_and()
        queue.submit(broken)
        queue.barrier_and([], done)
        begin = time.monotonic()
        with pytest.raises(QueueError) as caught:
            done.wait(deadline=20)
        assert time.monotonic() - begin < 5
        error = caught.value
        assert (error.code, error.name) == (0x1009, "HSA_STATUS_ERROR_INVALID_PACKET_FORMAT")
        assert f"queue {queue._state.number} on GPU 0, packet 1 (reserved)" in str(error)
        assert isinstance(queue.error, QueueError)
        with pytest.raises(QueueError):
            queue.barrier_and()


def test_the_error_reaches_those_behind_it(runtime, gpu, host, queue, broken):
    with gpu.create_queue(64) as bad, runtime.create_signal(1) as middle, host(64) as a, host(64) as b:
        bad.submit(broken)
        bad.barrier_and([], middle)
        with gpu.pool("coarse").allocate(64) as c, runtime.create_signal(1) as last:
            queue.barrier_and([middle], last)
            with pytest.raises(QueueError, match="packet 0 .reserved."):
                last.wait(deadline=20)
            middle_copy = gpu.engine(0).copy(c, a, after=[middle])
            with pytest.raises(QueueError, match="packet 0 .reserved."):
                middle_copy.wait(deadline=20)
            bad.close()
            middle.store(0)  # nothing counts on it now, and the others can go on
            last.wait(deadline=5)
            middle_copy.wait(deadline=5)
            middle_copy.close()
            assert b.nbytes == 64


def test_other_queues_are_not_touched(runtime, gpu, queue, broken):
    with gpu.create_queue(64) as bad:
        bad.submit(broken)
        with pytest.raises(QueueError):
            bad.drain(deadline=20)
        queue.drain(deadline=5)
        assert queue.error is None


def test_packets_without_signal_are_held_until_the_read_index_passed_them(runtime, gpu, gate):
    with gpu.create_queue(64) as queue, runtime.create_signal(0) as other:
        queue.barrier_and([gate, other])
        other.close()
        assert len(queue._state.flights) == 1
        with pytest.raises(DeadlineExceeded):
            queue.drain(deadline=0.05)
        gate.store(0)
        queue.drain(deadline=5)
        assert not queue._state.flights and not queue._state.late
