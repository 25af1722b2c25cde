import pytest

from hsakit import hip
from hsakit.hip.platform import platform

pytestmark = pytest.mark.node


def test_there_is_one(devices):
    assert platform() is devices[0].platform and platform().devices is devices is hip.devices()
    assert hip.version() == str(platform().abi) and f"HIP {hip.version()}, {len(devices)} devices" in repr(platform())


def test_devices_are_matched_by_address(script):
    done = script(
        """
        from hsakit import hip
        from hsakit.node import Node
        with Node() as node:
            print([gpu.device.ordinal if gpu.device else None for gpu in node.gpus[:4]])
            for device in hip.devices():
                assert device.agent == node.gpus[[2, 0][device.ordinal]].agent
                assert (device.attribute("PciBusId"), device.attribute("PciDeviceId")) == (
                    int(device.agent.bdf[5:7], 16), int(device.agent.bdf[8:10], 16))
        """,
        HIP_VISIBLE_DEVICES="2,0",
    )
    assert (done.returncode, done.stdout) == (0, "[1, None, 0, None]\n"), done.stderr


def test_no_devices(script):
    done = script("from hsakit import hip\nprint(hip.devices(), hip.version()[0].isdigit())", HIP_VISIBLE_DEVICES="-1")
    assert (done.returncode, done.stdout) == (0, "() True\n"), done.stderr


def test_closed_objects_wait_for_what_is_in_flight(device, stream, latch, freed):
    registry = device.platform.registry
    buffer, unused = device.malloc(4096), device.malloc(4096)
    address, other = buffer.address, unused.address
    latch.hold(stream)
    stream.fill(buffer, 1)
    before = len(registry)
    buffer.close()
    assert (len(registry), registry.waiting) == (before, 0)  # the fill holds it
    unused.close()
    assert (len(registry), registry.waiting) == (before - 1, 1)  # freeing it would wait for the stream
    assert hip.pointer_attributes(address).kind == hip.pointer_attributes(other).kind == "device"
    latch.release()
    stream.synchronize(deadline=10)
    assert (len(registry), registry.waiting) == (before - 2, 0)
    assert freed(address) and freed(other)
