"""What was submitted to a stream and is not known to be complete, and what it holds meanwhile."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import TYPE_CHECKING

from hsakit.ffi import HIP
from hsakit.ffi.errors import check_hip, hip_answered
from hsakit.hip.wait import until

if TYPE_CHECKING:
    from hsakit.hip.device import Device

MANY = 4096  # submissions held before a marker is sent along that tells which are complete
# HIP's rings have 16384 packets, of which a submission may take several. In a full one HIP waits for ever, inside the
# submission: from this number on the stream is waited for here, so long.
FULL, _ROOM = 8192, 30.0  # submissions, seconds
_numbers = itertools.count(1)


class State:
    """The submissions of a stream. It outlives the Stream until they are complete.

    HIP says of a stream that all of it is complete, and of an event that all before it is. Hence submissions are only
    counted: the first ``done`` of them are known to be complete.
    """

    def __init__(self, device: Device, raw: int):
        self.device = device
        self.raw = raw  # 0: the default stream, which goes by the thread's current device
        self.label = f"stream {next(_numbers)} of {device.label}" if raw else f"the default stream of {device.label}"
        self.done = 0
        self._visible = 0  # of which the host can see what they wrote
        # One object for each submission: it holds what the device may touch, and as a string says what it is.
        self.flights: deque[object] = deque()
        self._lock = threading.Lock()
        self._thinning = threading.Lock()
        self._marker: tuple[int, int] | None = None  # an event on its way, and how many submissions are before it
        self._lib = device.platform.lib
        device.platform.streams.add(self)

    def __repr__(self) -> str:
        return f"<State of {self.label}, {self.done} of {self.submitted} complete>"

    @property
    def submitted(self) -> int:
        """How many submissions there were."""
        with self._lock:
            return self.done + len(self.flights)

    def submit(self, call: str, status: int, flight: object) -> None:
        """Note what was handed to HIP by the function named ``call``, or raise the error that it returned."""
        if status:
            check_hip(call, status, f"It was {flight} on {self.label}")
        self.flights.append(flight)
        if len(self.flights) > MANY:
            self._thin()

    def ready(self) -> bool:
        """Whether everything is complete that was submitted to the stream, by whomever."""
        mark = self.submitted
        with self.device.current_for(self.raw):
            # hipError_t hipStreamQuery(hipStream_t stream)
            status = self._lib.hipStreamQuery(self.raw)
        if hip_answered("hipStreamQuery", status, HIP.hipErrorNotReady):
            return False
        self.complete(mark)
        return True

    def idle(self) -> bool:
        """Whether everything is complete that was submitted here."""
        return not self.flights or self.ready()

    def complete(self, mark: int) -> None:
        """The first ``mark`` submissions are complete: let go of what they held."""
        gone = []  # so that finalisers run outside of the lock
        with self._lock:
            while self.done < mark:
                gone.append(self.flights.popleft())
                self.done += 1

    def wait(self, deadline: float) -> None:
        """Wait until everything submitted so far is complete, and the host can see what it wrote."""
        mark = self.submitted
        if mark == self._visible and self.ready():
            return
        # Not by asking for the stream: that a kernel is complete does not take its bytes out of the GPU's caches, and
        # while the default stream is busy each question is a packet more. A recorded event releases to the system.
        event = self._record()
        try:
            until(self.device.platform, lambda: self.device.passed(event), deadline, self.label, self.explain)
        finally:
            self.device.give_event(event)
        self.complete(mark)
        self._visible = max(self._visible, mark)

    def destroy(self) -> None:
        """Destroy HIP's stream, which should be idle: HIP waits for it."""
        if self not in self.device.platform.streams:  # by the end of the interpreter
            return
        self.device.platform.streams.discard(self)
        # hipError_t hipStreamDestroy(hipStream_t stream)
        check_hip("hipStreamDestroy", self._lib.hipStreamDestroy(self.raw))

    def oldest(self, n: int) -> list[str]:
        """The first ``n`` submissions that are not known to be complete, in words."""
        with self._lock:
            first = list(itertools.islice(self.flights, n))
        return [str(flight) for flight in first]

    def explain(self) -> str:
        """What is missing, in words."""
        oldest, n = self.oldest(1), self.submitted
        if not oldest:
            return "it is for others that submitted to the same stream"
        return f"of {n} submissions {self.done} are known to be complete, the next is {oldest[0]}"

    def _record(self) -> int:
        event = self.device.take_event()
        with self.device.current_for(self.raw):
            # hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
            check_hip("hipEventRecord", self._lib.hipEventRecord(event, self.raw))
        return event

    def _thin(self) -> None:
        """Let go of what is complete on a stream that nobody waits for. Where nothing is, the ring will be full."""
        if not self._thinning.acquire(blocking=False):
            return
        try:
            if not self._has_room():
                until(self.device.platform, self._has_room, _ROOM, f"the oldest work of {self.label}", self.explain)
        finally:
            self._thinning.release()

    def _has_room(self) -> bool:
        if self._marker is None:
            mark = self.submitted
            self._marker = self._record(), mark
        elif self.device.passed(self._marker[0]):
            self.device.give_event(self._marker[0])
            self.complete(self._marker[1])
            self._marker = None
        return len(self.flights) <= FULL
