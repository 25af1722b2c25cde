"""Collectives by engines as part of the ranks' own streams, on GPUs of NVIDIA's: what costs least there at small sizes.

The other form (``engines``) joins streams by values in memory, that a stream notices late. Here a rank's stream leaves
a mark; behind it an engine pushes the rank's bytes to each peer, and then, in order with them, a flag into the peer's
memory. The rank's stream goes on when the flags of all peers have come, which a kernel of one warp watches: streams
look at what they wait for every 9 us only. So a multiprocessor must have room for a warp; no byte is moved by it.

There are two sets of flags, for runs in turns: the kernel takes them down, and a peer that is one run ahead raises the
others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from hsakit.collectives.collective import check_buffers
from hsakit.collectives.operation import MOVES, Operation, Where
from hsakit.collectives.plan import Transfer, direct
from hsakit.cuda import CudaNode
from hsakit.cuda.gpu import CudaGpu
from hsakit.cuda.instream import CopyLaunch, Mark, Pushes
from hsakit.cuda.place import Queue
from hsakit.ffi.errors import InvalidArgument
from hsakit.platform import Work
from hsakit.scoped import Scoped

_WORD = 8


def wait_flags(gpu: CudaGpu, flags: Any, count: int) -> Any:
    """A launch that ends when the first ``count`` words of ``flags`` are not 0, and sets them to 0."""
    return gpu.kernels.kernel("wait", "wait_flags").prepare(1, 32, {"flags": flags, "count": count})


class StreamedCollective(Scoped):
    """What a measurement needs of a ``hsakit.collectives.collective.Collective`` (no ``parts``, ``submissions`` or
    ``explain``), on the queues of the ranks, one each: behind what is there."""

    def __init__(
        self,
        node: CudaNode,
        operation: Operation,
        send: Sequence[Any],
        recv: Sequence[Any],
        queues: Sequence[Queue],
        tail: Sequence[Work] = (),
    ):
        """``tail`` is submitted when all bytes are there, before ``done`` is signalled."""
        transfers = direct(operation).transfers
        if operation.name not in MOVES or any(transfer.dst.buffer == "scratch" for transfer in transfers):
            raise InvalidArgument(f"{operation}: only what every rank writes straight to its place")
        check_buffers(operation, send, recv)
        self.operation = operation
        self._buffers = {"send": tuple(send), "recv": tuple(recv)}
        self._closing = ExitStack()
        self._queues = queues
        self.done = [self._own(node.create_signal(0)) for _ in queues]
        for signal in self.done:
            signal.timed = False
        self._one = [self._memory(queue, [1]) for queue in queues]
        self._turns = [self._prepare(transfers, tail) for _ in range(2)]
        self._runs = 0
        self.costs = tuple(cost for work in self._turns[0] for cost in work.costs)

    def close(self) -> None:
        """Give back signals and flags. Closing twice is fine."""
        self._closing.close()

    def _own(self, thing: Any) -> Any:
        return self._closing.enter_context(thing)

    def _memory(self, queue: Queue, words: Sequence[int]) -> Any:
        memory = self._own(queue.gpu.allocate(_WORD * len(words), "fine"))
        queue.gpu.put(memory, partial(np.copyto, src=np.array(words, np.uint64).view(np.uint8)))
        return memory

    def _prepare(self, transfers: Sequence[Transfer], tail: Sequence[Work]) -> list[Work]:
        """The works of a run, in the order of their submission, with flags of their own."""
        queues = self._queues
        flags = [self._memory(queue, [0] * len(queues)) for queue in queues]
        marks = [Mark(queue, timed=False) for queue in queues]
        works: list[Work] = [queue.prepare(mark) for queue, mark in zip(queues, marks)]
        sent, coming = ([0 for _ in queues] for _ in range(2))
        for transfer in transfers:
            src, to, gpu = transfer.src.rank, transfer.dst.rank, queues[transfer.src.rank].gpu
            copy = tuple(self._span(where, transfer.nbytes) for where in (transfer.dst, transfer.src))
            if to == src:
                works.append(queues[src].prepare(CopyLaunch(gpu, *copy)))
                continue
            flag = flags[to][_WORD * coming[to] : _WORD * (coming[to] + 1)]
            engines = gpu.engines_to(queues[to].gpu)
            engine = engines[sent[src] % len(engines)]
            works.append(Pushes(engine, marks[src], [copy, (flag, self._one[src])]))  # type: ignore[list-item]
            sent[src] += 1
            coming[to] += 1
        for queue, flag, count in zip(queues, flags, coming):
            if count:
                works.append(queue.prepare(wait_flags(queue.gpu, flag, count)))
        works += tail
        works += [queue.prepare(completion=done) for queue, done in zip(queues, self.done)]
        return works

    def _span(self, where: Where, nbytes: int) -> Any:
        return self._buffers[where.buffer][where.rank][where.offset : where.offset + nbytes]

    def submit(self, deadline: float = 30.0) -> None:
        """Hand it over, on all ranks."""
        for signal in self.done:
            signal.store(1)
        self._runs += 1
        for work in self._turns[self._runs % 2]:
            work.submit(deadline)

    def wait(self, deadline: float = 30.0) -> None:
        """Wait until all ranks are done."""
        end = time.monotonic() + deadline
        for signal in self.done:
            signal.wait(deadline=max(0.0, end - time.monotonic()))

    def scratch(self, rank: int) -> None:
        """There is none."""
        return None

    def writer(self, where: Where) -> str:
        """Which part writes a byte: they are all alike."""
        return "a copy behind a mark in a stream"
