"""A HIP stream as a queue of the platform, for work that exists only as calls that take a stream.

Around the call are kernels of ours: a latch for each signal that is waited for, of which the last reads the GPU's
counter when it is let go (without signals, a stamp), and behind it a stamp, an event that makes what was written
visible to all, and a kernel that sets the completion signal to 0. The work's times are those of the two stamps,
converted as those of an AQL queue are. They contain the gaps between three kernels: ``cost`` says how long these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hsakit.culayout import CuLayout
from hsakit.cumask import CuMask
from hsakit.ffi.errors import DeadlineExceeded, InvalidArgument
from hsakit.hsa.signal import Flight, Signal, SignalHandle
from hsakit.kernels import MEMBER, REPORT, TIMED_OUT, Kernels
from hsakit.scoped import Scoped

if TYPE_CHECKING:
    from hsakit.node import Gpu

SIZE = 1024  # packets in flight: much less than HIP's ring has, and more than works that are measured need
PATIENCE = 300.0  # seconds that latches wait, at the least
_LOOK = 512 / 2.5e9  # seconds between two looks of a latch, at the least: its nap at the fastest clock
_RUNS = 9  # of the cost
_LINE = 64


class StreamQueue(Scoped):
    """A stream of a GPU, of all CUs or those of a mask; ``kernels`` are ours for HIP's device.

    A launch for it has ``enqueue(stream)``, which puts its kernels there, ``words`` that say what it is, and may have
    ``packets``: those of a run of it between two stamps.
    """

    def __init__(
        self, gpu: Gpu, kernels: Kernels, priority: str = "normal", cu_mask: CuMask | Iterable[int] | None = None
    ):
        if cu_mask is not None and not isinstance(cu_mask, CuMask):
            cu_mask = CuMask.from_bits(CuLayout.of(gpu.agent), cu_mask)
        self.gpu = gpu
        self.kernels = kernels
        self.size = SIZE
        self.stream = kernels.gpu.create_stream(priority, cu_mask=cu_mask)  # type: ignore[union-attr]
        self.label = self.stream.state().label
        self._works: list[StreamWork] = []

    def __repr__(self) -> str:
        return f"<StreamQueue {self.stream!r}>"

    def close(self) -> None:
        """Give the stream up; it is destroyed when its work is done. Closing twice is fine."""
        self.stream.close()
        for work in self._works:
            work.close()
        self._works = []

    def check_room(self, costs: Sequence[int]) -> None:
        """InvalidArgument if works of these costs are too many at a time."""
        if sum(costs) > self.size:
            raise InvalidArgument(f"{sum(costs)} packets at a time are too many for {self.label}: {self.size} at most")

    def prepare(self, launch: Any = None, after: Iterable[Signal] = (), completion: Signal | None = None) -> StreamWork:
        """See ``hsakit.platform.Queue.prepare``. ``completion`` is needed, and set to 1 before each submission."""
        if completion is None:
            raise InvalidArgument(f"{self.label}: work without a completion signal would have no times")
        work = StreamWork(self, launch, tuple(after), completion)
        self._works.append(work)
        return work

    def drain(self, deadline: float = 30.0) -> None:
        """Wait for everything submitted."""
        self.stream.synchronize(deadline)

    def cost(self, deadline: float = 30.0) -> int:
        """Nanoseconds that the stamps of a work are apart around a kernel that does nothing: the median of a few."""
        node = self.gpu.node
        with node.create_signal(1) as done:
            work = self.prepare(_Empty(self.kernels), completion=done)
            spans = []
            for _ in range(1 + _RUNS):
                done.store(1)
                work.submit(deadline)
                done.wait(deadline=deadline)
                start, end = done.times
                spans.append(end - start)
        return int(np.median(spans[1:]))


class StreamWork:
    """A prepared call in a stream, with what it waits for and what it completes: one run of it at a time.

    It is the place (``hsakit.hsa.signal.Place``) that completes the signal, too.
    """

    lost = False

    def __init__(self, queue: StreamQueue, launch: Any, after: tuple[Signal, ...], completion: Signal):
        self.queue = queue
        self.after = tuple(signal.handle() for signal in after)
        self._launch = launch
        self._completion = completion
        self._event = queue.kernels.gpu.create_event(timing=False)  # type: ignore[union-attr]
        gpu, kernels = queue.gpu, queue.kernels
        reports = max(1, len(after)) * REPORT.itemsize
        self._memory = memory = gpu.node.allocate(-(-reports // _LINE) * _LINE + 3 * _LINE + 64)
        words = memory.view().view(np.uint8)
        self._reports = words[:reports].view(REPORT)
        end = -(-reports // _LINE) * _LINE
        self._tick, flag, table, told = (end + i * _LINE for i in range(4))
        self._end = words[self._tick : self._tick + 8].view(np.uint64)
        words[flag:table] = 0
        words[table : table + MEMBER.itemsize].view(MEMBER)[0] = (completion.address, 0)
        looks = int(PATIENCE / _LOOK)
        self._before = []
        for number, signal in enumerate(after):
            report = memory[number * REPORT.itemsize : (number + 1) * REPORT.itemsize]
            latch = kernels.latch(memory[flag : flag + 8], report, released=0, limit=looks)
            latch.set("flag", signal.address, hold=[signal])
            self._before.append(latch)
        if not after:
            self._before.append(kernels.stamp(memory[16:24]))  # where a latch's last tick would be
        self._stamp = kernels.stamp(memory[self._tick : self._tick + 8])
        self._tell = kernels.conduct(memory[flag : flag + 8], memory[table:told], 1, memory[told:], patience=1 << 62)
        self._tell.set("table", memory[table:told], hold=[completion])
        # What the bracket is of: in a warm run of the launch a stamp stood for what it waits for.
        counted = getattr(launch, "packets", None) or {"aql_dispatch": 4, "aql_barrier_and": 1}
        self.dispatches = counted["aql_dispatch"] - 1 + len(self._before)
        self.costs = ((queue, self.dispatches + counted["aql_barrier_and"]),)

    def __repr__(self) -> str:
        return f"<StreamWork of {self._launch!r} for {self.queue.label}>"

    def close(self) -> None:
        """Give up what it was prepared with; a run in flight keeps it. Its times stay."""
        if not self._event.closed:
            self._ticks = self._read()
        self._event.close()
        self._memory.close()

    def submit(self, deadline: float = 30.0) -> None:
        """Hand it over."""
        completion = self._completion.handle()
        flight = Flight(self, 0, self)
        if completion.armed != 1:
            raise InvalidArgument(
                f"{completion} was set to {completion.armed}: {self.queue.label} completes it alone, set it to 1"
            )
        completion.claim(flight)
        stream = self.queue.stream
        self._reports[:] = 0
        try:
            for kernel in self._before:
                kernel.launch(stream)
            if self._launch is not None:
                self._launch.enqueue(stream)
        except BaseException:
            completion.unclaim(flight)
            raise
        self._stamp.launch(stream)
        self._event.record(stream)
        self._tell.launch(stream)

    # As the place that completes the signal

    def timer(self, _: int) -> tuple[int, int]:
        """Start and end in ticks of the system's clock."""
        agent = self.queue.gpu.agent
        first, last = self._ticks if self._event.closed else self._read()
        # One conversion: the runtime fits the clocks anew from call to call.
        start = agent.time_of_tick(first)
        end = start + (last - first) * 1_000_000_000 // agent.tick_frequency
        frequency = agent.runtime.timestamp_frequency
        return start * frequency // 1_000_000_000, end * frequency // 1_000_000_000

    def _read(self) -> tuple[int, int]:
        return int(self._reports["end"][-1]), int(self._end[0])

    def release(self, number: int, operation: Any) -> None:
        """HIP's stream lets go of what it holds."""

    def describe(self, number: int, operation: Any) -> str:
        return f"{self._words} on {self.queue.label}"

    @property
    def _words(self) -> str:
        return "nothing" if self._launch is None else self._launch.words

    def failure(self, number: int, operation: Any) -> Exception | None:
        """A latch that gave up."""
        if not self._event.closed and (self._reports["state"] == TIMED_OUT).any():
            return DeadlineExceeded(f"{self._words} on {self.queue.label} waited for its signals for {PATIENCE:g} s")
        return None

    def blocking(self, number: int, operation: Any) -> Iterator[SignalHandle]:
        """The signals that its latches wait for."""
        return (handle for handle in self.after if handle.view[0] != 0)


class _Empty:
    """A kernel of ours that does nothing, as a launch."""

    words = "nothing"

    def __init__(self, kernels: Kernels):
        self._launch = kernels.empty()

    def enqueue(self, stream: Any) -> None:
        self._launch.launch(stream)
