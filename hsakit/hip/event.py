"""Events: points in the work of a stream, to wait for and to measure between."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hsakit.ffi import HIP
from hsakit.ffi._hip import ffi
from hsakit.ffi.errors import InvalidArgument, check_hip
from hsakit.hip.platform import EVENT
from hsakit.hip.wait import until
from hsakit.hsa.lifetime import Closable, Handle

if TYPE_CHECKING:
    from hsakit.hip.device import Device
    from hsakit.hip.stream import Stream
    from hsakit.hip.stream_state import State


class Recorded(NamedTuple):
    """Where an event was recorded last: after how many submissions to which stream."""

    state: State
    mark: int


class EventHandle(Handle):
    """An event on its way in a stream, for which it is a submission like others."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"event 0x{self.raw:x}"


def create(device: Device, timing: bool) -> Event:
    platform = device.platform
    platform.registry.sweep()
    raw = new(device, timing)
    return Event(device, EventHandle(platform.registry, raw, EVENT, partial(destroy, platform.lib, raw)), timing)


def new(device: Device, timing: bool) -> int:
    """HIP's handle of a new event."""
    out = ffi.new("hipEvent_t *")
    flags = HIP.hipEventDefault if timing else HIP.hipEventDisableTiming
    with device.current():
        # hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags)
        check_hip("hipEventCreateWithFlags", device.platform.lib.hipEventCreateWithFlags(out, flags))
    return out[0]


def destroy(lib, raw: int) -> None:
    # hipError_t hipEventDestroy(hipEvent_t event)
    check_hip("hipEventDestroy", lib.hipEventDestroy(raw))


class Event(Closable[EventHandle]):
    """An event, from ``Device.create_event``. Recording it again moves it."""

    def __init__(self, device: Device, handle: EventHandle, timing: bool):
        self.device = device
        self.timing = timing
        self._handle = handle
        self._recorded: Recorded | None = None

    def __repr__(self) -> str:
        if self.closed:
            return "<Event closed>"
        where = f"after {self._recorded.mark} submissions to {self._recorded.state.label}" if self._recorded else "new"
        return f"<Event 0x{self.handle().raw:x} of {self.device.label}, {where}>"

    def record(self, stream: Stream | None = None) -> Event:
        """Record what was submitted to the stream so far (None: to the device's default stream). Returns itself."""
        stream = stream or self.device.default_stream
        if stream.device is not self.device:
            raise InvalidArgument(f"{self} cannot be recorded in {stream}: create one by {stream.device.label}")
        handle, state = self.handle(), stream.state()
        mark = state.submitted
        with self.device.current_for(state.raw):
            # hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
            status = self.device.platform.lib.hipEventRecord(handle.raw, state.raw)
        state.submit("hipEventRecord", status, handle)
        self._recorded = Recorded(state, mark)
        return self

    @property
    def recorded(self) -> Recorded:
        """Where it was recorded. InvalidArgument if it never was."""
        if self._recorded is None:
            raise InvalidArgument(f"{self} was never recorded: to HIP that is as good as complete. Record it first")
        return self._recorded

    def query(self) -> bool:
        """Whether everything recorded is complete."""
        handle, recorded = self.handle(), self.recorded
        if not self.device.passed(handle.raw):
            return False
        recorded.state.complete(recorded.mark)
        return True

    def synchronize(self, deadline: float = 30.0) -> None:
        """Wait until everything recorded is complete, ``deadline`` in seconds. DeadlineExceeded says what is not."""
        recorded = self.recorded
        until(self.device.platform, self.query, deadline, self, recorded.state.explain)
        self.device.platform.registry.sweep()

    def elapsed_since(self, start: Event) -> float:
        """Milliseconds from ``start`` to this event, as HIP gives them: a float. Both must be complete, and timed."""
        for event in (start, self):
            if not event.timing:
                raise InvalidArgument(f"{event} has no time: it was created with timing=False")
            if event.device is not self.device:
                raise InvalidArgument(f"{start} and {self} are of two devices: HIP compares no times of these")
            if not event.query():
                raise InvalidArgument(f"{event} is not complete and has no time yet: synchronize() first")
        out = ffi.new("float *")
        # hipError_t hipEventElapsedTime(float *ms, hipEvent_t start, hipEvent_t stop)
        status = self.device.platform.lib.hipEventElapsedTime(out, start.handle().raw, self.handle().raw)
        check_hip("hipEventElapsedTime", status)
        return out[0]
