"""What can be wrong with a kernel and its launch, through HIP and HSA: a clear error, and the next launch works."""

from __future__ import annotations

import numpy as np
import pytest

from hsakit import compiler
from hsakit.ffi.errors import CodeObjectError, DeadlineExceeded, InvalidArgument
from hsakit.pattern import MASK, Pattern

pytestmark = pytest.mark.node
PATTERN = Pattern(31, 0)
PAGE = 4096


class Hsa:
    """The first GPU through HSA: a queue, and a signal for all launches."""

    def __init__(self, runtime):
        self.gpu = runtime.gpus[0]
        self.arch = self.gpu.name
        self.load = self.gpu.load
        self.memory = runtime.cpus[0].pool("fine").allocate(PAGE, access=self.gpu)
        self._queue, self._done = self.gpu.create_queue(64), runtime.create_signal(0)

    def launch(self, prepared) -> None:
        self._done.store(1)
        prepared.launch(self._queue, self._done)

    def wait(self, deadline: float) -> None:
        self._done.wait(deadline=deadline)

    def close(self) -> None:
        for each in (self._queue, self._done, self.memory):
            each.close()


class Hip:
    """The first device of HIP: a stream."""

    def __init__(self, _):
        from hsakit import hip

        self.device = hip.devices()[0]
        self.arch = self.device.arch
        self.load = self.device.load
        self.memory = self.device.malloc_host(PAGE)
        self._stream = self.device.create_stream()

    def launch(self, prepared) -> None:
        prepared.launch(self._stream)

    def wait(self, deadline: float) -> None:
        self._stream.synchronize(deadline=deadline)

    def close(self) -> None:
        for each in (self._stream, self.memory):
            each.close()


@pytest.fixture(params=[Hip, Hsa], ids=["HIP", "HSA"])
def way(request, runtime):
    made = request.param(runtime)
    yield made
    made.close()


@pytest.fixture
def fill(way):
    """A kernel that must work after whatever the test did."""
    with way.load(compiler.kernels("pattern", way.arch)) as code:
        kernel = code.kernel("pattern_fill")
        yield kernel
        way.memory.view()[:] = 0xA5
        way.launch(kernel.prepare(1, 256, (way.memory, 1000, 0, PATTERN.base)))
        way.wait(deadline=30)
        assert (way.memory.view()[:1000] == PATTERN.bytes(0, 1000)).all() and (way.memory.view()[1000:] == 0xA5).all()


@pytest.mark.usefixtures("fill")
def test_a_truncated_code_object(way):
    whole = compiler.kernels("latch", way.arch).read_bytes()
    for length, said in (
        (len(whole) - 1, f"truncated: its ELF header speaks of {len(whole)} bytes, there are {len(whole) - 1}"),
        (len(whole) // 2, "truncated: "),
        (40, "truncated within its ELF header"),
    ):
        with pytest.raises(CodeObjectError, match=f"code object of {length} bytes: {said}"):
            way.load(whole[:length])


@pytest.mark.usefixtures("fill")
def test_the_wrong_target(way):
    other = "gfx90a" if way.arch != "gfx90a" else "gfx942"
    with pytest.raises(CodeObjectError, match=f"built for {other}, which does not run on {way.arch}"):
        way.load(compiler.kernels("latch", other))


@pytest.mark.usefixtures("fill")
def test_a_missing_kernel_name(way):
    with way.load(compiler.kernels("latch", way.arch)) as code:
        with pytest.raises(CodeObjectError, match="no kernel 'latsch'; it has .*latch, "):
            code.kernel("latsch")


def test_too_few_arguments(way, fill):
    with pytest.raises(InvalidArgument, match="pattern_fill takes 4 arguments, not 3: dst: a pointer, nbytes: 8 bytes"):
        fill.prepare(1, 256, (way.memory, 16, 0))


def test_a_float_for_a_pointer(fill):
    with pytest.raises(InvalidArgument, match=r"argument 0 \(dst\) of pattern_fill is a pointer: .*, not float 1.0"):
        fill.prepare(1, 256, (1.0, 16, 0, 0))


@pytest.mark.parametrize(
    "grid, block, lds, said",
    [
        pytest.param(0, 256, 0, r"grid 0: x, \(x, y\) or .* workgroups, each at least 1", id="a grid of zero"),
        pytest.param(1, 2048, 0, r"block \(2048, 1, 1\): GPU 0 takes at most 1024 work-items", id="a block of 2048"),
        pytest.param(1, 256, 65537, r"65537 bytes of LDS .*: GPU 0 has 65536 a workgroup", id="LDS over 64 KB"),
    ],
)
def test_a_shape_that_is_impossible(way, fill, grid, block, lds, said):
    with pytest.raises(InvalidArgument, match=said):
        fill.prepare(grid, block, (way.memory, 16, 0, 0), lds)


@pytest.mark.usefixtures("fill")
def test_an_infinite_loop(way):
    flag, report = way.memory.view(np.uint64), way.memory.address + 64
    flag[0] = 0
    with way.load(compiler.kernels("latch", way.arch)) as code:
        way.launch(code.kernel("latch").prepare(1, 64, (way.memory, 1, MASK, report)))
        with pytest.raises(DeadlineExceeded, match="(?s)(dispatch|launch) of latch.*never ends goes"):
            way.wait(deadline=0.3)
        flag[0] = 1  # nothing else ends it but the end of its queue, or of the process
        way.wait(deadline=30)


# --- a store one byte past a buffer, in a process of its own: a fault is the end of what was open ---------------------

STORE = """
    import sys
    from hsakit import compiler
    from hsakit.ffi.errors import GpuMemoryFault
    from hsakit.pattern import Pattern
    {open}
    # Neighbours on both sides: what is one's own is not what lies beyond it.
    before, buffer, behind = (allocate({nbytes}) for _ in range(3))
    last = -(-buffer.nbytes // 4096) * 4096  # the end of its last page
    launch = fill.prepare(1, 256, (buffer.address + last - 4096, 4096, 0, 0))
    submit(launch)
    launch.set("nbytes", 4097)
    print("first", flush=True)
    try:
        submit(launch)
    except GpuMemoryFault as fault:
        text, end = str(fault), buffer.address + last
        assert end <= fault.address < end + 4096 and fault.agent == gpu, text
        assert fault.offset == fault.address - buffer.address, fault.offset
        where = f"offset {{fault.offset}} of the buffer of {{buffer.nbytes}} bytes at 0x{{buffer.address:x}} on"
        assert where in text, text
        past = last - buffer.nbytes + 1
        assert f"{{past}} byte{{'' if past == 1 else 's'}} past its end" in text, text
        assert "In flight there: {work}" in text and any("pattern_fill" in each for each in fault.work), text
        assert "{advice}" in text, text
        print("named", flush=True)
"""

THROUGH_HSA = """
    from hsakit.hsa import Runtime
    runtime = Runtime()
    gpu = runtime.gpus[0]
    allocate = gpu.pool("coarse").allocate
    queue, done = gpu.create_queue(64), runtime.create_signal(1)
    fill = gpu.load(compiler.kernels("pattern", gpu.name)).kernel("pattern_fill")
    def submit(launch):
        done.store(1)
        launch.launch(queue, done)
        done.wait(deadline=30)
"""
THROUGH_HIP = """
    from hsakit import hip
    device = hip.devices()[0]
    gpu, allocate, stream = device.agent, device.malloc, device.create_stream()
    fill = device.load(compiler.kernels("pattern", device.arch)).kernel("pattern_fill")
    def submit(launch):
        launch.launch(stream)
        stream.synchronize(deadline=30)
"""
AGAIN = """
    with Runtime() as runtime:  # as the error says
        gpu = runtime.gpus[0]
        host = runtime.cpus[0].pool("fine").allocate(4096, access=gpu)
        fill = gpu.load(compiler.kernels("pattern", gpu.name)).kernel("pattern_fill")
        queue, done = gpu.create_queue(64), runtime.create_signal(1)
        submit(fill.prepare(1, 256, (host, 4096, 0, Pattern(1, 0).base)))
        print((host.view() == Pattern(1, 0).bytes(0, 4096)).all())
"""


@pytest.mark.parametrize("nbytes", [PAGE, 100], ids=["a page", "100 bytes: past its page"])
def test_a_store_past_a_buffer_through_hsa(script, nbytes):
    open_, work = THROUGH_HSA.strip(), "dispatch of pattern_fill (packet 1 of queue 0 on GPU 0)"
    advice = "close every Runtime of this process, then open a new one"
    done = script(STORE.format(open=open_, nbytes=nbytes, work=work, advice=advice) + "    runtime.close()\n" + AGAIN)
    assert (done.returncode, done.stdout) == (0, "first\nnamed\nTrue\n"), done.stderr


@pytest.mark.parametrize("nbytes", [PAGE, 100], ids=["a page", "100 bytes: past its page"])
def test_a_store_past_a_buffer_through_hip(script, nbytes):
    open_, work = THROUGH_HIP.strip(), "a launch of pattern_fill"
    advice = "HIP has no way to start anew: go on in a new one"
    done = script(STORE.format(open=open_, nbytes=nbytes, work=work, advice=advice))
    assert (done.returncode, done.stdout) == (0, "first\nnamed\n"), done.stderr
    done = script(
        f"""
    from hsakit import compiler
    {THROUGH_HIP.strip()}
    from hsakit.pattern import Pattern
    host = device.malloc_host(4096)
    submit(fill.prepare(1, 256, (host, 4096, 0, Pattern(1, 0).base)))
    print((host.view() == Pattern(1, 0).bytes(0, 4096)).all())
    """
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
