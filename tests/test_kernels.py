"""The prepared launches, through HSA and through HIP: grids that cover all, arguments in their places, refusals."""

from contextlib import ExitStack

import numpy as np
import pytest

from hsakit.ffi.errors import ClosedError, InvalidArgument
from hsakit.kernels import (
    BLOCK,
    MISMATCH,
    NOWHERE,
    PLACE,
    RELEASED,
    REPORT,
    RUNS,
    SENT_TO,
    STEP,
    TAKEN_BY,
    TARGET,
    TIMED_OUT,
    Kernels,
    ring_nbytes,
)
from hsakit.pattern import Pattern

PATTERN = Pattern(3, 1)


class ThroughHsa:
    def __init__(self, runtime, stack):
        self.gpu = runtime.gpus[0]
        self._runtime, self._stack = runtime, stack
        self._queue = stack.enter_context(self.gpu.create_queue(64))

    def host(self, nbytes):
        """Memory that host and GPU access while kernels run."""
        pool = self._runtime.cpus[0].pool("fine")
        return self._stack.enter_context(pool.allocate(nbytes, access=self.gpu))

    def device(self, nbytes):
        return self._stack.enter_context(self.gpu.pool("coarse").allocate(nbytes))

    def put(self, dst, array):
        staged = self.host(array.nbytes)
        staged.view(array.dtype)[:] = array.reshape(-1)
        self._copy(dst, staged)

    def get(self, src, dtype):
        staged = self.host(src.nbytes)
        self._copy(staged, src)
        return staged.view(dtype).copy()

    def _copy(self, dst, src):
        engine = self.gpu.engine(0 if dst.agent is self.gpu else 1)  # gfx90a: engine 0 only from the host
        engine.copy(dst, src, min(dst.nbytes, src.nbytes)).wait()

    def start(self, launch):
        launch.launch(self._queue)

    def wait(self):
        self._queue.drain(deadline=60)


class ThroughHip:
    def __init__(self, stack):
        from hsakit import hip

        self.gpu = hip.devices()[0]
        self._stack = stack
        self._stream = stack.enter_context(self.gpu.create_stream())

    def host(self, nbytes):
        return self._stack.enter_context(self.gpu.malloc_host(nbytes))

    def device(self, nbytes):
        return self._stack.enter_context(self.gpu.malloc(nbytes))

    def put(self, dst, array):
        self.gpu.copy(dst[: array.nbytes], array.reshape(-1).view(np.uint8))

    def get(self, src, dtype):
        out = np.zeros(src.nbytes, np.uint8)
        self.gpu.copy(out, src)
        return out.view(dtype)

    def start(self, launch):
        launch.launch(self._stream)

    def wait(self):
        self._stream.synchronize(deadline=60)


@pytest.fixture(params=["hsa", "hip"])
def place(request, runtime):
    with ExitStack() as stack:
        made = ThroughHsa(runtime, stack) if request.param == "hsa" else ThroughHip(stack)
        yield made


@pytest.fixture
def kernels(place):
    with Kernels(place.gpu) as made:
        yield made


def run(place, launch):
    place.start(launch)
    place.wait()


@pytest.mark.parametrize("dtype, layout, gap", [("f32", "nn", 0), ("f32", "tn", 3), ("f16", "nt", 1), ("f16", "tt", 0)])
def test_gemm(place, kernels, dtype, layout, gap):
    m, n, k = 130, 71, 37
    kind = {"f32": np.float32, "f16": np.float16}[dtype]
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((m, k)).astype(kind), rng.standard_normal((k, n)).astype(kind)
    memory, pitches = [], []
    for matrix in (a if layout[0] == "n" else a.T, b if layout[1] == "n" else b.T, np.zeros((m, n), kind)):
        padded = np.pad(matrix, ((0, 0), (0, gap)), constant_values=7)
        buffer = place.device(padded.nbytes)
        place.put(buffer, padded)
        memory.append(buffer)
        pitches.append(padded.shape[1])
    given = dict(zip(("lda", "ldb", "ldc"), pitches)) if gap else {}
    run(place, kernels.gemm(dtype, layout, *memory, m, n, k, **given))
    c = place.get(memory[2], kind).reshape(m, n + gap)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = np.linalg.norm(c[:, :n] - exact) / np.linalg.norm(exact)
    assert error < {"f32": 1e-6, "f16": 4e-3}[dtype]
    assert (c[:, n:] == 7).all()


def test_gemm_takes_the_tile_that_is_named(place, kernels):
    memory = [place.device(2 * 300 * 300) for _ in range(3)]
    for tile, grid in ((None, (3, 3, 1)), ((128, 128), (3, 3, 1)), ((256, 128), (3, 2, 1))):
        launch = kernels.gemm("bf16", "nt", *memory, 300, 300, 300, tile=tile)
        assert launch.geometry.grid == grid


@pytest.mark.parametrize("nbytes, workgroups", [(100_003, None), (100_003, 3), (5, None)])
def test_copy(place, kernels, nbytes, workgroups):
    src, dst = place.host(nbytes + 1), place.host(nbytes + 3)
    src.view()[1:] = PATTERN.bytes(0, nbytes)
    dst.view()[:] = 0xA5
    run(place, kernels.copy(dst[3:], src[1:], workgroups=workgroups))
    assert (dst.view()[3:] == PATTERN.bytes(0, nbytes)).all() and (dst.view()[:3] == 0xA5).all()
    dst.view()[:] = 0xA5
    run(place, kernels.copy(dst, src[1:], 2))
    assert (dst.view()[2:] == 0xA5).all() and (dst.view()[:2] == PATTERN.bytes(0, 2)).all()


def test_exchange(place, kernels):
    """Between two halves of one GPU's memory: a block for two targets, one of another size, flags, a late one."""
    src, dst = place.host(30_000), [place.host(30_000) for _ in range(3)]
    src.view()[:] = PATTERN.bytes(0, 30_000)
    tables, inbox, late, runs = place.host(1024), place.host(24), place.host(8), place.device(RUNS.itemsize)
    inbox.view()[:] = late.view()[:] = 0
    place.put(runs, np.zeros(2, np.uint64))
    blocks = tables[: 2 * BLOCK.itemsize]
    targets = tables[512 : 512 + 3 * TARGET.itemsize]
    blocks.view(BLOCK)[:] = [(src.address, 30_000, 0, 2), (src.address + 5, 999, 2, 1)]
    targets.view(TARGET)[:] = [(each.address, inbox.address + 8 * p) for p, each in enumerate(dst)]
    launch = kernels.exchange(blocks, targets, runs, inbox, late, senders=3, workgroups=3, limit=50, hold=[src, *dst])
    assert {src.handle(), *(each.handle() for each in dst)} <= set(launch.buffers())
    for run_ in (1, 2):
        for each in dst:
            each.view()[:] = 0xA5
        run(place, launch)
        assert (dst[0].view() == src.view()).all() and (dst[1].view() == src.view()).all()
        assert (dst[2].view()[:999] == src.view()[5:1004]).all() and (dst[2].view()[999:] == 0xA5).all()
        assert list(inbox.view(np.uint64)) == [run_] * 3 and late.view(np.uint64)[0] == 0
    targets.view(TARGET)["flag"][1] = 0
    run(place, launch)
    assert late.view(np.uint64)[0] == 2 and list(inbox.view(np.uint64)) == [3, 2, 3]


def test_reduce(place, kernels):
    src = [place.host(4 * 10_001) for _ in range(3)]
    dst = place.host(4 * 10_001)
    for p, each in enumerate(src):
        each.view(np.int32)[:] = np.arange(10_001) * (p + 1) - 5
    run(place, kernels.reduce("i32", dst, src))
    assert (dst.view(np.int32) == np.arange(10_001) * 6 - 15).all()
    run(place, kernels.reduce("i32", src[1], src, workgroups=2))
    assert (src[1].view() == dst.view()).all()
    assert {src[0].handle(), dst.handle()} <= set(kernels.reduce("f16", dst, src).buffers())


def test_ring_of_one_rank_and_a_neighbour_that_does_not_come(place, kernels):
    source, target = place.host(100_001), place.host(100_001)
    memory, late, table = place.host(ring_nbytes(2, 2, 4096)), place.host(8), place.host(2 * STEP.itemsize)
    memory.view()[:] = late.view()[:] = 0
    source.view()[:] = PATTERN.bytes(0, 100_001)
    steps = table.view(STEP)

    def go(limit=NOWHERE):
        settings = {"workgroups": 2, "slots": 2, "slice_": 4096, "limit": limit, "hold": [source, target]}
        launch = kernels.ring(table, 100_001, (memory, memory, memory), late, **settings)
        assert {source.handle(), target.handle(), memory.handle()} <= set(launch.buffers())
        run(place, launch)
        return int(late.view(np.uint64)[0])

    # to itself: what it sends in the first step it receives in the second
    steps[:] = [(source.address, 0, 100_001, 0, 1), (0, target.address, 100_001, 1, 0)]
    for _ in range(2):
        target.view()[:] = 0
        assert go() == 0 and (target.view() == source.view()).all()
    steps[:] = [(source.address, 0, 100_001, 0, 0), (0, target.address, 100_001, 1, 0)]
    assert go(limit=5) == 1 << 8 | SENT_TO
    late.view()[:] = memory.view()[:] = 0
    steps[:] = [(source.address, 0, 100_001, 0, 1), (0, 0, 0, 0, 0)]
    assert go(limit=5) == 0 << 8 | TAKEN_BY


def test_fill_and_compare(place, kernels):
    nbytes = 50_001
    memory, mismatch = place.device(nbytes), place.device(MISMATCH.itemsize)
    run(place, kernels.fill(memory[1:], PATTERN, offset=77))
    held = place.get(memory, np.uint8)
    assert (held[1:] == PATTERN.bytes(77, nbytes - 1)).all()

    def compared(offset):
        place.put(mismatch, np.array([(0, NOWHERE)], MISMATCH).view(np.uint64))
        run(place, kernels.compare(memory[1:], PATTERN, mismatch, offset))
        return tuple(int(word) for word in place.get(mismatch, np.uint64))

    assert compared(77) == (0, NOWHERE)
    held[1 + 1234] ^= 1
    held[1 + 40_000] ^= 0x80
    place.put(memory, held)
    assert compared(77) == (2, 1234)
    count, first = compared(78)
    assert count > 0.9 * nbytes and first < 10


def test_census_latch_stamp_empty(place, kernels):
    workgroups = 20
    places, ticks = place.host(workgroups * PLACE.itemsize), place.host(16)
    flag, report = place.host(8), place.host(2 * REPORT.itemsize)
    for each in (places, ticks, flag, report):
        each.view()[:] = 0
    place.start(kernels.stamp(ticks))
    place.start(kernels.census(places, workgroups, naps=1, lds=65536))
    place.start(kernels.latch(flag, report, released=0, workgroups=2))
    place.start(kernels.empty((3, 2)))
    place.start(kernels.stamp(ticks[8:]))
    place.wait()
    first, last = ticks.view(np.uint64)
    seen = places.view(PLACE)
    assert (seen["start"] < seen["end"]).all() and first < seen["start"].min() and seen["end"].max() < last
    assert len(set(seen[["xcc", "se", "cu"]].tolist())) == workgroups
    assert (report.view(REPORT)["state"] == RELEASED).all()
    run(place, kernels.latch(flag, report, limit=3))
    assert report.view(REPORT)[0]["state"] == TIMED_OUT and report.view(REPORT)[0]["looks"] == 3


def test_refusals(place, kernels):
    small, large = place.host(100), place.host(200)
    f32 = ("f32", "nn", large, large, small)
    for wrong, said in (
        (
            lambda: kernels.gemm("f64", "nn", large, large, small, 1, 1, 1),
            "gemm 'f64' 'nn': f32, f16, bf16, and nn, nt",
        ),
        (lambda: kernels.gemm(*f32, 1, 0, 1), "each is at least 1"),
        (lambda: kernels.gemm(*f32, 1, 1, 1 << 31), r"less than 2\*\*31"),
        (lambda: kernels.gemm(*f32, 1, 1, 1, tile=(128, 128)), r"gemm f32 in tiles \(128, 128\): \(64, 64\)"),
        (lambda: kernels.gemm(*f32, 6, 5, 5), "c: .* is smaller than the 120 bytes"),
        (lambda: kernels.gemm(*f32, 5, 5, 5, lda=4), "lda=4: lines of a have 5 elements"),
        (lambda: kernels.gemm(*f32, 5, 5, 5, lda=12), "a: .* is smaller than the 212 bytes"),
        (lambda: kernels.gemm("f32", "nn", large[2:], large, small, 2, 2, 2), "a: .* not aligned to its elements of 4"),
        (lambda: kernels.copy(small, large), "dst: .* is smaller than the 200 bytes"),
        (lambda: kernels.reduce("f64", small, [large]), "sums of 'f64': there are f32, f16, bf16, i32"),
        (lambda: kernels.reduce("f32", small, [large] * 9), "9 sources: a reduction has 1 to 8"),
        (lambda: kernels.reduce("f32", small[:6], [large]), "dst: .* no whole number of elements of 4 bytes"),
        (lambda: kernels.reduce("f32", large, [small]), r"src\[0\]: .* is smaller than the 200 bytes"),
        (lambda: kernels.reduce("f32", small[4:], [large[2:]]), r"src\[0\]: .* not aligned to 4 bytes"),
        (
            lambda: kernels.exchange(large[:25], *(large,) * 4, senders=1, workgroups=1),
            "no whole number of blocks of 24",
        ),
        (lambda: kernels.exchange(large[:24], large[:8], *(large,) * 3, senders=1, workgroups=1), "number of targets"),
        (lambda: kernels.exchange(*(large[:48],) * 5, senders=7, workgroups=1), "inbox: .* smaller than the 56 bytes"),
        (
            lambda: kernels.ring(large[:64], 1, (large,) * 3, small, workgroups=1, slots=1),
            "at least 1 workgroup and 2 s",
        ),
        (lambda: kernels.ring(large[:64], 1, (large,) * 3, small, workgroups=1), "mine: .* is smaller than the 131136"),
        (lambda: kernels.ring(large[:60], 1, (large,) * 3, small, workgroups=1), "no whole number of STEPs"),
        (lambda: kernels.compare(large, PATTERN, small[:8]), "mismatch: .* is smaller than the 16 bytes"),
        (lambda: kernels.census(small, 4), "places: .* is smaller than the 128 bytes"),
        (lambda: kernels.latch(small[:4], large), "flag: .* is smaller than the 8 bytes"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            wrong()


def test_closed(place):
    kernels = Kernels(place.gpu)
    launch = kernels.empty()
    run(place, launch)
    kernels.close()
    kernels.close()
    with pytest.raises(ClosedError):
        kernels.empty()
    with pytest.raises(ClosedError):
        place.start(launch)
    assert "closed" in repr(kernels)
