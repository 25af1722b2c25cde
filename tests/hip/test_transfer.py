"""Copies and fills, by their bytes. The last test runs the others with HSA_ENABLE_SDMA=0, where kernels copy."""

import os
import subprocess
import sys

import numpy as np
import pytest

from hsakit.ffi.errors import DeadlineExceeded, InvalidArgument

WITHOUT_ENGINES = os.environ.get("HSA_ENABLE_SDMA") == "0"
PLACES = ("device", "peer", "pinned", "array")
EDGE = 0xEE
RECTANGLES = ((64, 4, 128, 64), (33, 5, 64, 40), (100, 3, 101, 103), (256, 16, 256, 256))


@pytest.fixture
def bench(request, device, stream):
    class Bench:
        """Memory in each place, with what is around the bytes of a test poisoned."""

        def __init__(self):
            self.buffers = []
            self.rng = np.random.default_rng(42)

        def make(self, place, nbytes):
            if place == "array":
                return np.full(nbytes, EDGE, np.uint8)
            there = request.getfixturevalue("peer") if place == "peer" else device
            memory = there.malloc_host(nbytes) if place == "pinned" else there.malloc(nbytes)
            self.buffers.append(memory)
            self.put(memory, np.full(nbytes, EDGE, np.uint8))
            return memory

        def put(self, memory, data):
            if isinstance(memory, np.ndarray):
                memory[:] = data
            else:
                stream.copy(memory, data)

        def get(self, memory):
            if isinstance(memory, np.ndarray):
                return memory.copy()
            out = np.zeros(memory.nbytes, np.uint8)
            stream.copy(out, memory)
            return out

        def random(self, nbytes):
            return self.rng.integers(0, 256, nbytes, dtype=np.uint8)

    made = Bench()
    yield made
    for buffer in made.buffers:
        buffer.close()


@pytest.mark.parametrize("dst", PLACES)
@pytest.mark.parametrize("src", PLACES)
def test_copies(bench, stream, src, dst):
    for nbytes, at, to in ((1, 0, 0), (5, 3, 1), (4096, 0, 0), (4097, 1, 2), (70_001, 7, 5), (1 << 20, 64, 128)):
        source, target = bench.make(src, nbytes + 256), bench.make(dst, nbytes + 256)
        data = bench.random(nbytes + 256)
        bench.put(source, data)
        stream.copy(target[to : to + nbytes], source[at : at + nbytes])
        stream.synchronize(deadline=20)
        expected = np.full(nbytes + 256, EDGE, np.uint8)
        expected[to : to + nbytes] = data[at : at + nbytes]
        assert np.array_equal(bench.get(target), expected), (nbytes, at, to)


@pytest.mark.parametrize("dst", PLACES)
@pytest.mark.parametrize("src", PLACES)
def test_rectangles(bench, stream, src, dst):
    for width, height, dst_pitch, src_pitch in RECTANGLES:
        n = 16 + height * max(dst_pitch, src_pitch)
        source, target = bench.make(src, n), bench.make(dst, n)
        data = bench.random(n)
        bench.put(source, data)
        shape = {"width": width, "height": height, "dst_pitch": dst_pitch, "src_pitch": src_pitch}
        stream.copy_2d(target[16:], source[8:], **shape)
        stream.synchronize(deadline=20)
        expected = np.full(n, EDGE, np.uint8)
        for row in range(height):
            to, at = 16 + row * dst_pitch, 8 + row * src_pitch
            if to + width <= n:
                expected[to : to + width] = data[at : at + width]
        assert np.array_equal(bench.get(target), expected), shape


@pytest.mark.parametrize("width, value", [(1, 0x5A), (1, -1), (2, 0x1234), (4, 0xDEADBEEF), (4, -2), (4, 7)])
@pytest.mark.parametrize("place", ["device", "peer", "pinned"])
def test_fills(bench, stream, place, width, value):
    for at, count in ((0, 16), (4, 1), (4, 3), (8, 1000), (12, 4097), (0, 1 << 18)):
        target = bench.make(place, at + count * width + 64)
        stream.fill(target[at : at + count * width], value, width)
        stream.synchronize(deadline=20)
        expected = np.full(target.nbytes, EDGE, np.uint8)
        word = (value % (1 << 8 * width)).to_bytes(width, "little")
        expected[at : at + count * width] = np.frombuffer(word * count, np.uint8)
        assert np.array_equal(bench.get(target), expected), (at, count)


def test_copies_and_fills_that_are_complete_on_return(bench, device, latch):
    source, target, back = bench.make("device", 5000), bench.make("peer", 5000), bench.make("pinned", 5000)
    device.fill(source, 0x1234, 2)
    device.copy(target, source)
    device.copy(back, target)
    assert (back.view(np.uint16) == 0x1234).all()
    latch.hold(device.default_stream)
    for use in (lambda: device.copy(target, source, deadline=0.1), lambda: device.fill(source, 0, deadline=0.1)):
        with pytest.raises(DeadlineExceeded, match="the default stream of HIP device 0 did not complete within 0.1 s"):
            use()


def test_managed_memory(bench, device, stream):
    if not device.attribute("ManagedMemory"):
        pytest.skip("this device has no managed memory")
    with device.malloc_managed(10_000) as managed:
        data = bench.random(10_000)
        for place in PLACES:
            other = bench.make(place, 10_000)
            stream.copy(managed, data)
            stream.copy(other, managed)
            stream.synchronize(deadline=20)
            assert np.array_equal(bench.get(other), data)
            stream.fill(managed, 1)
            stream.copy(managed[1:], other[1:])
            stream.synchronize(deadline=20)
            assert np.array_equal(managed.view()[1:], data[1:]) and managed.view()[0] == 1


def test_work_of_a_stream_is_in_order(device, stream, bench):
    """Each step depends on the one before, and none is waited for."""
    a, b, host = bench.make("device", 1 << 16), bench.make("peer", 1 << 16), bench.make("pinned", 1 << 16)
    for i in range(20):
        stream.fill(a, i)
        stream.copy(b, a)
        stream.fill(a, 0xFF)
        stream.copy(host[i * 64 : i * 64 + 64], b[i * 64 : i * 64 + 64])
    stream.synchronize(deadline=20)
    assert (host.view()[: 20 * 64].reshape(20, 64) == np.arange(20)[:, None]).all()


def test_memory_of_hsa(runtime, device, stream, bench):
    data = bench.random(5000)
    pool = runtime.cpus[0].pool("fine")
    with pool.allocate(5000) as hidden, device.malloc(5000) as there:
        for copy in (lambda: stream.copy(there, hidden), lambda: stream.copy(hidden, there)):
            with pytest.raises(InvalidArgument, match="host memory of HSA. was not granted to GPU 0"):
                copy()
    with pool.allocate(5000, access=runtime.gpus[0]) as host, device.malloc(5000) as there:
        with pytest.raises(InvalidArgument, match="was not granted to GPU 1"):
            stream.copy(bench.make("peer", 5000), host)
        host.view()[:] = data
        stream.copy(there, host[:])
        host.view()[:] = 0
        stream.copy(host[100:], there[100:])
        assert np.array_equal(host.view()[100:], data[100:]) and not host.view()[:100].any()
    with runtime.gpus[0].pool("coarse").allocate(5000) as far, device.malloc(5000) as there:
        with pytest.raises(InvalidArgument, match="src: HIP does not know <Buffer .* by an engine or a kernel"):
            stream.copy(there, far)
        with pytest.raises(InvalidArgument, match="dst: HIP does not know"):
            stream.fill(far, 0)


def test_what_hip_copies_while_the_caller_waits_has_a_deadline(device, stream, latch, bench):
    array, pinned, other = np.zeros(4096, np.uint8), bench.make("pinned", 4096), bench.make("pinned", 4096)
    there, managed = bench.make("device", 4096), device.malloc_managed(4096)
    latch.hold(stream)
    flat = {"width": 64, "height": 4, "dst_pitch": 64, "src_pitch": 64}
    for use in (
        lambda: stream.copy(array, there, deadline=0.1),
        lambda: stream.copy(there, array, deadline=0.1),
        lambda: stream.copy(pinned, other, deadline=0.1),
        lambda: stream.copy_2d(pinned, other, **flat, deadline=0.1),
        lambda: stream.copy_2d(there, array, **flat, deadline=0.1),
        lambda: stream.fill(pinned, 0, deadline=0.1),
        lambda: stream.fill(managed, 0, deadline=0.1),
    ):
        with pytest.raises(DeadlineExceeded, match="a launch of latch"):
            use()
    # These return at once.
    stream.copy(there, pinned)
    stream.copy(pinned, there)
    stream.copy_2d(there, pinned, **flat)
    stream.copy_2d(pinned, there, **flat)
    stream.copy(managed, there)
    stream.fill(there, 9)
    assert not stream.query()
    latch.release()
    stream.synchronize(deadline=10)
    managed.close()


def test_what_is_refused(device, stream):
    frozen = np.zeros(64, np.uint8)
    frozen.flags.writeable = False
    with device.malloc(64) as buffer, device.malloc(32) as small:
        for wrong, match in (
            (lambda: stream.copy(buffer, small), "dst has 64 bytes and src has 32: give nbytes"),
            (lambda: stream.copy(buffer, small, 33), "33 bytes do not fit: dst has 64, src has 32"),
            (lambda: stream.copy(buffer, small, 0), "a copy has at least 1"),
            (lambda: stream.copy(buffer, small, 1.0), "1.0 bytes do not fit"),
            (lambda: stream.copy(buffer[8:40], buffer[:32]), "overlap"),
            (lambda: stream.copy(frozen, buffer), "dst: an array must be C-contiguous, and writable"),
            (lambda: stream.copy(buffer, np.zeros((8, 16), np.uint8)[:, :8]), "src: an array must be C-contiguous"),
            (lambda: stream.copy(buffer, b"x" * 64), "src: b'x+' is neither a Buffer"),
            (lambda: stream.copy(buffer.address, buffer), "dst: [0-9]+ is neither"),
            (lambda: stream.fill(buffer, 256), "256 is no number of 1 bytes"),
            (lambda: stream.fill(buffer, 0, 8), "width 8: a fill repeats a number of 1, 2 or 4 bytes"),
            (lambda: stream.fill(buffer[:6], 0, 4), "no whole number of 4-byte words"),
            (lambda: stream.fill(buffer[1:5], 0, 4), "aligned to 4"),
            (lambda: stream.fill(buffer[:0], 0), "nothing to fill"),
            (lambda: stream.fill(frozen, 0), "was not allocated by HIP: fill it with numpy"),
        ):
            with pytest.raises(InvalidArgument, match=match):
                wrong()
        shape = {"width": 8, "height": 4, "dst_pitch": 8, "src_pitch": 8}
        for change, match in (
            ({"width": 0}, "each is at least 1"),
            ({"height": -1}, "each is at least 1"),
            ({"dst_pitch": 7}, "dst: rows of 8 bytes do not fit a pitch of 7"),
            ({"src_pitch": 10}, "src: the rows end 6 bytes behind its 32 bytes at 0x"),
        ):
            with pytest.raises(InvalidArgument, match=match):
                stream.copy_2d(buffer, small, **{**shape, **change})
        assert not stream.state().submitted


@pytest.mark.skipif(WITHOUT_ENGINES, reason="this is the run without engines")
@pytest.mark.node
@pytest.mark.deadline(600)
def test_without_engines(request):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "copies or rectangles or fills or order",
            __file__,
        ],
        env={**os.environ, "HSA_ENABLE_SDMA": "0"},
        capture_output=True,
        text=True,
        timeout=580,
        cwd=request.config.rootpath,
    )
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout + done.stderr
