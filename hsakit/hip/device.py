"""Devices: the GPUs that HIP sees, what they can do, and what is made on them."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hsakit.cumask import CuMask
from hsakit.ffi import HIP
from hsakit.ffi._hip import ffi
from hsakit.ffi.errors import InvalidArgument, check_hip, hip_answered
from hsakit.hip import abi, event, memory, stream
from hsakit.hip.event import Event
from hsakit.hip.memory import Buffer
from hsakit.hip.module import Module
from hsakit.hip.stream import Stream, StreamHandle
from hsakit.hip.stream_state import State
from hsakit.hsa import fork
from hsakit.hsa.memory import Span

if TYPE_CHECKING:
    from hsakit.hip.platform import Platform
    from hsakit.hsa import Agent

_NOTHING = nullcontext()


class _Current:
    """Makes a device the thread's current one, and what was current before so again: other users of HIP in this process
    count on theirs."""

    __slots__ = ("device", "before")

    def __init__(self, device: Device):
        self.device = device

    def __enter__(self) -> None:
        lib, out = self.device.platform.lib, ffi.new("int *")
        # hipError_t hipGetDevice(int *deviceId): asked each time, for others may have set it in this thread
        check_hip("hipGetDevice", lib.hipGetDevice(out))
        self.before = out[0]
        if self.before != self.device.ordinal:
            # hipError_t hipSetDevice(int deviceId)
            check_hip("hipSetDevice", lib.hipSetDevice(self.device.ordinal))

    def __exit__(self, *exc) -> None:
        if self.before != self.device.ordinal:
            check_hip("hipSetDevice", self.device.platform.lib.hipSetDevice(self.before))


class Device:
    """A GPU of HIP's, from ``hip.devices()``. There is one object for each, as long as the process lives."""

    def __init__(self, platform: Platform, ordinal: int, agent: Agent):
        self.platform = platform
        self.ordinal = ordinal  # HIP's number
        self.agent = agent  # the same GPU in HSA, matched by PCI address
        self.label = f"HIP device {ordinal}"
        self._events: list[int] = []  # events for waits, between two of them
        self._lock = threading.Lock()
        # HIP's null stream of this device: it waits for the blocking streams, and they for it.
        self.default_stream = Stream(self, StreamHandle(State(self, 0)), "normal", True)

    def __repr__(self) -> str:
        return f"<Device {self.ordinal} {self.arch} {self.agent.bdf}>"

    # What it is

    @cached_property
    def name(self) -> str:
        """The product's name."""
        out = ffi.new("char[256]")
        # hipError_t hipDeviceGetName(char *name, int len, hipDevice_t device)
        check_hip("hipDeviceGetName", self.platform.lib.hipDeviceGetName(out, 256, self.ordinal))
        return ffi.string(out).decode(errors="replace")

    @cached_property
    def target(self) -> str:
        """What code objects are built for, with the features that the device has: ``gfx942:sramecc+:xnack-``."""
        return abi.arch_name(self.platform.lib, self.platform.abi, self.ordinal)

    @property
    def arch(self) -> str:
        """The architecture alone: ``gfx942``."""
        return self.target.partition(":")[0]

    def attribute(self, name: str) -> int:
        """What hipDeviceGetAttribute says of an attribute by HIP's name for it, ``WarpSize``: see ``attributes()``."""
        number = getattr(HIP, f"hipDeviceAttribute{name}", None)
        if number is None:
            raise InvalidArgument(f"no attribute {name!r}: there are {', '.join(self.attributes())}")
        out = ffi.new("int *")
        # hipError_t hipDeviceGetAttribute(int *pi, hipDeviceAttribute_t attr, int deviceId)
        check_hip("hipDeviceGetAttribute", self.platform.lib.hipDeviceGetAttribute(out, number, self.ordinal), name)
        return out[0]

    @staticmethod
    def attributes() -> tuple[str, ...]:
        """The names of attributes."""
        prefix = "hipDeviceAttribute"
        return tuple(sorted(name.removeprefix(prefix) for name in vars(HIP) if name.startswith(prefix)))

    @cached_property
    def cu_count(self) -> int:
        """Compute units."""
        return self.attribute("MultiprocessorCount")

    @cached_property
    def wave_size(self) -> int:
        """Lanes of a wave."""
        return self.attribute("WarpSize")

    @cached_property
    def max_block(self) -> tuple[int, int, int]:
        """The largest workgroup along each axis; ``max_threads`` bounds the product."""
        return tuple(self.attribute(f"MaxBlockDim{axis}") for axis in "XYZ")  # type: ignore[return-value]

    @cached_property
    def max_grid(self) -> tuple[int, int, int]:
        """The largest number of workgroups along each axis."""
        return tuple(self.attribute(f"MaxGridDim{axis}") for axis in "XYZ")  # type: ignore[return-value]

    @cached_property
    def max_threads(self) -> int:
        """The most work-items of a workgroup."""
        return self.attribute("MaxThreadsPerBlock")

    @cached_property
    def lds_bytes(self) -> int:
        """The most LDS of a workgroup."""
        return self.attribute("MaxSharedMemoryPerBlock")

    @cached_property
    def memory_bytes(self) -> int:
        """Memory of the device."""
        out = ffi.new("size_t *")
        # hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t device)
        check_hip("hipDeviceTotalMem", self.platform.lib.hipDeviceTotalMem(out, self.ordinal))
        return out[0]

    @property
    def free_bytes(self) -> int:
        """Memory of the device that is free now, as HIP counts it."""
        free, total = ffi.new("size_t *"), ffi.new("size_t *")
        with self.current():
            # hipError_t hipMemGetInfo(size_t *free, size_t *total)
            check_hip("hipMemGetInfo", self.platform.lib.hipMemGetInfo(free, total))
        return free[0]

    @cached_property
    def stream_priorities(self) -> tuple[int, int]:
        """HIP's numbers for the least and the greatest priority of streams; smaller is greater."""
        least, greatest = ffi.new("int *"), ffi.new("int *")
        with self.current():
            # hipError_t hipDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
            status = self.platform.lib.hipDeviceGetStreamPriorityRange(least, greatest)
        check_hip("hipDeviceGetStreamPriorityRange", status)
        return least[0], greatest[0]

    # The thread's current device

    def current(self) -> AbstractContextManager[None]:
        """``with device.current():`` makes calls in this thread that go by HIP's current device go to this one."""
        return _Current(self)

    def current_for(self, raw_stream: int) -> AbstractContextManager[None]:
        """As ``current()``, for a call with that stream: only the default stream, 0, goes by the current device."""
        return _NOTHING if raw_stream else _Current(self)

    # Memory

    def malloc(self, nbytes: int, kind: str = "coarse") -> Buffer:
        """Memory of the device: ``coarse``, ``fine`` (coherent while kernels run), or ``uncached``."""
        return memory.malloc(self, nbytes, kind)

    def malloc_host(
        self, nbytes: int, *, coherent: bool | None = None, portable: bool = False, mapped: bool = False
    ) -> Buffer:
        """Pinned memory of the host, which every device may access at the same address.

        ``coherent``: devices see it uncached (True) or cached (False, coherent only when a kernel ends); None leaves
        it to HIP, which reads HIP_HOST_COHERENT and by default takes True.
        """
        return memory.malloc_host(self, nbytes, coherent, portable, mapped)

    def malloc_managed(self, nbytes: int) -> Buffer:
        """Memory for the host and every device, which the driver moves to where it is used."""
        return memory.malloc_managed(self, nbytes)

    # Code

    def load(self, source: str | os.PathLike | bytes) -> Module:
        """Load a code object, from a file or from memory. See ``Module.load``."""
        return Module.load(source, self)

    # Streams and events

    def create_stream(
        self, priority: str = "normal", blocking: bool | None = None, cu_mask: CuMask | None = None
    ) -> Stream:
        """A stream of priority ``low``, ``normal`` or ``high``.

        A ``blocking`` one is ordered with the default stream of the device. Streams with a mask always are, the others
        only on demand. The mask is read back and compared; InvalidArgument says what limits it.
        """
        return stream.create(self, priority, blocking, cu_mask)

    def create_event(self, timing: bool = True) -> Event:
        """An event to record in this device's streams. Without ``timing`` it costs less and has no time."""
        return event.create(self, timing)

    def synchronize(self, deadline: float = 30.0) -> None:
        """Wait for everything submitted to the streams of this device, ``deadline`` in seconds for each."""
        if fork.forked:
            fork.refuse()
        for state in self._streams():
            if state.submitted:  # HIP would make a default stream only to ask for it
                state.wait(deadline)
        self.platform.registry.sweep()

    def idle(self) -> bool:
        """Whether everything is complete that was submitted to the streams of this device."""
        return all(state.idle() for state in self._streams())

    def _streams(self) -> list[State]:
        # The default stream last: asking for it is work for it while others are busy.
        mine = [state for state in list(self.platform.streams) if state.device is self]
        return sorted(mine, key=lambda state: state.raw == 0)

    def take_event(self) -> int:
        """An event without timing for a wait, back with ``give_event``."""
        with self._lock:
            if self._events:
                return self._events.pop()
        return event.new(self, timing=False)

    def give_event(self, raw: int) -> None:
        with self._lock:
            self._events.append(raw)

    def passed(self, raw_event: int) -> bool:
        """Whether an event is complete."""
        # hipError_t hipEventQuery(hipEvent_t event)
        status = self.platform.lib.hipEventQuery(raw_event)
        return not hip_answered("hipEventQuery", status, HIP.hipErrorNotReady)

    # Copies and fills that are complete on return

    def copy(
        self, dst: Span | np.ndarray, src: Span | np.ndarray, nbytes: int | None = None, deadline: float = 30.0
    ) -> None:
        """Copy by the default stream, and wait for it. See ``Stream.copy``."""
        self.default_stream.copy(dst, src, nbytes, deadline)
        self.default_stream.synchronize(deadline)

    def fill(self, dst: Span, value: int, width: int = 1, deadline: float = 30.0) -> None:
        """Fill by the default stream, and wait for it. See ``Stream.fill``."""
        self.default_stream.fill(dst, value, width, deadline)
        self.default_stream.synchronize(deadline)

    # Peers

    def can_access(self, peer: Device) -> bool:
        """Whether this device can have access to the memory of ``peer``."""
        out = ffi.new("int *")
        # hipError_t hipDeviceCanAccessPeer(int *canAccessPeer, int deviceId, int peerDeviceId)
        status = self.platform.lib.hipDeviceCanAccessPeer(out, self.ordinal, peer.ordinal)
        check_hip("hipDeviceCanAccessPeer", status)
        return bool(out[0])

    def enable_peer_access(self, peer: Device) -> None:
        """Let kernels of this device use memory of ``peer``. Doing it twice is fine."""
        self._check_peer(peer)
        with self.current():
            # hipError_t hipDeviceEnablePeerAccess(int peerDeviceId, unsigned int flags)
            status = self.platform.lib.hipDeviceEnablePeerAccess(peer.ordinal, 0)
        hip_answered("hipDeviceEnablePeerAccess", status, HIP.hipErrorPeerAccessAlreadyEnabled)

    def disable_peer_access(self, peer: Device) -> None:
        """Take it back. Doing it twice is fine."""
        self._check_peer(peer)
        with self.current():
            # hipError_t hipDeviceDisablePeerAccess(int peerDeviceId)
            status = self.platform.lib.hipDeviceDisablePeerAccess(peer.ordinal)
        hip_answered("hipDeviceDisablePeerAccess", status, HIP.hipErrorPeerAccessNotEnabled)

    def _check_peer(self, peer: Device) -> None:
        if peer is self or not self.can_access(peer):
            raise InvalidArgument(f"{self.label} cannot access memory of {peer.label}: another device, with a link?")
