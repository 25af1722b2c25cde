"""All-gather and all-to-all by NCCL, for comparison: prepared and submitted like collectives of our own."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from hsakit.collectives.collective import After, Part, check_after, check_buffers, ranks_of
from hsakit.collectives.operation import Operation, Where
from hsakit.cuda import CudaNode, driver
from hsakit.cuda.gpu import CudaGpu
from hsakit.cuda.memory import Buffer
from hsakit.cuda.place import Queue
from hsakit.cuda.signal import Signal
from hsakit.ffi import loader
from hsakit.ffi._nccl import ffi
from hsakit.ffi.errors import InvalidArgument, LibraryNotFound, check_nccl
from hsakit.platform import Work
from hsakit.scoped import Scoped

ZERO_CTA, DEFAULT_CTAS = 2, 0  # NCCL_CTA_POLICY_ZERO, NCCL_CTA_POLICY_DEFAULT
_SYMMETRIC = 1  # NCCL_WIN_COLL_SYMMETRIC
_UNDEFINED, _MAGIC = -(1 << 31), 0xCAFEBEEF  # of NCCL_CONFIG_INITIALIZER
_BYTE = ffi.dlopen(None).ncclUint8


def _lib() -> Any:
    return loader.nccl().lib


_communicators: WeakKeyDictionary[CudaNode, dict[int | None, Nccl]] = WeakKeyDictionary()


def of(platform: Any, policy: int | None = None) -> Nccl:
    """The communicator of a platform, made when first asked for. InvalidArgument where NCCL cannot run."""
    if not isinstance(platform, CudaNode):
        raise InvalidArgument("NCCL runs on GPUs of NVIDIA's only")
    made = _communicators.setdefault(platform, {})
    if policy not in made:
        made[policy] = Nccl(platform, policy)
    return made[policy]


def has_windows() -> bool:
    """Whether this NCCL (2.28 or later) has collectives by engines, between windows."""
    try:
        return all(map(loader.nccl().has, ("ncclCommWindowRegister", "ncclAlltoAll")))
    except LibraryNotFound:
        return False


class Nccl(Scoped):
    """A communicator of all GPUs of a node. ``policy``: how many multiprocessors its kernels take, as NCCL's header has
    it; ``ZERO_CTA`` lets engines do what they can, between windows (``Symmetric``)."""

    def __init__(self, node: CudaNode, policy: int | None = None):
        self.node = node
        self.windowed = policy is not None
        count = len(node.gpus)
        self._comms = ffi.new("ncclComm_t[]", count)
        if policy is None:
            # ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist)
            status = _lib().ncclCommInitAll(self._comms, count, ffi.new("int[]", list(range(count))))
            check_nccl("ncclCommInitAll", status)
        else:
            self._init(policy)
        driver.forget()
        self._open = True
        atexit.register(self.close)  # its threads must not outlive the library

    def _init(self, policy: int) -> None:
        lib, name, version = _lib(), ffi.new("ncclUniqueId *"), ffi.new("int *")
        # ncclResult_t ncclGetVersion(int *version)
        check_nccl("ncclGetVersion", lib.ncclGetVersion(version))
        # ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId)
        check_nccl("ncclGetUniqueId", lib.ncclGetUniqueId(name))
        fields = [field for field, kind in ffi.typeof("ncclConfig_t").fields if kind.type.cname == "int"]
        config = ffi.new("ncclConfig_t *", dict.fromkeys(fields, _UNDEFINED))
        config.size, config.magic, config.version = ffi.sizeof("ncclConfig_t"), _MAGIC, version[0]
        config.CTAPolicy = policy
        # ncclResult_t ncclGroupStart(void)
        check_nccl("ncclGroupStart", lib.ncclGroupStart())
        for rank, gpu in enumerate(self.node.gpus):
            driver.enter(gpu.context)
            # ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
            #     ncclConfig_t* config)
            status = lib.ncclCommInitRankConfig(self._comms + rank, len(self.node.gpus), name[0], rank, config)
            driver.forget()
            check_nccl("ncclCommInitRankConfig", status)
        # ncclResult_t ncclGroupEnd(void)
        check_nccl("ncclGroupEnd", lib.ncclGroupEnd())

    def register(self, buffers: Sequence[Buffer]) -> list[int]:
        """Make a window of a buffer of each rank, as large as the others; of each rank its handle."""
        windows = ffi.new("ncclWindow_t[]", len(buffers))
        check_nccl("ncclGroupStart", _lib().ncclGroupStart())
        for rank, buffer in enumerate(buffers):
            # ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
            #     int winFlags)
            status = _lib().ncclCommWindowRegister(
                self._comms[rank], buffer.address, buffer.nbytes, windows + rank, _SYMMETRIC
            )
            check_nccl("ncclCommWindowRegister", status)
        check_nccl("ncclGroupEnd", _lib().ncclGroupEnd())
        driver.forget()
        return list(windows)

    def deregister(self, windows: Sequence[int]) -> None:
        for comm, window in zip(self._comms, windows):
            # ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
            check_nccl("ncclCommWindowDeregister", _lib().ncclCommWindowDeregister(comm, window))
        driver.forget()

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
            if self.windowed:
                # ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                #     ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
                check_nccl("ncclAlltoAll", lib.ncclAlltoAll(src, to, n, _BYTE, comm, stream))
                continue
            for peer in range(operation.ranks):
                # ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                #     ncclComm_t comm, cudaStream_t stream); ncclRecv likewise
                check_nccl("ncclSend", lib.ncclSend(src + peer * n, n, _BYTE, peer, comm, stream))
                check_nccl("ncclRecv", lib.ncclRecv(to + peer * n, n, _BYTE, peer, comm, stream))
        # ncclResult_t ncclGroupEnd(void)
        check_nccl("ncclGroupEnd", lib.ncclGroupEnd())
        driver.forget()


class Symmetric(Scoped):
    """The GPUs of a node with memory of NCCL's, which it can reach as windows: ``gpus`` are for ``Buffers``.

    All ranks allocate alike; ``register`` then makes windows of that. What is allocated later is plain memory.
    """

    def __init__(self, nccl: Nccl):
        self._nccl = nccl
        self.gpus = [_WithWindows(gpu) for gpu in nccl.node.gpus]
        self._windows: list[list[int]] = []

    def register(self) -> None:
        for gpu in self.gpus:
            gpu.allocate = gpu.plain
        self._windows += [self._nccl.register(alike) for alike in zip(*(gpu.made for gpu in self.gpus))]

    def close(self) -> None:
        """Free all of it. Nothing may be in flight."""
        while self._windows:
            self._nccl.deregister(self._windows.pop())
        for gpu in self.gpus:
            while gpu.made:
                # ncclResult_t ncclMemFree(void *ptr)
                check_nccl("ncclMemFree", _lib().ncclMemFree(gpu.made.pop().address))
        driver.forget()


class _WithWindows:
    """A GPU, but for what it allocates."""

    def __init__(self, gpu: CudaGpu):
        self._gpu = gpu
        self.made: list[Buffer] = []
        self.plain = gpu.allocate
        self.allocate: Callable[..., Buffer] = self._allocate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gpu, name)

    def _allocate(self, nbytes: int, kind: str = "coarse") -> Buffer:
        gpu, out = self._gpu, ffi.new("hsakit_address *")
        driver.enter(gpu.context)
        # ncclResult_t ncclMemAlloc(void** ptr, size_t size)
        status = _lib().ncclMemAlloc(out, nbytes)
        driver.forget()
        check_nccl("ncclMemAlloc", status)
        self.made.append(Buffer(gpu, _Held(gpu, out[0]), nbytes, gpu.node.gpus))  # type: ignore[arg-type]
        return self.made[-1]


class _Held:
    """An allocation that its owner frees."""

    def __init__(self, gpu: CudaGpu, raw: int):
        self.node, self.agent, self.raw = gpu.node, gpu, raw


class NcclCollective(Scoped):
    """A ``hsakit.collectives.collective.Collective`` but for ``submissions``: how NCCL copies it does not say. Start
    and end are those of the rank's stream."""

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
