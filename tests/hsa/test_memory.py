import numpy as np
import pytest

from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import ClosedError, InvalidArgument
from hsakit.hsa import Runtime


@pytest.mark.parametrize("kind", ["coarse", "fine", "kernarg"])
def test_host_memory(runtime, gpu, kind):
    with runtime.cpus[0].pool(kind).allocate(5000, access=gpu) as buffer:
        assert (buffer.nbytes, len(buffer), buffer.agent) == (5000, 5000, runtime.cpus[0])
        assert buffer.host_accessible and buffer.grants == {runtime.cpus[0], gpu}
        view = buffer.view()
        view[:] = np.arange(5000) % 251
        assert bytes(np.asarray(buffer)[:300]) == bytes(i % 251 for i in range(300))
        assert buffer.view(np.uint64)[1] == int.from_bytes(bytes(range(8, 16)), "little")
        assert view.ctypes.data == buffer.address
        del view


def test_gpu_memory_is_not_the_hosts(gpu):
    with gpu.pool("coarse").allocate(4096) as buffer:
        assert not buffer.host_accessible and buffer.grants == {gpu}
        for use in (buffer.view, lambda: np.asarray(buffer), buffer[:8].view):
            with pytest.raises(TypeError, match="the host may not access .*coarse on GPU 0"):
                use()


def test_gpu_memory_that_the_host_was_granted(runtime, gpu, host):
    cpu = runtime.cpus[0]
    with gpu.pool("coarse").allocate(4096) as buffer, host(4096) as back:
        if not gpu.pool("coarse").reachable_by(cpu):
            with pytest.raises(InvalidArgument, match="no host-visible memory"):
                buffer.allow_access(cpu)
            return
        buffer.allow_access(cpu)
        buffer.view()[:] = 0x5A
        with gpu.engine(1).copy(back, buffer) as done:
            done.wait(deadline=10)
        assert (back.view() == 0x5A).all()


@pytest.mark.parametrize("nbytes", [0, -1, 1 << 60, 1.5, "4"])
def test_sizes_that_are_refused(gpu, nbytes):
    with pytest.raises(InvalidArgument, match="1 to [0-9]+ bytes"):
        gpu.pool("coarse").allocate(nbytes)


def test_grants_add_up(runtime, gpu, peer):
    with gpu.pool("coarse").allocate(4 << 20) as buffer:
        buffer.allow_access(peer)
        buffer.allow_access([])
        buffer.allow_access(runtime.gpus[-1:])
        expected = {gpu, peer, runtime.gpus[-1]}
        assert buffer.grants == expected
        assert set(runtime.pointer_info(buffer.address).accessible) == expected


def test_slices(host):
    with host(100) as buffer:
        buffer.view()[:] = range(100)
        part = buffer[10:30]
        assert (part.nbytes, part.address, part.agent) == (20, buffer.address + 10, buffer.agent)
        assert list(part.view()[:3]) == [10, 11, 12] == list(np.asarray(part)[:3])
        assert list(part[5:].view()[:1]) == [15] and part[5:7].nbytes == 2
        assert buffer[:].nbytes == 100 and buffer[100:].nbytes == 0
        for a, b in ((0, 101), (-1, 5), (7, 6), (101, 101)):
            with pytest.raises(InvalidArgument, match=rf"\[{a}:{b}\] is outside of"):
                buffer[a:b]
        with pytest.raises(InvalidArgument, match="0 <= start <= stop <= 20"):
            part[0:21]
        for key in (3, slice(0, 10, 2), "a"):
            with pytest.raises(InvalidArgument, match="buffer\\[start:stop\\]"):
                buffer[key]
        with pytest.raises(InvalidArgument, match="no whole number of uint64"):
            buffer.view(np.uint64)


def test_closed(gpu):
    buffer = gpu.pool("coarse").allocate(64)
    part = buffer[:8]
    buffer.close()
    buffer.close()
    assert buffer.closed and "closed" in repr(buffer) and "closed" in repr(part)
    for use in (lambda: buffer.address, lambda: part.address, buffer.view, lambda: buffer[:1], lambda: buffer.grants):
        with pytest.raises(ClosedError):
            use()


def test_an_array_keeps_the_memory(runtime, host):
    buffer = host(1 << 20)
    address = buffer.address
    view, array = buffer.view(), np.asarray(buffer)
    view[:] = 7
    buffer.close()
    assert runtime.pointer_info(address).kind == "hsa"
    del view
    assert array[12345] == 7  # would be a segmentation fault if the memory were gone
    del array
    runtime.registry.sweep()
    assert runtime.pointer_info(address).kind == "unknown"


def test_an_array_outlives_its_runtime(runtime):
    with Runtime() as second:
        shown, hidden = (second.cpus[0].pool("fine").allocate(4096) for _ in range(2))
        addresses = shown.address, hidden.address
        view = shown.view()
        view[:] = 7
        hidden.view()[:] = 7
    assert shown.closed and [runtime.pointer_info(address).kind for address in addresses] == ["hsa", "unknown"]
    assert (view == 7).all()


def test_an_array_outlives_the_library(script):
    done = script("""
        from hsakit.hsa import Runtime
        with Runtime() as runtime:
            buffer = runtime.cpus[0].pool("fine").allocate(1 << 20, access=runtime.gpus)
            view, part = buffer.view(), buffer[100:200].view()
            view[:] = 7
        assert (view == 7).all()
        with Runtime() as runtime:
            with runtime.cpus[0].pool("fine").allocate(1 << 20, access=runtime.gpus) as other:
                other.view()[:] = 8
            assert (view == 7).all() and part.sum() == 700
        view[150] = 0
        assert part.sum() == 693
        del view, part
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_pointer_info(runtime, gpu):
    with gpu.pool("coarse").allocate(3 << 20) as buffer:
        for address in (buffer.address, buffer.address + (3 << 20) - 1):
            info = runtime.pointer_info(address)
            assert (info.kind, info.agent_base, info.owner) == ("hsa", buffer.address, gpu)
            assert (info.nbytes, info.accessible) == (3 << 20, (gpu,))
    assert runtime.pointer_info(id(object())).kind == "unknown"


def test_pointer_info_of_addresses_that_are_only_reserved(runtime, monkeypatch):
    ask = runtime.lib.hsa_amd_pointer_info

    def reserved(pointer, info, *rest):  # as releases say that know of virtual memory
        status = ask(pointer, info, *rest)
        ffi.cast("uint32_t *", info)[1] = 5  # HSA_EXT_POINTER_TYPE_RESERVED_ADDR
        return status

    monkeypatch.setattr(runtime.lib, "hsa_amd_pointer_info", reserved)
    with runtime.cpus[0].pool("fine").allocate(4096) as buffer:
        assert runtime.pointer_info(buffer.address).kind == "reserved"


def test_locked_memory(runtime, gpu):
    array = np.arange(10_000, dtype=np.uint16)
    expected = array.copy()
    with runtime.lock(array, gpu) as locked, gpu.pool("coarse").allocate(20_000) as device:
        assert (locked.nbytes, locked.host_accessible) == (20_000, True) and "locked" in repr(locked)
        assert locked.view().ctypes.data == array.ctypes.data
        with gpu.engine(0).copy(device, locked) as done:
            done.wait(deadline=10)
        array[:] = 0
        with gpu.engine(1).copy(locked[1000:], device[1000:]) as done:
            done.wait(deadline=10)
        assert not array[:500].any() and (array[500:] == expected[500:]).all()
        with pytest.raises(InvalidArgument, match="locked for its agents only"):
            locked.allow_access(runtime.gpus)
    with runtime.lock(array, gpu) as again:  # it can be locked again: the first lock is gone
        assert again.nbytes == 20_000


def test_what_cannot_be_locked(runtime, gpu):
    frozen = np.zeros(8)
    frozen.flags.writeable = False
    for array in ([1, 2], np.zeros((8, 8))[:, 1], frozen, np.zeros(0)):
        with pytest.raises(InvalidArgument, match="C-contiguous"):
            runtime.lock(array, gpu)
    with pytest.raises(InvalidArgument, match="which agents"):
        runtime.lock(np.zeros(8), [])


def test_locked_memory_keeps_the_array(runtime, gpu):
    locked = runtime.lock(np.full(4096, 3, np.uint8), gpu)
    assert (locked.view() == 3).all()
    locked.close()
