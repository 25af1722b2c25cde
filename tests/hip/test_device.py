import threading

import pytest

from hsakit.ffi._hip import ffi
from hsakit.ffi.errors import HipError, InvalidArgument


def _current(device):
    out = ffi.new("int *")
    assert device.platform.lib.hipGetDevice(out) == 0
    return out[0]


def test_what_a_device_says_is_what_its_agent_says(devices):
    for device in devices:
        agent = device.agent
        assert (device.cu_count, device.arch) == (agent.cu_count, agent.name)
        assert device.name == agent.product and device.memory_bytes == agent.pool("coarse").nbytes
        assert device.attribute("ClockRate") == agent.clock_mhz * 1000
        assert (device.wave_size, device.max_threads, device.lds_bytes) == (64, 1024, 65536)
        assert device.max_block == (1024, 1024, 1024) and device.max_grid[0] == 2**31 - 1
        assert agent.bdf in repr(device) and f"HIP device {device.ordinal}" == device.label


def test_attributes(device):
    assert {"WarpSize", "MaxThreadsPerBlock", "WallClockRate"} <= set(device.attributes())
    for name in device.attributes():
        assert isinstance(device.attribute(name), int)
    with pytest.raises(InvalidArgument, match="no attribute 'Warpsize': there are .*WarpSize"):
        device.attribute("Warpsize")


def test_free_memory(device):
    before = device.free_bytes
    with device.malloc(64 << 20):
        assert before - device.free_bytes >= 64 << 20
    assert device.free_bytes == before


def test_the_current_device_is_restored(devices, device):
    last = devices[-1]
    lib = device.platform.lib
    assert lib.hipSetDevice(last.ordinal) == 0  # as another user of HIP would
    try:
        with device.current():
            assert _current(device) == device.ordinal
            with last.current():
                assert _current(device) == last.ordinal
            assert _current(device) == device.ordinal
        with device.malloc(4096) as buffer, device.create_event() as event, device.create_stream() as stream:
            device.fill(buffer, 1)
            stream.record(event).synchronize()
            device.default_stream.record().synchronize()
        with pytest.raises(RuntimeError), device.current():
            raise RuntimeError
        assert _current(device) == last.ordinal
    finally:
        lib.hipSetDevice(0)


def test_each_thread_has_a_current_device_of_its_own(devices):
    seen, meet = {}, threading.Barrier(len(devices))

    def work(device):
        buffers = []
        with device.current():
            meet.wait(20)  # every thread is at its device now
            seen[device.ordinal] = _current(device)
            buffers += [other.malloc(4096) for other in devices]
            seen[device.ordinal, "after"] = _current(device)
        owners = [device.platform.runtime.pointer_info(buffer.address).owner for buffer in buffers]
        seen[device.ordinal, "owners"] = owners == [other.agent for other in devices]

    threads = [threading.Thread(target=work, args=(device,)) for device in devices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for device in devices:
        assert seen[device.ordinal] == seen[device.ordinal, "after"] == device.ordinal
        assert seen[device.ordinal, "owners"]


def test_peer_access(devices, device, peer):
    assert device.can_access(peer) and not device.can_access(device)
    with peer.malloc(4 << 20) as buffer:
        before = buffer.grants
        device.enable_peer_access(peer)
        device.enable_peer_access(peer)
        try:
            with peer.malloc(4 << 20) as later:
                assert {peer.agent, device.agent} <= later.grants  # HIP 5.7 then grants it to all others as well
        finally:
            device.disable_peer_access(peer)
            device.disable_peer_access(peer)
        assert before == {peer.agent}
    with pytest.raises(InvalidArgument, match="HIP device 0 cannot access memory of HIP device 0"):
        device.enable_peer_access(device)


def test_one_error_does_not_surface_at_the_next_call(device):
    lib = device.platform.lib
    with pytest.raises(HipError, match="hipDeviceGetAttribute: hipErrorInvalidDevice .*WarpSize") as caught:
        device.platform.devices[0].__class__.attribute(_Elsewhere(device), "WarpSize")
    assert caught.value.call == "hipDeviceGetAttribute"
    assert lib.hipGetLastError() == 0


class _Elsewhere:
    """A device with a number that does not exist."""

    def __init__(self, device):
        self.platform = device.platform
        self.ordinal = 10_000
