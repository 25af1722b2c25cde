"""The end of the interpreter, in every state that a script can leave things in. One process each."""

import pytest

pytestmark = pytest.mark.node

LIVE = """
    import numpy as np
    from hsakit import compiler, hip
    from hsakit.hip.module import Module
    device = hip.devices()[0]
    stream, masked = device.create_stream(), device.create_stream(blocking=True)
    buffer, pinned = device.malloc(1 << 16), device.malloc_host(1 << 16)
    view, event = pinned.view(), device.create_event()
    stream.fill(buffer, 3)
    stream.copy(pinned, buffer)
    device.default_stream.fill(buffer, 4)
    stream.record(event)
"""
LATCH = """
    latch = Module.load(compiler.kernels("latch", device.arch), device).kernel("latch")
    flag = device.malloc_host(4096)
    flag.view()[:] = 0
    latch.prepare(1, 64, (flag.address, 1, 1 << 40, flag.address + 64)).launch(stream)
"""


@pytest.mark.parametrize(
    "last",
    [
        "print('end')",
        "import builtins; builtins.kept = (stream, buffer, event, view); print('end')",
        "stream.close(); buffer.close(); print('end')",
        "import atexit; atexit.register(stream.close); atexit.register(buffer.close); print('end')",
    ],
)
def test_live_objects(script, last):
    done = script(LIVE + f"    {last}\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.mark.parametrize("last", ["print('end')", "stream.close(); buffer.close(); print('end')"])
def test_a_stream_that_never_completes(script, last):
    done = script(LIVE + LATCH + f"    stream.fill(buffer, 5)\n    {last}\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_an_exception_with_work_in_flight(script):
    done = script(LIVE + LATCH + "    raise SystemExit(3)\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_beside_a_runtime(script):
    done = script(
        """
        from hsakit.node import Node
        node = Node()
        device = node.gpus[0].device
        signal, queue = node.runtime.create_signal(0), node.gpus[0].agent.create_queue(64)
        stream, buffer = device.create_stream(), device.malloc(4096)
        stream.fill(buffer, 1)
        node.close()
        stream.fill(buffer, 2)
        stream.synchronize(deadline=10)  # HIP goes on
        again = Node()
        print("end", again.gpus[0].device is device)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end True\n", "")
