"""Collectives by engines in the ranks' own streams, on platforms whose queues take copies: NVIDIA's.

The other form (``engines``) gives every copy a stream of its own, and so costs two hand-overs between streams. Here
what comes before and behind the collective in a rank's stream is ordered with its copies for nothing; but copies to
several peers go one after the other. For few ranks, and for small sizes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from hsakit.collectives.collective import check_buffers
from hsakit.collectives.operation import MOVES, Operation, Where
from hsakit.collectives.plan import direct
from hsakit.cuda import CudaNode
from hsakit.cuda.place import CopyLaunch, Queue
from hsakit.ffi.errors import InvalidArgument
from hsakit.platform import Work


class StreamedCollective:
    """A ``hsakit.collectives.collective.Collective`` on the queues of the ranks, one each: behind what is there."""

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
        ranks = range(operation.ranks)
        coming = [sum(t.dst.rank == rank != t.src.rank for t in transfers) for rank in ranks]
        arrived, self.done = ([self._closing.enter_context(node.create_signal(0)) for _ in ranks] for _ in range(2))
        for signal in (*arrived, *self.done):
            signal.timed = False
        self._counts = [*zip(arrived, coming), *((signal, 1) for signal in self.done)]
        self._works: list[Work] = []
        for transfer in transfers:
            dst, src = (self._span(where, transfer.nbytes) for where in (transfer.dst, transfer.src))
            queue, to = queues[transfer.src.rank], transfer.dst.rank
            launch = CopyLaunch(queue.gpu, dst, src)
            self._works.append(queue.prepare(launch, completion=arrived[to] if to != transfer.src.rank else None))
        for rank, queue in enumerate(queues):
            if coming[rank]:
                self._works.append(queue.prepare(after=[arrived[rank]]))
        self._works += tail
        self._works += [queue.prepare(completion=signal) for queue, signal in zip(queues, self.done)]
        self.costs = tuple(cost for work in self._works for cost in work.costs)

    def __enter__(self) -> StreamedCollective:
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def close(self) -> None:
        """Give back the signals. Closing twice is fine."""
        self._closing.close()

    def _span(self, where: Where, nbytes: int) -> Any:
        return self._buffers[where.buffer][where.rank][where.offset : where.offset + nbytes]

    def submit(self, deadline: float = 30.0) -> None:
        """Hand it over, on all ranks."""
        for signal, count in self._counts:
            signal.store(count)
        for work in self._works:
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
        return "a copy in a stream"
