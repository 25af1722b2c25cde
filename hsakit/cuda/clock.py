"""One time domain for all GPUs: nanoseconds of the first GPU's %globaltimer.

Events know times only as differences, as single floats of milliseconds. So every GPU has an anchor, an event whose time
is known, renewed before differences get long. What binds events to %globaltimer is a kernel between two events; what
binds the GPUs is a rally, in which the time of flight cancels out.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hsakit.cuda import driver
from hsakit.ffi import CUDA
from hsakit.ffi._cuda import ffi
from hsakit.ffi.errors import DeadlineExceeded, HsakitError, check_cuda, cuda_answered

if TYPE_CHECKING:
    from hsakit.cuda.gpu import CudaGpu

ROUNDS = 64
_LIMIT = 1 << 22  # looks: seconds
_STAMPS = 32
_LONG = 0.25  # seconds: differences are then exact to 16 ns


class Event:
    """A driver's event of a context. ``timed``: it knows when it came; one that does not costs less."""

    def __init__(self, context: int, timed: bool = True):
        driver.enter(context)
        out = ffi.new("CUevent *")
        # CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
        flags = CUDA.CU_EVENT_DEFAULT if timed else CUDA.CU_EVENT_DISABLE_TIMING
        check_cuda("cuEventCreate", driver.lib().cuEventCreate(out, flags))
        self.raw = out[0]
        self.context = context

    def record(self, stream: int) -> None:
        # CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
        check_cuda("cuEventRecord", driver.lib().cuEventRecord(self.raw, stream))

    @property
    def over(self) -> bool:
        # CUresult cuEventQuery(CUevent hEvent)
        return not cuda_answered("cuEventQuery", driver.lib().cuEventQuery(self.raw), CUDA.CUDA_ERROR_NOT_READY)

    def since(self, earlier: Event) -> float:
        """Nanoseconds."""
        out = ffi.new("float *")
        # CUresult cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
        check_cuda("cuEventElapsedTime", driver.lib().cuEventElapsedTime_v2(out, earlier.raw, self.raw))
        return out[0] * 1e6

    def destroy(self) -> None:
        driver.enter(self.context)
        # CUresult cuEventDestroy(CUevent hEvent)
        check_cuda("cuEventDestroy", driver.lib().cuEventDestroy_v2(self.raw))


class Events:
    """The start and end of a work."""

    def __init__(self, context: int):
        self.start = Event(context)
        self.end = Event(context)

    def destroy(self) -> None:
        self.start.destroy()
        self.end.destroy()


class Anchor(NamedTuple):
    """An event that is over, and its time in the domain."""

    event: Event
    at: float

    def time_of(self, event: Event) -> int:
        return round(self.at + event.since(self.event))


class Timed(NamedTuple):
    anchor: Anchor
    events: Events

    def times(self) -> tuple[int, int]:
        start = self.anchor.time_of(self.events.start)
        return start, max(start, self.anchor.time_of(self.events.end))


class Clock:
    """The clock of one GPU. ``offset``: what its %globaltimer is ahead of the domain."""

    def __init__(self, gpu: CudaGpu):
        self._gpu = gpu
        self._stream = gpu.new_stream("high")
        self.offset = 0.0
        self.error = 0.0
        self.anchor = Anchor(self._record(1.0), 0.0)
        self._renewed = time.monotonic()

    def freshen(self) -> None:
        """A new anchor, if the old one is far away and the GPU answers at once."""
        if time.monotonic() - self._renewed < _LONG:
            return
        try:
            event = self._record(0.01)
        except DeadlineExceeded:  # it is busy: the old one will do
            return
        self.anchor = Anchor(event, self.anchor.at + event.since(self.anchor.event))
        self._renewed = time.monotonic()

    def _record(self, patience: float) -> Event:
        driver.enter(self._gpu.context)
        event = Event(self._gpu.context)
        event.record(self._stream)
        end = time.monotonic() + patience
        while not event.over:
            if time.monotonic() > end:
                raise DeadlineExceeded(f"{self._gpu.label}: no event on an idle stream within {patience:g} s")
        return event

    def bind(self) -> None:
        """Find the time of the anchor. The GPU must be idle."""
        gpu = self._gpu
        low, high = -np.inf, np.inf  # of %globaltimer less the anchor's count
        gate = gpu.node.create_signal(0)
        with gpu.allocate(8) as tick:
            stamp = gpu.kernels.stamp(tick).snapshot()  # type: ignore[arg-type]
            base = self._record(1.0)
            before, after = Event(gpu.context), Event(gpu.context)
            for _ in range(_STAMPS):
                gate.store(1)
                driver.enter(gpu.context)
                # CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
                status = driver.lib().cuStreamWaitValue64_v2(
                    self._stream, gate.address, 0, CUDA.CU_STREAM_WAIT_VALUE_EQ
                )
                check_cuda("cuStreamWaitValue64", status)
                before.record(self._stream)  # all three one behind the other, at the pace of the GPU
                stamp.run(self._stream)
                after.record(self._stream)
                gate.store(0)
                end = time.monotonic() + 1.0
                while not after.over:
                    if time.monotonic() > end:
                        raise DeadlineExceeded(f"{gpu.label}: a stamp is not there within 1 s")
                at = int(gpu.get(tick).view(np.uint64)[0])
                low, high = max(low, at - after.since(base)), min(high, at - before.since(base))
            before.destroy()
            after.destroy()
        self.error = abs(high - low) / 2
        self.anchor = Anchor(base, (low + high) / 2 - self.offset)
        self._renewed = time.monotonic()


def compare(first: CudaGpu, other: CudaGpu) -> tuple[float, float]:
    """What the other's %globaltimer is ahead of the first's, and the shortest flight there and back, in nanoseconds."""
    pair = (first, other)
    flags = [gpu.allocate(8, "fine") for gpu in pair]
    reports = [gpu.allocate(16 * ROUNDS) for gpu in pair]
    for gpu, flag, report in zip(pair, flags, reports):
        gpu.put(flag, lambda view: view.fill(0))
        gpu.put(report, lambda view: view.fill(0))
    queues = [gpu.create_queue(64) for gpu in pair]
    for serves in (0, 1):  # who serves comes last
        me = 1 - serves
        launch = (
            pair[me]
            .kernels.kernel("latch", "rally")
            .prepare(
                1,
                64,
                {
                    "mine": flags[me],
                    "theirs": flags[1 - me],
                    "serves": serves,
                    "rounds": ROUNDS,
                    "limit": _LIMIT,
                    "report": reports[me],
                },
            )
        )
        queues[me].prepare(launch).submit()
    for queue in queues:
        queue.drain()
    served, returned = (
        gpu.get(report).view(np.uint64).astype(np.int64).reshape(ROUNDS, 2).copy() for gpu, report in zip(pair, reports)
    )
    for queue in queues:
        queue.close()
    if not served.all() or not returned.all():
        raise HsakitError(f"{first.label} and {other.label} do not see each other's flags: a ball was lost")
    flight = served[:, 1] - served[:, 0]
    best = int(np.argmin(flight))
    offsets = returned[:, 0] - (served[:, 0] + served[:, 1]) / 2
    return float(np.median(offsets[flight <= flight[best] + 64])), float(flight[best])
