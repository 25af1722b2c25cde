import gc
import re
import threading
import time

import numpy as np
import pytest

from hsakit.culayout import CuLayout
from hsakit.cumask import CuMask
from hsakit.ffi.errors import ClosedError, DeadlineExceeded, InvalidArgument
from hsakit.hip import stream_state


@pytest.mark.parametrize("priority", ["low", "normal", "high"])
def test_priorities(device, priority):
    with device.create_stream(priority=priority) as stream, device.malloc(64) as buffer:
        assert stream.priority == priority and not stream.blocking
        stream.fill(buffer, 1)
        stream.synchronize(deadline=10)


def test_what_cannot_be_created(device):
    mask = CuMask.all(CuLayout.of(device.agent))
    with pytest.raises(InvalidArgument, match="'urgent' is none of low, normal, high"):
        device.create_stream(priority="urgent")
    for options in ({"priority": "high"}, {"blocking": False}):
        with pytest.raises(InvalidArgument, match="only of normal priority, and blocking.*Agent.create_queue"):
            device.create_stream(cu_mask=mask, **options)
    with pytest.raises(InvalidArgument, match="for a part of 16 CUs; GPU 0 has"):
        device.create_stream(cu_mask=CuMask.all(CuLayout.even(16)))
    some = CuMask.from_bits(mask.layout, [0, 8], allow_empty_xcc=True)
    if mask.layout.xccs > 1:
        object.__setattr__(some, "allow_empty_xcc", False)
        with pytest.raises(InvalidArgument, match="leaves no CU of XCC 1"):
            device.create_stream(cu_mask=some)


def test_a_blocking_stream_waits_for_the_default_stream(device, latch):
    with (
        device.create_stream() as free,
        device.create_stream(blocking=True) as ordered,
        device.malloc_host(64) as word,
        device.malloc(64) as one,
        device.malloc(64) as two,
    ):
        assert (free.blocking, ordered.blocking, device.default_stream.blocking) == (False, True, True)
        word.view()[:] = 1
        latch.hold(device.default_stream)
        free.copy(one, word)
        ordered.copy(two, word)
        free.synchronize(deadline=10)
        with pytest.raises(DeadlineExceeded, match="of 1 submissions 0 are known to be complete, the next is the copy"):
            ordered.synchronize(deadline=0.1)
        assert not device.default_stream.query() and not device.idle() and free.query()
        latch.release()
        ordered.synchronize(deadline=10)
        assert device.default_stream.query()


def test_the_default_stream_stays(device):
    stream = device.default_stream
    with stream:
        pass
    stream.close()
    assert not stream.closed and stream == device.default_stream
    assert "the default stream of HIP device 0" in repr(stream)
    stream.synchronize()


def test_a_missed_deadline_names_what_is_missing(device, stream, latch):
    with device.malloc(4096) as buffer:
        stream.fill(buffer, 1)
        stream.synchronize(deadline=10)
        latch.hold(stream)
        stream.fill(buffer, 2)
        assert not stream.query() and "2 of 3 in flight" in repr(stream)
        assert device.platform.lib.hipGetLastError() == 0
        start = time.monotonic()
        with pytest.raises(DeadlineExceeded) as caught:
            stream.synchronize(deadline=0.2)
        assert 0.2 <= time.monotonic() - start < 5
        said = f"{stream.state().label} did not complete within 0.2 s: of 3 submissions 1 are known to be complete, "
        assert str(caught.value).startswith(f"{said}the next is a launch of latch. Wait longer, ")
        with pytest.raises(DeadlineExceeded, match="a launch of latch"):
            device.synchronize(deadline=0.1)
        for wrong in (-1, float("inf"), "1"):
            with pytest.raises(InvalidArgument, match="every wait has one"):
                stream.synchronize(deadline=wrong)
        latch.release()
        stream.synchronize(deadline=10)
        assert stream.query() and "0 of 3 in flight" in repr(stream)


def test_closing_does_not_wait(device, latch):
    stream = device.create_stream()
    streams = device.platform.streams
    latch.hold(stream)
    state = stream.state()
    start = time.monotonic()
    stream.close()
    stream.close()
    assert time.monotonic() - start < 5 and state in streams and stream.closed and repr(stream) == "<Stream closed>"
    for use in (stream.query, stream.synchronize, stream.record, stream.read_cu_mask):
        with pytest.raises(ClosedError):
            use()
    latch.release()
    device.synchronize(deadline=10)
    assert state not in streams


def test_equality(device, stream):
    with device.create_stream() as other:
        assert stream == stream and stream != other and len({stream, other, stream}) == 2
    assert other != stream


def test_streams_that_are_never_waited_for_let_go(device, stream, monkeypatch):
    monkeypatch.setattr(stream_state, "MANY", 8)
    state, before = stream.state(), len(device.platform.registry)
    end = time.monotonic() + 60
    while state.done <= 100 and time.monotonic() < end:
        stream.fill(device.malloc(64), 1)
        if len(state.flights) > 16:  # a node that is busy with other things gets time, not more work
            time.sleep(0.02)
    gc.collect()
    device.platform.registry.sweep()
    assert state.done > 100 and len(device.platform.registry) - before < 100


def test_a_ring_is_not_filled(device, stream, latch, monkeypatch):
    """HIP would spin for ever inside the submission."""
    monkeypatch.setattr(stream_state, "MANY", 8)
    monkeypatch.setattr(stream_state, "FULL", 32)
    monkeypatch.setattr(stream_state, "_ROOM", 0.2)
    with device.malloc(64) as buffer:
        latch.hold(stream)
        with pytest.raises(DeadlineExceeded, match="the oldest work of .* within 0.2 s: .* is a launch of latch"):
            for _ in range(100):
                stream.fill(buffer, 1)
        assert stream.state().submitted == 33
        monkeypatch.setattr(stream_state, "_ROOM", 20.0)  # the machine may be busy with other things
        latch.release()
        for _ in range(100):
            stream.fill(buffer, 2)
        stream.synchronize(deadline=20)


def test_several_threads_submit(devices):
    """To streams of their own on every device, and all to one."""
    first = devices[0]
    shared, results, n = first.create_stream(), {}, 40

    def work(device):
        mine = device.create_stream()
        buffers = [device.malloc_host(512) for _ in range(n)]
        there = [device.malloc(512) for _ in range(n)]
        with first.malloc(512) as one:
            for i, (buffer, far) in enumerate(zip(buffers, there)):
                buffer.view()[:] = (device.ordinal * n + i) % 251
                mine.copy(far, buffer)
                buffer.view(np.uint8)
                shared.fill(one, i)
            mine.synchronize(deadline=30)
            for buffer, far in zip(buffers, there):
                buffer.view()[:] = 0
                mine.copy(buffer, far)
            mine.synchronize(deadline=30)
            shared.synchronize(deadline=30)
        results[device.ordinal] = [set(buffer.view().tolist()) for buffer in buffers]
        for each in (mine, *buffers, *there):
            each.close()

    threads = [threading.Thread(target=work, args=(device,)) for device in devices[:4]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert shared.state().submitted == n * len(threads)
    shared.close()
    for device in devices[:4]:
        assert results[device.ordinal] == [{(device.ordinal * n + i) % 251} for i in range(n)]


# CU masks


def test_masks_are_read_back(device, fetch):
    everything = CuMask.all(CuLayout.of(device.agent))
    few = everything.per_xcc(4)
    for mask in (few, everything - few, everything):
        with device.create_stream(cu_mask=mask) as stream, device.malloc(1000) as buffer:
            assert stream.cu_mask == mask and stream.blocking and stream.priority == "normal"
            assert stream.read_cu_mask() == mask.words and mask.matches(stream.read_cu_mask(), "hip")
            stream.fill(buffer, 0x3C)
            stream.synchronize(deadline=20)
            assert (fetch(buffer) == 0x3C).all()
    with device.create_stream() as stream:
        assert stream.cu_mask is None and everything.matches(stream.read_cu_mask(), "hip")


MASKED = """
    from hsakit import hip
    from hsakit.culayout import CuLayout
    from hsakit.cumask import CuMask
    device = hip.devices()[0]
    everything = CuMask.all(CuLayout.of(device.agent))
    first, rest = everything.split(64)
    for mask in (first, rest):
        try:
            with device.create_stream(cu_mask=mask) as stream:
                print("made", stream.cu_mask == mask, stream.read_cu_mask())
        except Exception as error:
            print(type(error).__name__, error)
"""


@pytest.mark.node
@pytest.mark.parametrize(
    "variable, lines",
    [
        (
            {"ROC_GLOBAL_CU_MASK": "0xffffffffffffffff"},
            [
                "made True None",  # HIP says success and writes nothing
                "InvalidArgument HIP device 0 does not give a stream .*: the mask has no CU in common with "
                "ROC_GLOBAL_CU_MASK: HIP drops it and silently takes the global mask. HIP reports no mask",
            ],
        ),
        (
            {"ROC_GLOBAL_CU_MASK": "0xffffffff"},
            ["InvalidArgument .*ROC_GLOBAL_CU_MASK takes away 32 of the 64 CUs", "InvalidArgument .*no CU in common"],
        ),
        (
            {"HSA_CU_MASK": "0:0-127"},
            ["made True \\(4294967295, 4294967295, 0,", "HipError hipExtStreamCreateWithCUMask: .*HSA_CU_MASK takes"],
        ),
    ],
)
def test_variables_that_limit_masks_are_named(script, variable, lines):
    done = script(MASKED, **variable)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == len(lines)
    for line, pattern in zip(said, lines):
        assert re.match(pattern, line), line
