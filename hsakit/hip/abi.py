"""What differs between HIP 5.7, 6.x and 7.x, settled once for the library that was loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hsakit.ffi._hip import ffi
from hsakit.ffi.errors import check_hip
from hsakit.ffi.loader import Library

_BEFORE_6 = MappingProxyType({0: "pinned", 1: "device", 2: "array", 3: "unified", 4: "managed"})
_SINCE_6 = MappingProxyType({0: "unknown", 1: "pinned", 2: "device", 3: "managed", 10: "array", 11: "unified"})


@dataclass(frozen=True)
class Abi:
    """The choices for one release of HIP."""

    version: tuple[int, int, int]
    properties: str  # the function that fills a properties struct of the layout that follows
    properties_size: int  # bytes of that struct
    arch_name: int  # offset in it of gcnArchName, a string
    memory_types: Mapping[int, str]  # hipMemoryType, in our words

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


def abi_of(version: int) -> Abi:
    """The choices for what hipRuntimeGetVersion says, such as 50731921 for 5.7.31921."""
    major, minor, patch = version // 10_000_000, version // 100_000 % 100, version % 100_000
    if major < 6:
        return Abi((major, minor, patch), "hipGetDeviceProperties", 792, 396, _BEFORE_6)
    # hipGetDeviceProperties still fills the old layout, for programs that were linked before 6.0.
    return Abi((major, minor, patch), "hipGetDevicePropertiesR0600", 1472, 1160, _SINCE_6)


def loaded(library: Library) -> Abi:
    """The choices for this library."""
    out = ffi.new("int *")
    # hipError_t hipRuntimeGetVersion(int *runtimeVersion)
    check_hip("hipRuntimeGetVersion", library.lib.hipRuntimeGetVersion(out))
    return abi_of(out[0])


def arch_name(lib, abi: Abi, ordinal: int) -> str:
    """The target of a device with its features, ``gfx942:sramecc+:xnack-``."""
    properties = ffi.new("char[]", abi.properties_size)
    # hipError_t hipGetDeviceProperties(hipDeviceProp_t *prop, int deviceId); ...R0600 likewise
    status = getattr(lib, abi.properties)(ffi.cast("hipDeviceProp_t *", properties), ordinal)
    check_hip(abi.properties, status)
    return ffi.string(properties + abi.arch_name).decode()
