import struct

import pytest

from hsakit.ffi import HSA
from hsakit.ffi.errors import InvalidArgument
from hsakit.hsa import Batch, barrier_and, barrier_or
from hsakit.hsa.packet import header


def test_header():
    assert header(HSA.HSA_PACKET_TYPE_BARRIER_AND) == 0x1503  # as ROCr writes its own
    assert header(HSA.HSA_PACKET_TYPE_KERNEL_DISPATCH, barrier=False) == 0x1402
    assert header(HSA.HSA_PACKET_TYPE_BARRIER_OR, acquire="none", release="agent") == 0x0905
    with pytest.raises(InvalidArgument, match="'gpu' is none of none, agent, system"):
        header(HSA.HSA_PACKET_TYPE_BARRIER_AND, acquire="gpu")


def test_bytes_of_a_barrier(runtime):
    signals = [runtime.create_signal(i) for i in range(6)]
    raws = [signal.handle().raw for signal in signals]
    packet = barrier_and(signals[:5], signals[5])
    assert bytes(packet) == struct.pack("<HHI5QQQ", 0x1503, 0, 0, *raws[:5], 0, raws[5])
    packet = barrier_or(signals[:2], barrier=False)
    assert bytes(packet) == struct.pack("<HHI5QQQ", 0x1405, 0, 0, *raws[:2], 0, 0, 0, 0, 0)
    for signal in signals:
        signal.close()


def test_limits(runtime):
    signals = [runtime.create_signal() for _ in range(6)]
    with pytest.raises(InvalidArgument, match="at most 5 signals, not 6: Queue.barrier_and chains"):
        barrier_and(signals)
    with pytest.raises(InvalidArgument, match="at most 5 signals, not 6$"):
        barrier_or(signals)
    with pytest.raises(InvalidArgument, match="needs 1 to 5"):
        barrier_or([])
    with pytest.raises(InvalidArgument, match="at least one packet"):
        Batch([])
    for signal in signals:
        signal.close()


def test_unmet_of_and_and_or(runtime):
    with runtime.create_signal(0) as zero, runtime.create_signal(1) as one:
        assert [handle.raw for handle in barrier_and([zero, one]).unmet()] == [one.handle().raw]
        assert barrier_or([zero, one]).unmet() == ()
        assert len(barrier_or([one]).unmet()) == 1
