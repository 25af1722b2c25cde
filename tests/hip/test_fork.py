import pytest

pytestmark = pytest.mark.node
# Python 3.12 warns of fork() in a process with threads, which the runtime makes it.
QUIET = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}


def test_every_path_in_a_child_raises(script):
    done = script(
        """
        import os
        import numpy as np
        from hsakit import hip
        from hsakit.ffi.errors import ForkError
        device, peer = hip.devices()[:2]
        stream, event = device.create_stream(), device.create_event()
        a, h, array = device.malloc(64), device.malloc_host(64), np.zeros(64, np.uint8)
        stream.fill(a, 1)
        stream.record(event)
        stream.synchronize()
        uses = [
            hip.devices, hip.version, lambda: hip.pointer_attributes(1), lambda: device.malloc(64),
            lambda: device.malloc_host(64), lambda: device.malloc_managed(64), device.create_stream,
            device.create_event, device.synchronize, lambda: device.free_bytes, lambda: device.attribute("WarpSize"),
            lambda: device.name, lambda: device.cu_count, lambda: device.target, lambda: device.can_access(peer),
            lambda: device.enable_peer_access(peer), lambda: device.disable_peer_access(peer),
            lambda: device.fill(a, 1), lambda: device.copy(a, array), lambda: stream.copy(a, h),
            lambda: stream.copy_2d(a, h, width=8, height=2, dst_pitch=8, src_pitch=8), lambda: stream.fill(a, 1),
            stream.query, stream.synchronize, stream.record, stream.read_cu_mask, lambda: stream.wait_event(event),
            lambda: event.record(stream), event.query, event.synchronize, lambda: event.elapsed_since(event),
            lambda: a.address, h.view, lambda: a.grants, device.default_stream.synchronize,
        ]
        child = os.fork()
        if not child:
            refused = []
            for i, use in enumerate(uses):
                try:
                    use()
                    print("no error from use", i)
                except ForkError as error:
                    refused.append("spawn" in str(error))
            for each in (stream, event, a, h):
                each.close()
            del stream, event, a, h
            os._exit(sum(refused))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == len(uses), (status, len(uses))
        stream.fill(a, 7)  # the parent goes on
        stream.copy(array, a)
        assert (array == 7).all()
        print("well")
        """,
        **QUIET,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "well\n", "")


def test_a_child_ends_as_usual(script):
    done = script(
        """
        import os, sys
        from hsakit import hip
        device = hip.devices()[0]
        buffer, stream = device.malloc(64), device.create_stream()
        stream.fill(buffer, 1)
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            stream.synchronize(deadline=10)
            print(os.waitstatus_to_exitcode(status))
        else:
            sys.exit(7)  # with exit handlers and finalisers
        """,
        **QUIET,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")


def test_a_child_may_open_what_its_parent_did_not(script):
    done = script(
        """
        import os
        from hsakit import hip
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status))
        else:
            with hip.devices()[0].malloc(64) as buffer:
                hip.devices()[0].fill(buffer, 1)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
