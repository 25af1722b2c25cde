"""One way to run launches on chosen CUs and time them, whether by an HSA queue or by a HIP stream."""

from __future__ import annotations

from typing import Any

from hsakit.culayout import CuLayout
from hsakit.cumask import CuMask, from_api
from hsakit.node import Gpu
from hsakit.sweep.sweep import hip_device


class MaskedQueue:
    """An AQL queue. Times are those of the dispatch's completion signal."""

    timer = "completion signal"

    def __init__(self, gpu: Gpu, mask: CuMask | None):
        self._queue = gpu.agent.create_queue(64, cu_mask=mask)
        self._done = gpu.node.runtime.create_signal(1)

    def run(self, launch: Any, deadline: float) -> int:
        """Run a prepared launch; the nanoseconds that it took."""
        self._done.store(1)
        launch.launch(self._queue, self._done, deadline=deadline)
        self._done.wait(deadline=deadline)
        start, end = self._done.times
        return end - start

    def read_back(self, layout: CuLayout) -> int | None:
        """The mask that the runtime reports, in the driver's bits. None if it reports none."""
        return sum(1 << bit for bit in self._queue.cu_mask)

    def close(self) -> None:
        self._queue.close()
        self._done.close()


class MaskedStream:
    """A HIP stream. Times are between events before and behind the launch, the events' own cost included."""

    timer = "events"

    def __init__(self, gpu: Gpu, mask: CuMask | None):
        device = hip_device(gpu)
        self._stream = device.create_stream(cu_mask=mask)
        self._start, self._end = device.create_event(), device.create_event()

    def run(self, launch: Any, deadline: float) -> int:
        self._start.record(self._stream)
        launch.launch(self._stream)
        self._end.record(self._stream)
        self._end.synchronize(deadline)
        return round(self._end.elapsed_since(self._start) * 1e6)

    def read_back(self, layout: CuLayout) -> int | None:
        words = self._stream.read_cu_mask()
        return None if words is None else from_api(layout, sum(word << 32 * i for i, word in enumerate(words)), "hip")

    def close(self) -> None:
        for each in (self._stream, self._start, self._end):
            each.close()


OPEN: dict[str, type[MaskedQueue] | type[MaskedStream]] = {"hsa": MaskedQueue, "hip": MaskedStream}
