import pytest

from hsakit import compiler
from hsakit.ffi.errors import ClosedError, DeadlineExceeded, InvalidArgument
from hsakit.hip.module import Module


def test_elapsed_time(device, stream):
    """Of a kernel that naps for a thousand times 8128 clocks."""
    path = compiler.kernels("census", device.arch)
    with Module.load(path, device) as module, device.malloc_host(4096) as memory:
        naps = module.kernel("census").prepare(1, 64, (memory.address, 1000))
        naps.launch(stream)
        with device.create_event() as start, device.create_event() as stop:
            stream.synchronize(deadline=10)
            start.record(stream)
            naps.launch(stream)
            assert stream.record(stop) is stop
            stop.synchronize(deadline=10)
            assert 3 < stop.elapsed_since(start) < 1000  # no part's clock is above 2.5 GHz
            assert start.elapsed_since(stop) == pytest.approx(-stop.elapsed_since(start))
            assert start.query() and stop.query() and stop.elapsed_since(stop) == 0


def test_an_event_says_what_is_before_it(device, stream, latch):
    with device.malloc(64) as buffer:
        stream.fill(buffer, 1)
        first = stream.record()
        latch.hold(stream)
        second = stream.record()
        first.synchronize(deadline=10)
        assert first.query() and not second.query()
        label = stream.state().label
        assert f"after 1 submissions to {label}" in repr(first) and f"after 3 submissions to {label}" in repr(second)
        with pytest.raises(DeadlineExceeded, match=f"after 3 submissions to {label}> did not complete within 0.1 s"):
            second.synchronize(deadline=0.1)
        with pytest.raises(InvalidArgument, match="is not complete and has no time yet"):
            second.elapsed_since(first)
        latch.release()
        second.synchronize(deadline=10)
        assert len(stream.state().flights) <= 1  # what is before the event was let go


def test_recording_again_moves_it(device, stream, latch):
    event = stream.record()
    event.synchronize(deadline=10)
    latch.hold(stream)
    event.record(stream)
    assert not event.query()
    latch.release()
    event.synchronize(deadline=10)


def test_the_default_stream(device):
    with device.malloc(64) as buffer:
        device.default_stream.fill(buffer, 1)
        event = device.create_event().record()
        event.synchronize(deadline=10)
        assert event.recorded.state is device.default_stream.state()


def test_what_has_no_time(devices, device, peer, stream):
    start = stream.record()
    with device.create_event(timing=False) as untimed, device.create_event() as new:
        stream.record(untimed)
        stream.synchronize(deadline=10)
        assert untimed.query()
        with pytest.raises(InvalidArgument, match="has no time: it was created with timing=False"):
            untimed.elapsed_since(start)
        for use in (new.query, new.synchronize, lambda: new.elapsed_since(start), lambda: stream.wait_event(new)):
            with pytest.raises(InvalidArgument, match="never recorded"):
                use()
    with peer.create_event() as other:
        with pytest.raises(InvalidArgument, match="cannot be recorded in .*: create one by HIP device 0"):
            other.record(stream)
        other.record()
        other.synchronize(deadline=10)
        with pytest.raises(InvalidArgument, match="are of two devices"):
            other.elapsed_since(start)


def test_closed(device, stream):
    event = stream.record()
    event.close()
    event.close()
    assert repr(event) == "<Event closed>"
    for use in (event.query, event.synchronize, lambda: event.record(stream), lambda: stream.wait_event(event)):
        with pytest.raises(ClosedError):
            use()


def test_a_stream_waits_for_an_event(device, peer, latch, stream):
    with peer.create_stream() as other, peer.malloc(1 << 12) as there, device.malloc(1 << 12) as here:
        device.fill(here, 0x10)
        peer.fill(there, 0x20)
        latch.hold(stream)
        stream.fill(here, 0x11)
        event = stream.record()
        other.wait_event(event)
        event.close()  # the wait holds it
        other.copy(there, here)
        with pytest.raises(DeadlineExceeded, match=f"the next is a wait for 2 submissions to {stream.state().label}"):
            other.synchronize(deadline=0.2)
        latch.release()
        other.synchronize(deadline=10)
        with peer.malloc_host(1 << 12) as back:
            other.copy(back, there)
            other.synchronize(deadline=10)
            assert (back.view() == 0x11).all()
