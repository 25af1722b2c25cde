"""What a queue launches besides kernels: marks, copies, words set and waited for; copies of an engine behind a mark.

All of it in the order of the stream. A hand-over to another stream by a mark costs less than one by a signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsakit.cuda import clock, driver
from hsakit.cuda.place import CopyEngine, Queue, copier
from hsakit.ffi import CUDA
from hsakit.ffi.errors import InvalidArgument, check_cuda

if TYPE_CHECKING:
    from hsakit.cuda.gpu import CudaGpu
    from hsakit.cuda.memory import Span


class InStream:
    """Something for ``Queue.prepare``: of it nothing changes."""

    gpu: CudaGpu

    def snapshot(self, queue: Queue) -> InStream:
        return self

    def run(self, stream: int) -> None:
        raise NotImplementedError


class Mark(InStream):
    """An event: when the stream came there, and what an engine can wait for. Without ``timed`` it costs less."""

    def __init__(self, queue: Queue, timed: bool = True):
        self.gpu = queue.gpu
        self.event = clock.Event(queue.context, timed)

    def run(self, stream: int) -> None:
        self.event.record(stream)

    def since(self, earlier: Mark) -> int:
        """Nanoseconds."""
        return round(self.event.since(earlier.event))


class CopyLaunch(InStream):
    """A copy in the order of the stream's kernels."""

    def __init__(self, gpu: CudaGpu, dst: Span, src: Span):
        if dst.nbytes != src.nbytes or not src.nbytes:
            raise InvalidArgument(f"a copy from {src!r} to {dst!r}: as many bytes, 1 or more")
        self.gpu = gpu
        self._held = (dst.buffer.handle(), src.buffer.handle())
        self.run = copier(gpu, dst, src, src.nbytes)  # type: ignore[method-assign]


class Store(InStream):
    """64 bits of memory are set, of whatever GPU or of the host."""

    def __init__(self, gpu: CudaGpu, word: Span, value: int):
        self.gpu = gpu
        self._held = word.buffer.handle()
        self._address = word.address
        self._value = value

    def run(self, stream: int) -> None:
        # CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
        status = driver.lib().cuStreamWriteValue64_v2(stream, self._address, self._value, 0)
        check_cuda("cuStreamWriteValue64", status)


class Await(Store):
    """The stream waits until 64 bits of memory are ``value``. It may notice late."""

    def run(self, stream: int) -> None:
        # CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
        status = driver.lib().cuStreamWaitValue64_v2(stream, self._address, self._value, CUDA.CU_STREAM_WAIT_VALUE_EQ)
        check_cuda("cuStreamWaitValue64", status)


class Pushes:
    """Copies of an engine, (to, from) each, one behind the other, as soon as a queue has passed a mark.

    A work: the mark is to be submitted before it.
    """

    def __init__(self, engine: CopyEngine, mark: Mark, copies: Sequence[tuple[Span, Span]]):
        self._engine = engine
        self._mark = mark
        self._copies = [CopyLaunch(engine.gpu, dst, src) for dst, src in copies]
        self.costs = ((engine, 1),)

    def submit(self, deadline: float = 30.0) -> None:
        self._engine.put((), self._run, None, False, self, deadline)

    def _run(self, stream: int) -> None:
        # CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
        check_cuda("cuStreamWaitEvent", driver.lib().cuStreamWaitEvent(stream, self._mark.event.raw, 0))
        for copy in self._copies:
            copy.run(stream)
