import pytest

from hsakit.hip.abi import abi_of


@pytest.mark.parametrize(
    "said, version, function, of_device",
    [
        (50731921, (5, 7, 31921), "hipGetDeviceProperties", 1),
        (60443484, (6, 4, 43484), "hipGetDevicePropertiesR0600", 2),
        (70226015, (7, 2, 26015), "hipGetDevicePropertiesR0600", 2),
    ],
)
def test_what_goes_by_the_version(said, version, function, of_device):
    abi = abi_of(said)
    assert (abi.version, abi.properties) == (version, function)
    assert abi.memory_types[of_device] == "device" and str(abi) == ".".join(map(str, version))
    assert abi.arch_name + 256 <= abi.properties_size


def test_the_properties_of_the_library_that_is_loaded(devices):
    """The struct's layout is the right one: its end has the name that HSA has for the same GPU."""
    for device in devices:
        assert device.target.startswith(f"{device.agent.name}:") or device.target == device.agent.name
