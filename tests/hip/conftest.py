"""What the tests of the HIP objects share. After every test nothing may be left of what it made."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest


@pytest.fixture(scope="session")
def devices(runtime):
    """HIP's devices. The fixture ``runtime`` is there for the marker ``node`` that comes with it."""
    from hsakit import hip

    return hip.devices()


@pytest.fixture
def device(devices):
    return devices[0]


@pytest.fixture
def peer(devices, need_gpus):
    need_gpus(devices, 2)
    return devices[1]


@pytest.fixture
def stream(device):
    with device.create_stream() as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_left(request):
    if "devices" not in request.fixturenames:
        yield
        return
    platform = request.getfixturevalue("devices")[0].platform
    before = len(platform.registry), len(platform.streams)
    yield
    gc.collect()
    for device in platform.devices:
        device.synchronize(deadline=20)
    platform.registry.sweep()
    assert (len(platform.registry), len(platform.streams)) == before, "objects of this test were not destroyed"
    assert not platform.registry.waiting


class Latch:
    """Holds streams until it is released: by a kernel that spins on a flag in pinned memory."""

    def __init__(self, device, kernel, memory):
        self.device = device
        self._kernel = kernel
        self._memory = memory
        self._flag = memory.view(np.uint64)

    def hold(self, stream) -> None:
        self._flag[0] = 0
        address = self._memory.address
        self._kernel.prepare(1, 64, (address, 1, 1 << 40, address + 64)).launch(stream)

    def release(self) -> None:
        self._flag[0] = 1


@pytest.fixture
def latch(device, devices):
    """A latch for streams of the first device, released at the end of the test."""
    from hsakit import compiler
    from hsakit.hip.module import Module

    with Module.load(compiler.kernels("latch", device.arch), device) as module, device.malloc_host(4096) as memory:
        made = Latch(device, module.kernel("latch"), memory)
        yield made
        made.release()
        vars(made).clear()  # pytest still holds it, and its view the memory


@pytest.fixture
def script(script):
    """As for all tests, but for what HSA 6.4 says at the end of a process of signals that HIP itself never destroys."""

    def run(text, **options):
        done = script(text, **options)
        of_hip = "Warning: Resource leak", "Warning: (false"
        done.stderr = "".join(line for line in done.stderr.splitlines(True) if not line.startswith(of_hip))
        return done

    return run


@pytest.fixture
def freed():
    """``freed(address)``: whether HIP does not know it, by and by: it lets go of memory on a thread of its own."""
    from hsakit import hip

    def ask(address, seconds=5.0) -> bool:
        end = time.monotonic() + seconds
        while hip.pointer_attributes(address).kind != "unknown" and time.monotonic() < end:
            time.sleep(0.01)
        return hip.pointer_attributes(address).kind == "unknown"

    return ask


@pytest.fixture
def fetch():
    """``fetch(memory)``: its bytes, by a stream of its device."""

    def copy(memory) -> np.ndarray:
        out = np.zeros(memory.nbytes, np.uint8)
        with memory.buffer.device.create_stream() as stream:
            stream.copy(out, memory)
        return out

    return copy
