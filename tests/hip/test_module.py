"""Code objects and launches through HIP; the same code gives the same bytes through HSA."""

import gc
import struct
import threading
import weakref

import pytest

from hsakit import codeobject, compiler
from hsakit.ffi.errors import ClosedError, DeadlineExceeded, InvalidArgument
from hsakit.hip.module import Module
from hsakit.pattern import Pattern

SEED = 12


def base(rank: int) -> int:
    return Pattern(SEED, rank).base


@pytest.fixture
def load(device):
    """``load(family)``: a module of the first device."""
    loaded = {}

    def get(family):
        if family not in loaded:
            loaded[family] = Module.load(compiler.kernels(family, device.arch), device)
        return loaded[family]

    yield get
    for each in loaded.values():
        each.close()


@pytest.fixture
def fill(load):
    return load("pattern").kernel("pattern_fill")


@pytest.fixture
def pinned(device):
    with device.malloc_host(16384) as memory:
        memory.view()[:] = 0xA5
        yield memory


def test_bytes(stream, pinned, fill):
    bytes_ = pinned.view()
    launch = fill.prepare(3, 256, (pinned[5:], 9990, 1234567, base(3)))
    launch.launch(stream)
    stream.synchronize(deadline=30)
    assert (bytes_[5:9995] == Pattern(SEED, 3).bytes(1234567, 9990)).all()
    assert (bytes_[:5] == 0xA5).all() and (bytes_[9995:] == 0xA5).all()


def test_both_paths_give_the_same_bytes(device, stream, pinned, load):
    path = compiler.kernels("pattern", device.arch)
    gpu, grid, block = device.agent, (3, 1), (256,)
    arguments = {"dst": pinned[8192 + 3 :], "nbytes": 7000, "offset": 99, "base": base(1)}
    with gpu.load(path) as code, gpu.create_queue(64) as queue, device.platform.runtime.create_signal(1) as done:
        through_hsa = code.kernel("pattern_fill").prepare(grid, block, arguments)
        through_hsa.launch(queue, done)
        through_hip = load("pattern").kernel("pattern_fill").prepare(grid, block, {**arguments, "dst": pinned[3:]})
        through_hip.launch(stream)
        done.wait(deadline=30)
        stream.synchronize(deadline=30)
    first, second = pinned.view()[:8192], pinned.view()[8192:]
    assert (first == second).all() and (first[3:7003] == Pattern(SEED, 1).bytes(99, 7000)).all()


def test_set_between_launches(stream, pinned, latch, fill):
    """Those in flight keep the arguments that they were launched with."""
    launch = fill.prepare(1, 256, (pinned, 16, 0, base(0)))
    latch.hold(stream)
    for i in range(100):
        launch.set("dst", pinned[16 * i :])
        launch.set(2, 16 * i)
        launch.launch(stream)
    latch.release()
    stream.synchronize(deadline=60)
    assert (pinned.view()[:1600] == Pattern(SEED, 0).bytes(0, 1600)).all()


def test_alternating_streams(device, pinned, fill, stream):
    with device.create_stream() as other:
        launch = fill.prepare(1, 256, (pinned, 16, 0, base(0)))
        for i in range(12):
            launch.set("dst", pinned[16 * i :])
            launch.set("offset", 16 * i)
            launch.launch((stream, other, device.default_stream)[i % 3])
        device.synchronize(deadline=30)
        assert (pinned.view()[: 16 * 12] == Pattern(SEED, 0).bytes(0, 16 * 12)).all()


def test_an_unchanged_launch_makes_nothing_new(stream, pinned, fill):
    launch = fill.prepare(1, 256, (pinned, 16, 0, base(0)))
    launch.launch(stream)
    flight = stream.state().flights[0]
    launch.launch(stream)
    assert list(stream.state().flights)[-1] is flight and str(flight) == "a launch of pattern_fill"
    launch.set("offset", 1)
    launch.launch(stream)
    assert list(stream.state().flights)[-1] is flight  # HIP has copied the value, and holds nothing
    launch.set("dst", pinned[8:])
    launch.launch(stream)
    assert list(stream.state().flights)[-1] is not flight
    stream.synchronize(deadline=30)


def test_memory_of_the_device(device, stream, fill, fetch):
    with device.malloc(5000) as memory:
        fill.prepare(2, 256, (memory, 5000, 0, base(1))).launch(stream)
        stream.synchronize(deadline=30)
        assert (fetch(memory) == Pattern(SEED, 1).bytes(0, 5000)).all()


def test_memory_of_a_peer(device, peer, fill, stream, fetch):
    if not device.can_access(peer):
        pytest.skip("no link")
    with peer.malloc(8 << 20) as theirs:  # smaller ones are cut from blocks of the runtime, which share their grants
        peer_launch = (1, 256, (theirs, 4096, 0, base(1)))
        device.disable_peer_access(peer)
        with pytest.raises(InvalidArgument, match="was not granted access to .*enable_peer_access"):
            fill.prepare(*peer_launch)
        device.enable_peer_access(peer)
        try:
            fill.prepare(*peer_launch).launch(stream)
            stream.synchronize(deadline=30)
            assert (fetch(theirs[:4096]) == Pattern(SEED, 1).bytes(0, 4096)).all()
        finally:
            device.disable_peer_access(peer)


def test_threads(device, fill):
    threads, each, nbytes = 4, 25, 1000
    with device.malloc_host(threads * nbytes) as memory:
        wrong = []

        def work(t):
            with device.create_stream() as stream:
                launch = fill.prepare(1, 256, (memory[t * nbytes :], nbytes, 0, base(t)))
                for i in range(each):
                    launch.set("offset", i)
                    launch.launch(stream)
                    stream.synchronize(deadline=30)
                    if (memory.view().reshape(threads, nbytes)[t] != Pattern(SEED, t).bytes(i, nbytes)).any():
                        wrong.append((t, i))

        workers = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not wrong


def test_held_until_done(device, latch, fill, load):
    memory = device.malloc_host(4096)
    view = memory.view()
    stream = device.create_stream()
    module = Module.load(load("pattern").code.data, device)
    launch = module.kernel("pattern_fill").prepare(1, 256, (memory, 4096, 0, base(2)))
    latch.hold(stream)
    launch.launch(stream)
    handles = [weakref.ref(each.handle()) for each in (module, memory)]
    module.close()
    memory.close()
    del module, launch, memory
    gc.collect()
    device.platform.registry.sweep()
    assert all(handle() for handle in handles)
    latch.release()
    stream.synchronize(deadline=30)
    assert (view == Pattern(SEED, 2).bytes(0, 4096)).all()
    del view
    gc.collect()
    assert not any(handle() for handle in handles)
    stream.close()


def test_refusals(stream, pinned, fill):
    with pytest.raises(InvalidArgument, match=r"argument 1 \(nbytes\) of pattern_fill is 8 bytes by value, not a po"):
        fill.prepare(1, 256, (pinned, pinned, 0, 0))
    good = (pinned, 16, 0, base(0))
    with pytest.raises(InvalidArgument, match="pattern_fill takes workgroups of at most 256"):
        fill.prepare(1, 512, good)
    fill.prepare(1, 256, good, lds=65536).launch(stream)  # for a kernel that declares none it only bounds occupancy
    stream.synchronize(deadline=30)
    assert (pinned.view()[:16] == Pattern(SEED, 0).bytes(0, 16)).all()


def test_the_stream_of_another_device(peer, fill, pinned):
    with peer.create_stream() as stream:
        with pytest.raises(InvalidArgument, match="pattern_fill on HIP device 0> cannot run on stream"):
            fill.prepare(1, 256, (pinned, 16, 0, 0)).launch(stream)


def test_closed(device, stream):
    module = Module.load(compiler.kernels("latch", device.arch), device)
    kernel = module.kernel("empty")
    launch = kernel.prepare(1, 64)
    launch.launch(stream)
    module.close()
    module.close()
    stream.synchronize(deadline=30)
    for use in (lambda: launch.launch(stream), lambda: kernel.prepare(1, 64), lambda: module.kernel("empty")):
        with pytest.raises(ClosedError):
            use()
    assert "closed" in repr(module) and "closed" in repr(kernel)


def test_a_closed_stream(device, load):
    stream = device.create_stream()
    launch = load("latch").kernel("empty").prepare(1, 64)
    launch.launch(stream)
    stream.close()
    with pytest.raises(ClosedError):
        launch.launch(stream)


def test_an_endless_kernel_meets_its_deadline(stream, latch, fill, pinned):
    latch.hold(stream)
    fill.prepare(1, 256, (pinned, 16, 0, base(0))).launch(stream)
    with pytest.raises(DeadlineExceeded, match="of 2 submissions 0 are .* next is a launch of latch"):
        stream.synchronize(deadline=0.5)
    latch.release()
    stream.synchronize(deadline=30)
    assert (pinned.view()[:16] == Pattern(SEED, 0).bytes(0, 16)).all()


HIDDEN = """
extern "C" __attribute__((global)) void hidden(unsigned char* out) {
    const __attribute__((address_space(4))) unsigned char* in =
        (const __attribute__((address_space(4))) unsigned char*)__builtin_amdgcn_implicitarg_ptr();
    if (__builtin_amdgcn_workitem_id_x() == 0 && __builtin_amdgcn_workgroup_id_x() == 0)
        for (int i = 0; i < 256; i++) out[i] = in[i];
}
"""


def test_hidden_arguments_are_hips(device, stream, pinned, tmp_path):
    source = tmp_path / "hidden.hip"
    source.write_text(HIDDEN)
    path = compiler.build(source, device.arch, ("-O3", "-nogpuinc", "-nogpulib", "-mcode-object-version=5"))
    gpu, shape = device.agent, ((5, 4, 3), (64, 2))
    with (
        Module.load(path, device) as module,
        gpu.load(path) as code,
        gpu.create_queue(64) as queue,
        device.platform.runtime.create_signal(1) as done,
    ):
        module.kernel("hidden").prepare(*shape, (pinned,)).launch(stream)
        code.kernel("hidden").prepare(*shape, (pinned[256:],)).launch(queue, done)
        stream.synchronize(deadline=30)
        done.wait(deadline=30)
    first, second = bytes(pinned.view()[:256]), bytes(pinned.view()[256:512])
    arguments = [a for a in codeobject.read(path).kernel("hidden").arguments if a.hidden]
    start = min(a.offset for a in arguments)
    compared = 0
    for argument in arguments:
        at = argument.offset - start
        if argument.kind.removeprefix("hidden_")[:5] in ("block", "group", "remai", "globa", "grid_"):
            compared += 1
            assert first[at : at + argument.size] == second[at : at + argument.size], argument
    assert compared == 13 and struct.unpack_from("<3I3H", first) == (5, 4, 3, 64, 2, 1)
