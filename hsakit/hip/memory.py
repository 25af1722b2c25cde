"""Memory that HIP allocated: on a device, pinned on the host, or managed. Also usable with HSA's engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hsakit import hsa
from hsakit.ffi import HIP
from hsakit.ffi._hip import ffi
from hsakit.ffi.errors import InvalidArgument, check_hip, hip_answered
from hsakit.hsa.memory import BufferHandle

if TYPE_CHECKING:
    from hsakit.hip.device import Device
    from hsakit.hip.platform import Platform
    from hsakit.hsa import Agent

_FLAGS = {
    "fine": HIP.hipDeviceMallocFinegrained,
    "uncached": HIP.hipDeviceMallocUncached,
}
KINDS = ("coarse", *_FLAGS)


class Buffer(hsa.Buffer):
    """Memory that HIP allocated, from ``Device.malloc``, ``malloc_host`` or ``malloc_managed``.

    It has what an HSA buffer has: slices, ``view()``, ``__array_interface__``. ``close()`` frees it as soon as the
    device's streams are idle, for freeing makes HIP wait for all of them.
    """

    def __init__(self, device: Device, handle: BufferHandle, kind: str):
        super().__init__(device.platform.runtime, handle, None)
        self.device = device
        self.kind = kind  # "coarse" | "fine" | "uncached" (on the device), "pinned", "managed"
        self.on_device = kind in KINDS
        self.where = device.label if self.on_device else f"{kind} memory"

    def __repr__(self) -> str:
        if self.closed:
            return f"<hip.Buffer closed, {self.nbytes} bytes>"
        return f"<hip.Buffer 0x{self.handle().raw:x}, {self.nbytes} bytes, {self.kind} on {self.device.label}>"

    @property
    def host_accessible(self) -> bool:
        """Whether the host may read and write it."""
        self.handle()
        return not self.on_device

    @property
    def grants(self) -> frozenset[Agent]:
        """The agents that may access it now, as the runtime below HIP says."""
        handle = self.handle()
        return frozenset((handle.agent, *self.runtime.pointer_info(handle.raw).accessible))

    def allow_access(self, agents: Agent | Iterable[Agent]) -> None:
        """Refused: HIP grants access to devices, not to buffers."""
        raise InvalidArgument(f"{self}: HIP gives a peer access to all of a device: peer.enable_peer_access(device)")


def malloc(device: Device, nbytes: int, kind: str) -> Buffer:
    if kind not in KINDS:
        raise InvalidArgument(f"memory kind {kind!r} is none of {', '.join(KINDS)}")
    lib = device.platform.lib
    if kind == "coarse":
        # hipError_t hipMalloc(void **ptr, size_t size)
        return _allocate(device, nbytes, kind, "hipMalloc", lib.hipMalloc)
    # hipError_t hipExtMallocWithFlags(void **ptr, size_t sizeBytes, unsigned int flags)
    return _allocate(device, nbytes, kind, "hipExtMallocWithFlags", lib.hipExtMallocWithFlags, _FLAGS[kind])


def malloc_host(device: Device, nbytes: int, coherent: bool | None, portable: bool, mapped: bool) -> Buffer:
    flags = 0
    if coherent is not None:
        flags |= HIP.hipHostMallocCoherent if coherent else HIP.hipHostMallocNonCoherent
    if portable:
        flags |= HIP.hipHostMallocPortable
    if mapped:
        flags |= HIP.hipHostMallocMapped
    # hipError_t hipHostMalloc(void **ptr, size_t size, unsigned int flags)
    return _allocate(device, nbytes, "pinned", "hipHostMalloc", device.platform.lib.hipHostMalloc, flags)


def malloc_managed(device: Device, nbytes: int) -> Buffer:
    lib = device.platform.lib
    # hipError_t hipMallocManaged(void **dev_ptr, size_t size, unsigned int flags)
    return _allocate(device, nbytes, "managed", "hipMallocManaged", lib.hipMallocManaged, HIP.hipMemAttachGlobal)


def _allocate(device: Device, nbytes: int, kind: str, call: str, function: Callable[..., int], *flags: int) -> Buffer:
    platform = device.platform
    if not isinstance(nbytes, int) or nbytes < 1:
        raise InvalidArgument(f"{nbytes!r} bytes: a buffer has at least 1")
    if kind in KINDS and nbytes > device.memory_bytes:
        raise InvalidArgument(f"{nbytes} bytes: {device.label} has {device.memory_bytes}")
    platform.registry.sweep()
    out = ffi.new("hsakit_address *")
    with device.current():
        status = function(out, nbytes, *flags)
    check_hip(call, status, f"It was {nbytes} bytes, {kind}, on {device.label}{_held(device)}")
    address = out[0]
    free = _free_host if kind == "pinned" else _free
    owner = device.agent if kind in KINDS else platform.runtime.cpus[0]
    destroy = partial(platform.registry.when, device.idle, partial(free, platform.lib, address))
    return Buffer(device, BufferHandle(platform.registry, address, address, nbytes, owner, destroy), kind)


def _held(device: Device) -> str:
    waiting = device.platform.registry.waiting
    return f"; {waiting} closed objects are kept by work in flight: synchronize to free them" if waiting else ""


def _free(lib, address: int) -> None:
    # hipError_t hipFree(void *ptr)
    check_hip("hipFree", lib.hipFree(address))


def _free_host(lib, address: int) -> None:
    # hipError_t hipHostFree(void *ptr)
    check_hip("hipHostFree", lib.hipHostFree(address))


@dataclass(frozen=True)
class PointerAttributes:
    """What HIP knows of an address. ``kind``: ``device``, ``pinned``, ``managed``, ``array``, ``unified``, ``unknown``.

    Of an unknown address the other members are None and 0.
    """

    kind: str
    device: Device | None
    device_address: int
    host_address: int
    flags: int  # those of the allocation


def pointer_attributes(platform: Platform, address: int) -> PointerAttributes:
    if not isinstance(address, int) or not 0 < address < 1 << 64:
        raise InvalidArgument(f"{address!r} is no address")
    out = ffi.new("hipPointerAttribute_t *")
    # hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *ptr)
    status = platform.lib.hipPointerGetAttributes(out, address)
    # Up to 5.7 an address that HIP does not know is an invalid value, later it has a type.
    unknown = hip_answered("hipPointerGetAttributes", status, HIP.hipErrorInvalidValue)
    kind = "unknown" if unknown else platform.abi.memory_types[out.type]
    if kind == "unknown":
        return PointerAttributes(kind, None, 0, 0, 0)
    if out.isManaged:
        kind = "managed"
    return PointerAttributes(
        kind, platform.devices[out.device], out.devicePointer, out.hostPointer, out.allocationFlags
    )
