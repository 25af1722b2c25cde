"""Streams: work that runs in order on a device."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hsakit.culimits import effective
from hsakit.cumask import CuMask
from hsakit.ffi import HIP
from hsakit.ffi._hip import ffi
from hsakit.ffi.errors import InvalidArgument, check_hip
from hsakit.hip.event import Event
from hsakit.hip.platform import STREAM
from hsakit.hip.stream_state import State
from hsakit.hip.transfer import Transfer, check_grants, check_rows, kind, side, size, waits
from hsakit.hsa.lifetime import Closable, Handle
from hsakit.hsa.memory import Span

if TYPE_CHECKING:
    from hsakit.hip.device import Device

PRIORITIES = ("low", "normal", "high")
# No mask is both: what a buffer held before is still there where HIP reported success and wrote nothing.
_UNWRITTEN = (0xA5A5A5A5, 0x5A5A5A5A)
_FILLS = {1: "hipMemsetD8Async", 2: "hipMemsetD16Async", 4: "hipMemsetD32Async"}


class StreamHandle(Handle):
    """HIP's stream, destroyed when it is idle: HIP would wait for its work."""

    __slots__ = ("state",)

    def __init__(self, state: State):
        self.state = state
        platform = state.device.platform
        destroy = partial(platform.registry.when, state.idle, state.destroy)
        super().__init__(platform.registry, state.raw, STREAM, destroy)


def create(device: Device, priority: str, blocking: bool | None, cu_mask: CuMask | None) -> Stream:
    if priority not in PRIORITIES:
        raise InvalidArgument(f"priority {priority!r} is none of {', '.join(PRIORITIES)}")
    device.platform.registry.sweep()
    if cu_mask is not None:
        return _create_masked(device, priority, blocking, cu_mask)
    least, greatest = device.stream_priorities
    number = {"low": least, "normal": 0, "high": greatest}[priority]
    if priority != "normal" and not number:
        raise InvalidArgument(f"{device.label} has no streams of {priority} priority")
    out = ffi.new("hipStream_t *")
    flags = HIP.hipStreamDefault if blocking else HIP.hipStreamNonBlocking
    with device.current():
        # hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned int flags, int priority)
        status = device.platform.lib.hipStreamCreateWithPriority(out, flags, number)
    check_hip("hipStreamCreateWithPriority", status)
    return Stream(device, StreamHandle(State(device, out[0])), _priority(device, out[0]), bool(blocking))


def _priority(device: Device, raw: int) -> str:
    """The priority that a stream has in HIP, which may be another than was asked for."""
    out = ffi.new("int *")
    # hipError_t hipStreamGetPriority(hipStream_t stream, int *priority)
    check_hip("hipStreamGetPriority", device.platform.lib.hipStreamGetPriority(raw, out))
    return "normal" if not out[0] else "high" if out[0] < 0 else "low"


def _create_masked(device: Device, priority: str, blocking: bool | None, mask: CuMask) -> Stream:
    if priority != "normal" or blocking is False:
        raise InvalidArgument(
            "HIP makes streams with a CU mask only of normal priority, and blocking (ordered with the default stream). "
            "For a mask together with a priority use Agent.create_queue"
        )
    words = mask.checked_for(device.agent).words
    limited = effective(mask, "hip", gpu=device.agent.index, gpus=len(device.platform.runtime.gpus))
    notes = "; ".join(limited.notes)
    out = ffi.new("hipStream_t *")
    with device.current():
        # hipError_t hipExtStreamCreateWithCUMask(hipStream_t *stream, uint32_t cuMaskSize, const uint32_t *cuMask)
        status = device.platform.lib.hipExtStreamCreateWithCUMask(out, len(words), ffi.new("uint32_t[]", words))
    check_hip("hipExtStreamCreateWithCUMask", status, notes or None)
    stream = Stream(device, StreamHandle(State(device, out[0])), "normal", True)
    stream._cu_mask = mask
    back = stream.read_cu_mask()
    if limited.mask != mask or (back is not None and not mask.matches(back, "hip")):
        stream.close()
        said = f"the mask {' '.join(f'{word:08x}' for word in reversed(back))}" if back else "no mask"
        why = notes or "neither HSA_CU_MASK nor ROC_GLOBAL_CU_MASK explains it"
        raise InvalidArgument(f"{device.label} does not give a stream {mask!r}: {why}. HIP reports {said}")
    return stream


class Stream(Closable[StreamHandle]):
    """A stream, from ``Device.create_stream`` or ``Device.default_stream``. Several threads may submit.

    What is submitted keeps the memory that it uses alive until it is known to be complete. ``close()`` returns at once;
    the stream is destroyed when its work is done.
    """

    def __init__(self, device: Device, handle: StreamHandle, priority: str, blocking: bool):
        self.device = device
        self.priority = priority
        self.blocking = blocking  # waits for the device's default stream, which waits for it
        self._handle = handle
        self._cu_mask: CuMask | None = None

    def __repr__(self) -> str:
        if self.closed:
            return "<Stream closed>"
        state = self.state()
        return f"<Stream 0x{state.raw:x}, {state.label}, {len(state.flights)} of {state.submitted} in flight>"

    def __eq__(self, other) -> bool:
        return isinstance(other, Stream) and self._handle is other._handle and self._handle is not None

    def __hash__(self) -> int:
        return id(self._handle)

    def close(self) -> None:
        """Give it up; it is destroyed when its work is done. The default stream is HIP's and stays."""
        if self._handle is not None and self._handle.raw:
            super().close()

    def state(self) -> State:
        """What is submitted to it. ClosedError, ForkError."""
        return self.handle().state

    @property
    def cu_mask(self) -> CuMask | None:
        """The CUs that its kernels may use; None if it was created without a mask."""
        return self._cu_mask

    def read_cu_mask(self) -> tuple[int, ...] | None:
        """The words of the mask that HIP reports, as many as it writes. None if it says success and writes none: with
        ROC_GLOBAL_CU_MASK some releases do. HIP knows nothing of HSA_CU_MASK."""
        raw, n = self.state().raw, -(-self.device.agent.cu_count // 32)
        answers = []
        for word in _UNWRITTEN:
            out = ffi.new("uint32_t[]", [word] * n)
            with self.device.current():  # the number of words is checked for the current device
                # hipError_t hipExtStreamGetCUMask(hipStream_t stream, uint32_t cuMaskSize, uint32_t *cuMask)
                check_hip("hipExtStreamGetCUMask", self.device.platform.lib.hipExtStreamGetCUMask(raw, n, out))
            answers.append(tuple(out))
        written = tuple(a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*answers)))
        return written or None

    def query(self) -> bool:
        """Whether everything submitted to it is complete."""
        return self.state().ready()

    def synchronize(self, deadline: float = 30.0) -> None:
        """Wait until everything submitted so far is complete, ``deadline`` in seconds. DeadlineExceeded says what is
        not."""
        self.state().wait(deadline)
        self.device.platform.registry.sweep()

    def record(self, event: Event | None = None) -> Event:
        """Record an event, a new one if none is given, after what was submitted so far."""
        return (event or self.device.create_event()).record(self)

    def wait_event(self, event: Event) -> None:
        """Work submitted from now on waits for the event, which may be of another device."""
        handle, state, recorded = event.handle(), self.state(), event.recorded
        with self.device.current_for(state.raw):
            # hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags)
            status = self.device.platform.lib.hipStreamWaitEvent(state.raw, handle.raw, 0)
        parts = (recorded.mark, recorded.state.label)
        state.submit("hipStreamWaitEvent", status, Transfer("a wait for {} submissions to {}", parts, handle))

    # Copies and fills

    def copy(
        self, dst: Span | np.ndarray, src: Span | np.ndarray, nbytes: int | None = None, deadline: float = 30.0
    ) -> None:
        """Copy ``nbytes``, by default all: between buffers of any devices, pinned memory and arrays of the host.

        Returns at once where one side is on a device and HIP allocated the other. All other copies HIP makes while the
        caller waits: for these the stream is waited for before and after, ``deadline`` (seconds) bounds each wait.
        """
        to, source = side(dst, "dst", writable=True), side(src, "src")
        n = size(to, source, nbytes)
        if to.address < source.address + n and source.address < to.address + n:
            raise InvalidArgument(f"dst, {to}, and src, {source}, overlap: a copy gives no order to its bytes")
        check_grants(self.device, to, source)
        lib = self.device.platform.lib
        if to.device is not None and source.device is not None and to.device != source.device:
            # hipError_t hipMemcpyPeerAsync(void *dst, int dstDeviceId, const void *src, int srcDevice,
            #                               size_t sizeBytes, hipStream_t stream)
            call = "hipMemcpyPeerAsync"
            function = partial(lib.hipMemcpyPeerAsync, to.address, to.device, source.address, source.device, n)
        else:
            # hipError_t hipMemcpyAsync(void *dst, const void *src, size_t sizeBytes, hipMemcpyKind kind,
            #                           hipStream_t stream)
            call = "hipMemcpyAsync"
            function = partial(lib.hipMemcpyAsync, to.address, source.address, n, kind(to, source))
        flight = Transfer("the copy of {} bytes from {} to {}", (n, source, to), to.keeps, source.keeps)
        self._transfer(call, function, flight, waits(to, source), deadline)

    def copy_2d(
        self,
        dst: Span | np.ndarray,
        src: Span | np.ndarray,
        *,
        width: int,
        height: int,
        dst_pitch: int,
        src_pitch: int,
        deadline: float = 30.0,
    ) -> None:
        """Copy ``height`` rows of ``width`` bytes that begin ``dst_pitch`` and ``src_pitch`` bytes apart. See copy."""
        to, source = side(dst, "dst", writable=True), side(src, "src")
        if width < 1 or height < 1:
            raise InvalidArgument(f"a rectangle of {width} bytes x {height} rows: each is at least 1")
        check_rows("dst", to, dst_pitch, width, height)
        check_rows("src", source, src_pitch, width, height)
        check_grants(self.device, to, source)
        # hipError_t hipMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
        #                             size_t height, hipMemcpyKind kind, hipStream_t stream)
        function = partial(
            self.device.platform.lib.hipMemcpy2DAsync,
            *(to.address, dst_pitch, source.address, src_pitch, width, height, kind(to, source)),
        )
        parts = (height, width, source, to)
        flight = Transfer("the copy of {} rows of {} bytes from {} to {}", parts, to.keeps, source.keeps)
        self._transfer("hipMemcpy2DAsync", function, flight, waits(to, source), deadline)

    def fill(self, dst: Span, value: int, width: int = 1, deadline: float = 30.0) -> None:
        """Fill memory that HIP allocated with a number of ``width`` bytes: 1, 2 or 4.

        Returns at once if it is on a device, else waits as ``copy`` does.
        """
        if width not in _FILLS:
            raise InvalidArgument(f"width {width!r}: a fill repeats a number of 1, 2 or 4 bytes")
        if not isinstance(value, int) or not -(1 << 8 * width - 1) <= value < 1 << 8 * width:
            raise InvalidArgument(f"{value!r} is no number of {width} bytes")
        to = side(dst, "dst")
        if to.pageable:
            raise InvalidArgument(f"{dst!r} was not allocated by HIP: fill it with numpy")
        if to.nbytes % width or to.address % width:
            raise InvalidArgument(f"{to} is no whole number of {width}-byte words, aligned to {width}")
        if not to.nbytes:
            raise InvalidArgument(f"{to}: nothing to fill, leave it out")
        call = _FILLS[width]
        value &= (1 << 8 * width) - 1
        if width == 4 and value >> 31:
            value -= 1 << 32  # declared int
        # hipError_t hipMemsetD8Async(hipDeviceptr_t dest, unsigned char value, size_t count, hipStream_t stream)
        # hipError_t hipMemsetD16Async(hipDeviceptr_t dest, unsigned short value, size_t count, hipStream_t stream)
        # hipError_t hipMemsetD32Async(hipDeviceptr_t dst, int value, size_t count, hipStream_t stream)
        function = partial(getattr(self.device.platform.lib, call), to.address, value, to.nbytes // width)
        self._transfer(call, function, Transfer("the fill of {}", (to,), to.keeps), to.device is None, deadline)

    def _transfer(self, call: str, function, flight: Transfer, waits: bool, deadline: float) -> None:
        """Hand it to HIP, whose function takes the stream as its last argument."""
        state = self.state()
        if waits:  # HIP waits inside the call, for ever if need be: nothing may be left to wait for
            state.wait(deadline)
        with self.device.current_for(state.raw):
            status = function(state.raw)
        state.submit(call, status, flight)
        if waits:
            self.synchronize(deadline)
