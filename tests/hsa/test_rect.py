import numpy as np
import pytest

from hsakit.ffi.errors import InvalidArgument
from hsakit.hsa import Pitched
from hsakit.pattern import Pattern


def _copy(gpu, *arguments, **options):
    with gpu.copy_rect(*arguments, **options) as done:
        done.wait(deadline=10)


@pytest.mark.parametrize(
    "extent, origin, other", [((37, 5, 1), (4, 2, 0), (9, 1, 0)), ((16, 3, 4), (0, 1, 1), (48, 0, 2))]
)
def test_rectangles_arrive_and_nothing_else(runtime, gpu, host, extent, origin, other):
    """Host to GPU at one place, and back at another."""
    shape = (8, 8, 64)  # planes, rows, bytes
    nbytes = int(np.prod(shape))
    (x, y, z), (u, v, w), (width, height, depth) = origin, other, extent
    with host(nbytes) as source, host(nbytes) as back, gpu.pool("coarse").allocate(nbytes) as device:
        source.view()[:] = Pattern(1, 0).bytes(0, nbytes)
        back.view()[:] = 0xEE
        for start in range(0, nbytes, 512):
            with gpu.engine(0).copy(device[start : start + 512], back[start : start + 512]) as done:
                done.wait(deadline=10)
        _copy(gpu, Pitched(device, 64, 512, other), Pitched(source, 64, 512, origin), extent)
        _copy(gpu, Pitched(back, 64, 512), Pitched(device, 64, 512), (64, 8, 8))
        expected = np.full(shape, 0xEE, np.uint8)
        taken = source.view().reshape(shape)[z : z + depth, y : y + height, x : x + width]
        expected[w : w + depth, v : v + height, u : u + width] = taken
        assert (back.view().reshape(shape) == expected).all()


def test_pitches_differ(runtime, gpu, host):
    with host(100 * 20) as source, host(10 * 12) as back, gpu.pool("coarse").allocate(4096) as device:
        source.view()[:] = Pattern(2, 0).bytes(0, source.nbytes)
        _copy(gpu, Pitched(device, 60), Pitched(source, 100, origin=(3, 7, 0)), (12, 10, 1))
        _copy(gpu, Pitched(back, 12), Pitched(device, 60), (12, 10, 1))
        assert (back.view().reshape(10, 12) == source.view().reshape(20, 100)[7:17, 3:15]).all()


def test_it_waits_and_has_times(runtime, gpu, host, gate):
    with host(4096) as source, gpu.pool("coarse").allocate(4096) as device:
        done = gpu.copy_rect(Pitched(device, 64), Pitched(source, 64), (64, 64, 1), after=[gate])
        assert done.value == 1 and "engine 0 of GPU 0" in done.operation
        gate.store(0)
        done.wait(deadline=10)
        start, end = done.times
        assert 0 < start < end
        done.close()


@pytest.mark.parametrize(
    "dst, src, extent, message",
    [
        ({}, {}, (0, 1, 1), "each at least 1"),
        ({}, {}, (1, 1), "each at least 1"),
        ({"pitch": 30}, {}, (8, 1, 1), "dst: pitch 30 is no multiple of 4"),
        ({}, {"slice_pitch": 66}, (8, 1, 1), "src: slice_pitch 66 is no multiple of 4"),
        ({}, {"origin": (60, 0, 0)}, (8, 1, 1), "src: 8 bytes from 60 on do not fit a pitch of 64"),
        ({}, {"origin": (-4, 0, 0)}, (8, 1, 1), "negative"),
        ({}, {}, (8, 1, 2), "dst: a depth of 2 needs a slice_pitch"),
        (
            {"slice_pitch": 128},
            {"slice_pitch": 128},
            (8, 3, 1),
            "dst: 3 rows from 0 on do not fit a slice_pitch of 128",
        ),
        ({}, {}, (64, 65, 1), "dst: the rectangle ends 64 bytes behind"),
        ({"origin": (0, 60, 0)}, {}, (8, 5, 1), "dst: the rectangle ends 8 bytes behind"),
    ],
)
def test_what_does_not_fit_is_refused(runtime, gpu, host, dst, src, extent, message):
    with host(4096) as source, gpu.pool("coarse").allocate(4096) as device:
        with pytest.raises(InvalidArgument, match=message):
            gpu.copy_rect(Pitched(device, **{"pitch": 64, **dst}), Pitched(source, **{"pitch": 64, **src}), extent)


def test_addresses_are_aligned_and_granted(runtime, gpu, host):
    with host(4096) as source, gpu.pool("coarse").allocate(4096) as device:
        with pytest.raises(InvalidArgument, match="src: address .* is no multiple of 4"):
            gpu.copy_rect(Pitched(device, 64), Pitched(source[2:], 64), (8, 1, 1))
        with runtime.cpus[0].pool("fine").allocate(64) as ungranted:
            with pytest.raises(InvalidArgument, match="was not granted"):
                gpu.copy_rect(Pitched(device, 64), Pitched(ungranted, 64), (8, 1, 1))
