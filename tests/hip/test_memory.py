import gc

import numpy as np
import pytest

from hsakit import hip, hsa
from hsakit.ffi.errors import ClosedError, HipError, InvalidArgument


@pytest.mark.parametrize("kind", ["coarse", "fine", "uncached"])
def test_memory_of_the_device(device, kind, fetch):
    with device.malloc(5000, kind) as buffer:
        assert (buffer.nbytes, len(buffer), buffer.kind, buffer.agent) == (5000, 5000, kind, device.agent)
        assert not buffer.host_accessible and f"{kind} on HIP device 0" in repr(buffer)
        device.fill(buffer, 0xA5)
        assert (fetch(buffer) == 0xA5).all()
        info = hip.pointer_attributes(buffer.address + 4999)
        assert (info.kind, info.device, info.device_address) == ("device", device, buffer.address + 4999)
        assert device.platform.runtime.pointer_info(buffer.address).owner == device.agent
        for use in (buffer.view, lambda: np.asarray(buffer), buffer[:8].view):
            with pytest.raises(TypeError, match="the host may not access"):
                use()


def test_memory_is_of_the_kind_that_was_asked_for(device):
    """By the pool from which HIP took it, as HSA says."""
    infos = {}
    for kind in ("coarse", "fine", "uncached"):
        with device.malloc(1 << 20, kind) as buffer:
            infos[kind] = hip.pointer_attributes(buffer.address).flags
    assert infos == {"coarse": 0, "fine": 1, "uncached": 3}  # hipDeviceMalloc*


@pytest.mark.parametrize(
    "options, flags",
    [
        ({}, 0),
        ({"coherent": True}, 0x40000000),
        ({"coherent": False}, 0x80000000),
        ({"portable": True, "mapped": True}, 0x3),
        ({"coherent": True, "mapped": True}, 0x40000002),
    ],
)
def test_pinned_memory(devices, device, options, flags):
    with device.malloc_host(5000, **options) as buffer:
        info = hip.pointer_attributes(buffer.address)
        assert (info.kind, info.flags, info.device) == ("pinned", flags, device)
        assert info.host_address == info.device_address == buffer.address
        assert buffer.host_accessible and buffer.agent.kind == "cpu" and buffer.kind == "pinned"
        assert {each.agent for each in devices} <= buffer.grants
        view = buffer.view()
        view[:] = np.arange(5000) % 251
        assert bytes(np.asarray(buffer)[:300]) == bytes(i % 251 for i in range(300))
        assert view.ctypes.data == buffer.address and buffer.view(np.uint64)[1] == 0x0F0E0D0C0B0A0908
        with device.malloc(5000) as there:
            device.copy(there, buffer)
            view[:] = 0
            device.copy(buffer, there)
        assert (view == np.arange(5000) % 251).all()
        del view


def test_managed_memory(devices, device):
    if not device.attribute("ManagedMemory"):
        pytest.skip("this device has no managed memory")
    with device.malloc_managed(1 << 16) as buffer:
        info = hip.pointer_attributes(buffer.address)
        assert info.kind == buffer.kind == "managed" and buffer.host_accessible
        buffer.view()[:] = 0x11
        for each in devices[:2]:
            with each.malloc(1 << 16) as there:
                each.copy(there, buffer)
                buffer.view()[:] = 0
                each.copy(buffer[:256], there[:256])
            assert (buffer.view()[:256] == 0x11).all() and not buffer.view()[256:].any()
            buffer.view()[:] = 0x11


@pytest.mark.parametrize("nbytes", [0, -1, 1.5, "4"])
def test_sizes_that_are_refused(device, nbytes):
    for allocate in (device.malloc, device.malloc_host, device.malloc_managed):
        with pytest.raises(InvalidArgument, match="a buffer has at least 1"):
            allocate(nbytes)


def test_too_much(device):
    with pytest.raises(InvalidArgument, match=f"HIP device 0 has {device.memory_bytes}"):
        device.malloc(device.memory_bytes + 1)
    with pytest.raises(HipError, match="hipHostMalloc: hipErrorOutOfMemory .*It was 1152921504606846976 bytes, pinned"):
        device.malloc_host(1 << 60)
    assert device.platform.lib.hipGetLastError() == 0
    with pytest.raises(InvalidArgument, match="'shared' is none of coarse, fine, uncached"):
        device.malloc(1, "shared")


def test_slices(device):
    with device.malloc_host(100) as buffer:
        buffer.view()[:] = range(100)
        part = buffer[10:30]
        assert (part.nbytes, part.address, part.agent) == (20, buffer.address + 10, buffer.agent)
        assert list(part.view()[:3]) == [10, 11, 12] == list(np.asarray(part[:3]))
        assert isinstance(part.buffer, hip.Buffer) and isinstance(buffer, hsa.Buffer)
        with pytest.raises(InvalidArgument, match=r"\[0:101\] is outside of"):
            buffer[0:101]


def test_closed(device):
    buffer = device.malloc(64)
    part = buffer[:8]
    buffer.close()
    buffer.close()
    assert buffer.closed and "closed" in repr(buffer)
    for use in (lambda: buffer.address, lambda: part.address, buffer.view, lambda: buffer.grants, lambda: part.view()):
        with pytest.raises(ClosedError):
            use()
    for copy in (lambda: device.fill(part, 0), lambda: device.copy(buffer, np.zeros(64, np.uint8))):
        with pytest.raises(ClosedError):
            copy()


def test_an_array_keeps_the_memory(device, freed):
    buffer = device.malloc_host(1 << 16)
    address, view = buffer.address, buffer.view()
    view[:] = 7
    buffer.close()
    assert hip.pointer_attributes(address).kind == "pinned" and view[12345] == 7
    del view
    device.platform.registry.sweep()
    assert freed(address)


def test_what_was_never_closed_is_freed_later(device):
    before = len(device.platform.registry)
    for _ in range(20):
        device.fill(device.malloc(4096), 1)
    gc.collect()
    device.platform.registry.sweep()
    assert len(device.platform.registry) == before


def test_addresses_that_hip_does_not_know(device):
    array = np.zeros(100)
    assert hip.pointer_attributes(array.ctypes.data).kind == "unknown"
    assert hip.pointer_attributes(array.ctypes.data).device is None
    assert device.platform.lib.hipGetLastError() == 0
    for wrong in (0, -1, 1 << 64, "a"):
        with pytest.raises(InvalidArgument, match="is no address"):
            hip.pointer_attributes(wrong)


def test_engines_of_hsa_copy_buffers_of_hip(device):
    agent = device.agent
    with device.malloc_host(1 << 16) as source, device.malloc(1 << 16) as there, device.malloc_host(1 << 16) as back:
        source.view()[:] = np.arange(1 << 16) % 253
        with agent.engine(0).copy(there[4096:], source[4096:]) as done:
            done.wait(deadline=10)
        there_first = agent.engine(1).prepare(back[:8192], there[:8192])
        device.fill(there[:4096], 0x33)
        with there_first.submit() as done:
            done.wait(deadline=10)
        assert (back.view()[:4096] == 0x33).all() and (back.view()[4096:8192] == source.view()[4096:8192]).all()


def test_engines_need_a_grant(device, peer):
    with device.malloc(1 << 16) as here, peer.malloc(8 << 20) as far:
        with pytest.raises(InvalidArgument, match="GPU 0 was not granted access"):
            device.agent.engine(2).copy(far[: 1 << 16], here)
        with pytest.raises(InvalidArgument, match="peer.enable_peer_access"):
            here.allow_access(peer.agent)


def test_an_engine_holds_a_buffer_that_was_closed(runtime, device, freed):
    address = None
    with runtime.create_signal(1) as gate, device.malloc_host(4096) as back:
        buffer = device.malloc(4096)
        device.fill(buffer, 0x44)
        address = buffer.address
        copy = runtime.gpus[0].engine(1).copy(back, buffer, after=[gate])
        buffer.close()
        assert hip.pointer_attributes(address).kind == "device"
        gate.store(0)
        copy.wait(deadline=10)
        copy.close()
        assert (back.view() == 0x44).all()
    runtime.settle()
    device.platform.registry.sweep()
    assert freed(address)
