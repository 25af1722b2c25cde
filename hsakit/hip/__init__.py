"""Objects of the HIP runtime: devices, memory, streams and events.

HIP runs on HSA, and what HIP does not say (which agent a device is, who may access memory, memory faults) is asked
there: this package uses ``hsakit.hsa``, never the other way round.
"""

from hsakit.hip import memory
from hsakit.hip.device import Device
from hsakit.hip.event import Event
from hsakit.hip.memory import Buffer, PointerAttributes
from hsakit.hip.module import Kernel, Launch, Module
from hsakit.hip.platform import platform
from hsakit.hip.stream import Stream

__all__ = [
    "Buffer",
    "Device",
    "Event",
    "Kernel",
    "Launch",
    "Module",
    "PointerAttributes",
    "Stream",
    "devices",
    "pointer_attributes",
    "version",
]


def devices() -> tuple[Device, ...]:
    """The GPUs that HIP sees, by HIP's number. Initialises HIP on first use."""
    return platform().devices


def version() -> str:
    """The version of the HIP runtime: ``5.7.31921``."""
    return str(platform().abi)


def pointer_attributes(address: int) -> PointerAttributes:
    """What HIP knows of an address."""
    return memory.pointer_attributes(platform(), address)
