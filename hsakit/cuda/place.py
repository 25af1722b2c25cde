"""Where work is submitted: streams as queues for kernels, and streams of their own as copy engines.

How far a stream has come is seen from the signals that its works complete, and from the driver's answer whether it is
empty: a value written behind every work would cost the next one some microseconds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hsakit.cuda import driver
from hsakit.cuda.signal import Signal, flags, waits
from hsakit.ffi import CUDA
from hsakit.ffi._cuda import ffi
from hsakit.ffi.errors import ClosedError, DeadlineExceeded, InvalidArgument, check_cuda, check_deadline, cuda_answered
from hsakit.scoped import Scoped

if TYPE_CHECKING:
    from hsakit.cuda.gpu import CudaGpu
    from hsakit.cuda.memory import Span

MOST = 512  # works in flight in a stream: the driver makes the host wait, for ever if need be, somewhat above
_NAP = 20e-6


class Place:
    """A stream with a label; work of it starts in the order of its submission."""

    def __init__(self, gpu: CudaGpu, label: str, stream: int, context: int, size: int):
        self.gpu = gpu
        self.label = label
        self.context = context
        self.size = size
        self._stream: int | None = stream
        self._raw = stream
        self._submitted = 0
        self._pending: deque[tuple[Callable[[], bool], Any]] = deque()  # whether a work is complete, what it holds
        gpu.node.places.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}{'' if self._stream else ', closed'}>"

    @property
    def stream(self) -> int:
        if self._stream is None:
            raise ClosedError(f"{self!r}")
        return self._stream

    @property
    def in_flight(self) -> int:
        """Works that were submitted and were not seen to be complete."""
        pending = self._pending
        for number in range(len(pending), 0, -1):
            if pending[number - 1][0]():  # works of a stream complete in order
                for _ in range(number):
                    pending.popleft()
                break
        # CUresult cuStreamQuery(CUstream hStream). An error: nothing of it will complete any more
        if pending and driver.lib().cuStreamQuery(self._raw) != CUDA.CUDA_ERROR_NOT_READY:
            pending.clear()
        return len(pending)

    def end(self) -> None:
        """Nothing is in flight, and nothing more will come."""
        self.gpu.node.places.discard(self)

    def progress(self) -> str:
        """How far it has come, in words."""
        return f"{self.label} has completed {self._submitted - self.in_flight} of {self._submitted} works"

    def check_room(self, costs: Sequence[int]) -> None:
        """InvalidArgument if works of these costs, on top of those in flight, do not fit at the same time."""
        free = self.size - self.in_flight
        if sum(costs) > free:
            raise InvalidArgument(f"{sum(costs)} works do not fit {self.label}: of {self.size} places {free} are free")

    def fail(self) -> None:
        """Raise what went wrong in this stream, if anything did."""
        if self._stream is not None and self._pending:
            # CUresult cuStreamQuery(CUstream hStream)
            cuda_answered("cuStreamQuery", driver.lib().cuStreamQuery(self._raw), CUDA.CUDA_ERROR_NOT_READY)

    def drain(self, deadline: float = 30.0) -> None:
        """Wait for everything submitted."""
        self._wait(0, deadline, "is not empty")

    def _wait(self, most: int, deadline: float, what: str) -> None:
        check_deadline(deadline)
        begin = looked = time.monotonic()
        while self.in_flight > most:
            now = time.monotonic()
            if now - begin > deadline:
                raise DeadlineExceeded(f"{self.label} {what} within {deadline:g} s: {self.progress()}")
            if now - looked > 0.05:
                self.gpu.node.check()
                looked = now
            time.sleep(_NAP)

    def put(
        self, after: tuple[Signal, ...], run: Any, completion: Signal | None, own: bool, held: Any, deadline: float
    ) -> None:
        """Submit: wait for signals, run something, complete a signal."""
        if len(self._pending) >= self.size and self.in_flight >= self.size:
            self._wait(self.size - 1, deadline, "has no room")
        stream, lib = self.stream, driver.lib()
        conditions = waits(after)
        claim = None
        if completion is not None:
            claim = completion.claim_alone(self) if own else completion.claim(self)
        try:
            driver.enter(self.context)
            for address, value in conditions:
                # CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
                check_cuda("cuStreamWaitValue64", lib.cuStreamWaitValue64_v2(stream, address, value, flags()))
            events = claim[2] if claim else None
            if events is not None:
                events.start.record(stream)
            if run is not None:
                run(stream)
            if events is not None:
                events.end.record(stream)
        except BaseException:
            if completion is not None:
                completion.unclaim()
            raise
        # CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
        if claim is not None:
            check_cuda("cuStreamWriteValue64", lib.cuStreamWriteValue64_v2(stream, claim[0], claim[1], 0))
        self._submitted += 1
        over = _never if completion is None else completion.completed(claim)
        self._pending.append((over, (held, after, completion)))


def _never() -> bool:
    """Of works without a signal nobody knows."""
    return False


class Batch:
    """Works that are submitted one behind the other, and the signals that they begin with."""

    def __init__(self, works: Sequence[Any], arm: Iterable[tuple[Signal, int]]):
        self._works = tuple(works)
        self._arm = tuple(arm)
        self.costs = tuple(cost for work in self._works for cost in work.costs)
        self.partial = False

    def submit(self, deadline: float = 30.0) -> None:
        """Hand all of it over."""
        for signal, count in self._arm:
            signal.store(count)
        self.partial = True
        for work in self._works:
            work.submit(deadline)
        self.partial = False

    def close(self) -> None:
        """Nothing was reserved."""


class QueueWork:
    """A prepared launch, or nothing but waits, of a queue."""

    def __init__(self, queue: Queue, launch: Any, after: tuple[Signal, ...], completion: Signal | None):
        self._queue = queue
        self._launch = launch
        self._after = after
        self._completion = completion
        self.costs = ((queue, 1),)

    def submit(self, deadline: float = 30.0) -> None:
        """Hand it over. ``deadline`` bounds the wait for room."""
        run = None if self._launch is None else self._launch.run
        self._queue.put(self._after, run, self._completion, False, self._launch, deadline)


class Queue(Scoped, Place):
    """A stream of a GPU, of all its multiprocessors or of some. From ``CudaGpu.create_queue``."""

    def __init__(self, gpu: CudaGpu, label: str, stream: int, context: int, size: int, sms: int, kind: Any):
        super().__init__(gpu, label, stream, context, size)
        self.sms = sms  # multiprocessors that were granted
        self.kind = kind

    def prepare(self, launch: Any = None, after: Iterable[Signal] = (), completion: Signal | None = None) -> QueueWork:
        """See ``hsakit.platform.Queue.prepare``."""
        _check(self, after, completion)
        if launch is not None and launch.gpu is not self.gpu:
            raise InvalidArgument(f"{launch!r} is for {launch.gpu.label}, not for {self.label}")
        return QueueWork(self, None if launch is None else launch.snapshot(self), tuple(after), completion)

    def close(self) -> None:
        """Give the stream back, for another queue once it is empty. Closing twice is fine."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self.gpu.take_back(self, stream)


class Copy:
    """A prepared copy of an engine. ``signal`` completes when the bytes are there."""

    def __init__(self, engine: CopyEngine, dst: Span, src: Span, nbytes: int, after: tuple, signal: Signal | None):
        self._engine = engine
        self._own = signal is None
        self.signal = engine.gpu.node.create_signal(0) if signal is None else signal
        self._after = after
        self._run = copier(engine.gpu, dst, src, nbytes)
        self._held = (dst.buffer.handle(), src.buffer.handle())
        self.costs = ((engine, 1),)

    def submit(self, deadline: float = 30.0) -> Signal:
        """Hand it over; returns its signal."""
        self._engine.put(self._after, self._run, self.signal, self._own, self._held, deadline)
        return self.signal


class CopyEngine(Place):
    """A stream for copies alone. Which of the GPU's asynchronous engines it is given, the driver decides."""

    def __init__(self, gpu: CudaGpu, index: int):
        label = f"{gpu.label} engine {index}"
        super().__init__(gpu, label, gpu.new_stream("high"), gpu.context, MOST)
        self.index = index

    def prepare(
        self,
        dst: Span,
        src: Span,
        nbytes: int | None = None,
        after: Iterable[Signal] = (),
        signal: Signal | None = None,
    ) -> Copy:
        """See ``hsakit.platform.CopyEngine.prepare``."""
        nbytes = src.nbytes if nbytes is None else nbytes
        if not 1 <= nbytes <= min(dst.nbytes, src.nbytes):
            raise InvalidArgument(
                f"a copy of {nbytes} bytes from {src!r} to {dst!r}: 1 or more, no more than both have"
            )
        _check(self, after, signal)
        return Copy(self, dst, src, nbytes, tuple(after), signal)

    def copy(self, dst: Span, src: Span, nbytes: int | None = None, after: Iterable[Signal] = ()) -> Signal:
        """Prepare and submit."""
        return self.prepare(dst, src, nbytes, after).submit()


def _check(place: Place, after: Iterable[Signal], completion: Signal | None) -> None:
    for signal in (*after, *(() if completion is None else (completion,))):
        if not isinstance(signal, Signal):
            raise InvalidArgument(f"{place.label}: {signal!r} is no signal of this node")
        signal.handle()


def copier(gpu: CudaGpu, dst: Span, src: Span, nbytes: int) -> Any:
    """What enqueues the copy on a stream."""
    lib = driver.lib()
    to, of = dst.address, src.address
    if dst.agent is src.agent and dst.agent in gpu.node.gpus:
        # A plain copy within a GPU is a kernel on its multiprocessors, and waits for those of others. This one is asked
        # not to be.
        dsts, srcs = ffi.new("CUdeviceptr[1]", [to]), ffi.new("CUdeviceptr[1]", [of])
        sizes, first = ffi.new("size_t[1]", [nbytes]), ffi.new("size_t[1]")
        attributes = ffi.new("CUmemcpyAttributes *")
        attributes.srcAccessOrder = CUDA.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
        attributes.flags = CUDA.CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE

        def run(stream: int) -> None:
            # CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
            #     CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
            status = lib.cuMemcpyBatchAsync_v2(dsts, srcs, sizes, 1, attributes, first, 1, stream)
            check_cuda("cuMemcpyBatchAsync", status)
    else:

        def run(stream: int) -> None:
            # CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
            check_cuda("cuMemcpyAsync", lib.cuMemcpyAsync(to, of, nbytes, stream))

    return run
