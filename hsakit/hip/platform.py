"""HIP in this process: its library, its devices, and what is left of the objects made on them."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from hsakit.ffi import HIP, loader
from hsakit.ffi._hip import ffi
from hsakit.ffi.errors import HsakitError, check_hip, hip_answered
from hsakit.hip import abi
from hsakit.hsa import Agent, Runtime, fork
from hsakit.hsa.lifetime import CODE, QUEUE, SIGNAL, Registry

if TYPE_CHECKING:
    from hsakit.hip.device import Device
    from hsakit.hip.stream import State

STREAM, EVENT, MODULE = QUEUE, SIGNAL, CODE  # in the order of destruction
_BUS_ID_LENGTH = 64
_SHOWN = 2  # submissions of a stream that are named after a fault
_LAST_WORK = 1.0  # seconds that the end of the interpreter waits for work in flight

_platform: Platform | None = None
_lock = threading.Lock()


def platform() -> Platform:
    """The process's HIP, initialised on first use and then kept: HIP has no way to shut down."""
    global _platform
    fork.refuse()
    if _platform is None:
        with _lock:
            if _platform is None:
                _platform = Platform()
    return _platform


class _Registry(Registry):
    """Destroying a stream, or freeing memory, makes HIP wait for work in flight, for ever if need be. So what is not
    idle yet is destroyed later."""

    def __init__(self, settle: Callable[[], None]):
        super().__init__(settle)
        self._later: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()

    @property
    def waiting(self) -> int:
        """Closed objects that work in flight keeps from being destroyed."""
        return len(self._later)

    def when(self, idle: Callable[[], bool], destroy: Callable[[], None]) -> None:
        """Destroy as soon as ``idle`` says so: now, or at a later sweep."""
        if idle():
            destroy()
        else:
            self._later.append((idle, destroy))

    def sweep(self) -> None:
        super().sweep()
        busy = set()  # asked once, however many wait for the same
        for _ in range(0 if fork.forked else len(self._later)):
            try:
                idle, destroy = self._later.popleft()
            except IndexError:  # another thread sweeps as well
                break
            if idle in busy or not idle():
                busy.add(idle)
                self._later.append((idle, destroy))
            else:
                destroy()


class _Below(Runtime):
    """The HSA runtime that HIP runs on. What it says of a fault names HIP's work too."""

    lasting = True

    def __init__(self, streams: set[State]):
        self._streams = streams
        super().__init__()

    def kernels(self, agent: Agent | None) -> list[str]:
        mine = [state for state in list(self._streams) if state.device.agent == agent]
        return [*super().kernels(agent), *(words for state in mine for words in state.oldest(_SHOWN))]


class Platform:
    """HIP, its devices, and the HSA runtime below it, which says what HIP does not: agents, faults, accesses."""

    def __init__(self):
        library = loader.hip()
        self._lib = library.lib
        self.streams: set[State] = set()  # those not yet destroyed
        # Open as long as HIP is. It notes GPU memory faults, of which HIP knows nothing, so that a wait can raise them.
        self.runtime = _Below(self.streams)
        # hipError_t hipInit(unsigned int flags)
        none = hip_answered("hipInit", self.lib.hipInit(0), HIP.hipErrorNoDevice)
        self.abi = abi.loaded(library)
        self.registry = _Registry(self._settle)
        self.devices: tuple[Device, ...] = () if none else self._find_devices()
        atexit.register(self._end)

    def __repr__(self) -> str:
        return f"<Platform HIP {self.abi}, {len(self.devices)} devices>"

    @property
    def lib(self):
        """HIP's functions. ForkError in a child of the process that initialised HIP."""
        if fork.forked:
            fork.refuse()
        return self._lib

    def _settle(self) -> None:
        for state in list(self.streams):
            state.idle()

    def _end(self) -> None:
        """Let streams finish and destroy them, while all that serves them is there. What stays busy is left alone."""
        if fork.forked:
            return
        end = time.monotonic() + _LAST_WORK
        for state in list(self.streams):
            while not state.idle() and time.monotonic() < end:
                time.sleep(1e-3)
            if state.raw and state.idle():
                state.destroy()

    def _find_devices(self) -> tuple[Device, ...]:
        from hsakit.hip.device import Device  # here: devices are made of what this module has

        count = ffi.new("int *")
        # hipError_t hipGetDeviceCount(int *count)
        check_hip("hipGetDeviceCount", self.lib.hipGetDeviceCount(count))
        return tuple(Device(self, ordinal, self._agent(ordinal)) for ordinal in range(count[0]))

    def _agent(self, ordinal: int) -> Agent:
        """The agent of a device, by PCI address, or by UUID where partitions share an address."""
        address = self._bus_id(ordinal)
        same = [agent for agent in self.runtime.gpus if agent.bdf == address]
        if len(same) > 1:
            uuid = self._uuid(ordinal)
            same = [agent for agent in same if agent.uuid == uuid]
        if len(same) != 1:
            raise HsakitError(
                f"HIP device {ordinal} at {address} is {'several' if same else 'none'} of the HSA agents "
                f"{', '.join(str(agent.bdf) for agent in self.runtime.gpus)}"
            )
        return same[0]

    def _bus_id(self, ordinal: int) -> str:
        out = ffi.new("char[]", _BUS_ID_LENGTH)
        # hipError_t hipDeviceGetPCIBusId(char *pciBusId, int len, int device)
        check_hip("hipDeviceGetPCIBusId", self.lib.hipDeviceGetPCIBusId(out, _BUS_ID_LENGTH, ordinal))
        return ffi.string(out).decode().lower()

    def _uuid(self, ordinal: int) -> str:
        out = ffi.new("hipUUID *")
        # hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device)
        check_hip("hipDeviceGetUuid", self.lib.hipDeviceGetUuid(out, ordinal))
        return f"GPU-{bytes(ffi.buffer(out.bytes)).decode(errors='replace')}"
