"""All-gather and all-to-all by NCCL, for comparison: prepared and submitted like collectives of our own."""

from __future__ import annotations

import atexit
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from hsakit.collectives.collective import After, Part, check_after, check_buffers, ranks_of
from hsakit.collectives.operation import Operation, Where
from hsakit.cuda import CudaNode, driver
from hsakit.cuda.place import Queue
from hsakit.cuda.signal import Signal
from hsakit.ffi import loader
from hsakit.ffi._nccl import ffi
from hsakit.ffi.errors import InvalidArgument, check_nccl
from hsakit.platform import Work

_BYTE = ffi.dlopen(None).ncclUint8


def _lib() -> Any:
    return loader.nccl().lib


_communicators: WeakKeyDictionary[CudaNode, Nccl] = WeakKeyDictionary()


def of(platform: Any) -> Nccl:
    """The communicator of a platform, made when first asked for. InvalidArgument where NCCL cannot run."""
    if not isinstance(platform, CudaNode):
        raise InvalidArgument("NCCL runs on GPUs of NVIDIA's only")
    if platform not in _communicators:
        _communicators[platform] = Nccl(platform)
    return _communicators[platform]


class Nccl:
    """A communicator of all GPUs of a node."""

    def __init__(self, node: CudaNode):
        self.node = node
        count = len(node.gpus)
        self._comms = ffi.new("ncclComm_t[]", count)
        # ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist)
        check_nccl("ncclCommInitAll", _lib().ncclCommInitAll(self._comms, count, ffi.new("int[]", list(range(count)))))
        driver.forget()
        self._open = True
        atexit.register(self.close)  # its threads must not outlive the library

    def __enter__(self) -> Nccl:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def close(self) -> None:
        """Destroy it, unless something hangs: that ends with the process. Closing twice is fine."""
        if self._open and self.node.idle():
            self._open = False
            for comm in self._comms:
                # ncclResult_t ncclCommDestroy(ncclComm_t comm)
                check_nccl("ncclCommDestroy", _lib().ncclCommDestroy(comm))
            driver.forget()

    def prepare(
        self,
        operation: Operation,
        send: Sequence[Any],
        recv: Sequence[Any],
        *,
        after: After = (),
        priority: str = "normal",
        queues: Sequence[Queue] = (),
        tail: Sequence[Work] = (),
    ) -> NcclCollective:
        """Prepare an all-gather, or an all-to-all of grouped sends and receives, on these queues of the ranks, or on
        streams of a priority. ``tail`` is submitted behind it, before ``done`` is signalled."""
        return NcclCollective(self, operation, send, recv, after, priority, queues, tail)

    def enqueue(self, operation: Operation, send: Sequence[Any], recv: Sequence[Any], streams: Sequence[int]) -> None:
        lib, n = _lib(), operation.nbytes
        # ncclResult_t ncclGroupStart(void)
        check_nccl("ncclGroupStart", lib.ncclGroupStart())
        for rank, stream in enumerate(streams):
            comm, to = self._comms[rank], recv[rank].address
            if operation.name == "all-gather":
                src = to + rank * n if operation.in_place else send[rank].address
                # ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                #     ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
                check_nccl("ncclAllGather", lib.ncclAllGather(src, to, n, _BYTE, comm, stream))
                continue
            src = send[rank].address
            for peer in range(operation.ranks):
                # ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                #     ncclComm_t comm, cudaStream_t stream); ncclRecv likewise
                check_nccl("ncclSend", lib.ncclSend(src + peer * n, n, _BYTE, peer, comm, stream))
                check_nccl("ncclRecv", lib.ncclRecv(to + peer * n, n, _BYTE, peer, comm, stream))
        # ncclResult_t ncclGroupEnd(void)
        check_nccl("ncclGroupEnd", lib.ncclGroupEnd())
        driver.forget()


class NcclCollective:
    """A ``hsakit.collectives.collective.Collective``. Start and end are those of the rank's stream."""

    def __init__(self, nccl: Nccl, operation: Operation, send, recv, after: After, priority: str, queues, tail):
        if operation.name not in ("all-gather", "all-to-all") or operation.in_place and operation.name != "all-gather":
            raise InvalidArgument(f"{operation}: NCCL is compared in all-gather and all-to-all, this out of place")
        node = nccl.node
        self.operation = operation
        ranks_of(node, operation, None)
        self.gpus = node.gpus
        check_buffers(operation, send, recv)
        self._nccl, self._send, self._recv = nccl, tuple(send), tuple(recv)
        self._after = check_after(operation, after)
        self._owned = [] if queues else [gpu.create_queue(64, priority) for gpu in self.gpus]
        self._queues = list(queues) or self._owned
        self._begun = [node.create_signal(0) for _ in self.gpus]
        self.done: tuple[Signal, ...] = tuple(node.create_signal(0) for _ in self.gpus)
        self._begin = (
            []
            if queues
            else [
                queue.prepare(after=waits, completion=signal)  # type: ignore[arg-type]
                for queue, waits, signal in zip(self._queues, self._after, self._begun)
            ]
        )
        self._end = [*tail]
        self._end += [queue.prepare(completion=signal) for queue, signal in zip(self._queues, self.done)]
        self.costs = tuple(cost for work in (*self._begin, *self._end) for cost in work.costs)
        # What it has not done before NCCL prepares in the call, and waits for streams: not behind a closed gate.
        nccl.enqueue(operation, self._send, self._recv, [queue.stream for queue in self._queues])
        for queue in self._queues:
            queue.prepare().submit()
            queue.drain()

    def __enter__(self) -> NcclCollective:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def close(self) -> None:
        """Give back streams and signals. Closing twice is fine."""
        for queue in self._owned:
            queue.close()
        for signal in (*self._begun, *self.done):
            signal.close()

    def submit(self, deadline: float = 30.0) -> None:
        """Hand it over, on all ranks."""
        for signal in (*(self._begun if self._begin else ()), *self.done):
            signal.store(1)
        for work in self._begin:
            work.submit(deadline)
        self._nccl.enqueue(self.operation, self._send, self._recv, [queue.stream for queue in self._queues])
        for work in self._end:
            work.submit(deadline)

    def wait(self, deadline: float = 30.0) -> None:
        """Wait until all ranks are done."""
        end = time.monotonic() + deadline
        for signal in self.done:
            signal.wait(deadline=max(0.0, end - time.monotonic()))

    @property
    def parts(self) -> tuple[Part, ...]:
        """What each rank did, with times."""
        return tuple(
            Part(f"NCCL {self.operation.name}", rank, begun.times[0], done.times[1])
            for rank, (begun, done) in enumerate(zip(self._begun, self.done))
        )

    def scratch(self, rank: int) -> None:
        """None that anyone may see."""
        return None

    def writer(self, where: Where) -> str:
        return "NCCL"

    def explain(self) -> str:
        return f"{self.operation} by NCCL"
