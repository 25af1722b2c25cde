"""A fault is the end of a process's GPU work: each of these runs in a process of its own."""

import pytest

pytestmark = pytest.mark.node

PRELUDE = """
    from hsakit import compiler, hip
    from hsakit.ffi.errors import GpuMemoryFault
    from hsakit.hip.module import Module
    device = hip.devices()[0]
    stream = device.create_stream()
    stamp = Module.load(compiler.kernels("latch", device.arch), device).kernel("stamp")
    buffer = device.malloc(8 << 20)
"""


def test_a_wait_raises_the_fault_of_a_kernel(script):
    done = script(
        PRELUDE
        + """
    end = buffer.address + buffer.nbytes
    stamp.prepare(1, 64, (end,)).launch(stream)
    try:
        stream.synchronize(deadline=20)
    except GpuMemoryFault as fault:
        assert fault.agent == device.agent and end <= fault.address < end + 4096, hex(fault.address)
        text = str(fault)
        assert "It is offset 8388608 of the buffer of 8388608 bytes at" in text and "1 byte past its end" in text, text
        assert "a launch of stamp" in text, text
        print("named")
    try:
        stream.fill(buffer, 1)
        stream.record().synchronize(deadline=20)
    except GpuMemoryFault:
        print("again")
"""
    )
    assert (done.returncode, done.stdout) == (0, "named\nagain\n"), done.stderr


def test_memory_that_was_freed(script):
    done = script(
        PRELUDE
        + """
    address = buffer.address
    buffer.close()
    stamp.prepare(1, 64, (address,)).launch(stream)
    try:
        stream.synchronize(deadline=20)
    except GpuMemoryFault as fault:
        print(address <= fault.address < address + 4096)
"""
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
