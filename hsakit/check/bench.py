"""What checks share: memory, gated copies, timed kernels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from hsakit.check.assumed import Assumed
from hsakit.check.sizes import LARGE, Sizes
from hsakit.cumask import CuMask
from hsakit.hsa import Buffer, BufferSlice, CopyEngine, Queue
from hsakit.node import Gpu, Node
from hsakit.scoped import Scoped
from hsakit.sweep.census import Census

Times = tuple[int, int]  # start and end, nanoseconds


class Bench(Scoped):
    """A node, what is assumed of it, and memory that is kept from check to check. Waits end after ``deadline`` s."""

    def __init__(self, node: Node, assumed: Assumed, sizes: Sizes = LARGE, deadline: float = 60.0):
        self.node = node
        self.gpus = node.gpus
        self.assumed = assumed
        self.sizes = sizes
        self.deadline = deadline
        self._memory: dict[tuple[int, str, str], Buffer] = {}
        self._census: Census | None = None

    def close(self) -> None:
        for buffer in self._memory.values():
            buffer.close()
        self._memory.clear()
        if self._census is not None:
            self._census.close()

    def memory(self, gpu: Gpu, name: str, nbytes: int, kind: str = "coarse") -> BufferSlice:
        """``nbytes`` of a GPU's memory, the same for the same name. Who needs them takes them anew: it may move."""
        key = (gpu.index, name, kind)
        held = self._memory.get(key)
        if held is None or held.nbytes < nbytes:
            if held is not None:
                held.close()
            held = self._memory[key] = gpu.allocate(nbytes, kind)
        return held[:nbytes]

    def census(self) -> Census:
        """A census of GPU 0 without a mask."""
        if self._census is None:
            self._census = Census(self.gpus[0], self.gpus[0].kernels, self.deadline)
        return self._census

    def mask(self, cus: int) -> CuMask | None:
        """The first CUs of GPU 0, None for all of them."""
        return None if cus == self.gpus[0].cu_count else CuMask.all(self.census().layout).first(cus)

    def ways_out(self, gpu: Gpu) -> list[tuple[Gpu, CopyEngine]]:
        """The peers of a GPU, each with an engine of its own where there are enough: the recommended one if it is."""
        ways: list[tuple[Gpu, CopyEngine]] = []
        taken: set[int] = set()
        for peer in self.gpus:
            if peer == gpu:
                continue
            engines = [*gpu.recommended_to(peer), *gpu.engines_to(peer)]
            engine = next((each for each in engines if each.index not in taken), engines[0])
            taken.add(engine.index)
            ways.append((peer, engine))
        return ways

    def ways_apart(self, gpu: Gpu) -> list[tuple[Gpu, CopyEngine]]:
        """Those of ``ways_out`` that share no engine: a part may have fewer engines than peers."""
        ways: dict[int, tuple[Gpu, CopyEngine]] = {}
        for peer, engine in self.ways_out(gpu):
            ways.setdefault(engine.index, (peer, engine))
        return list(ways.values())

    def copies(self, transfers: Sequence[tuple[CopyEngine, Any, Any]]) -> list[Times]:
        """Copies (engine, destination, source) that are let go at one time."""
        with ExitStack() as stack:
            gate = stack.enter_context(self.node.create_signal(1))
            works = [engine.prepare(dst, src, after=[gate]) for engine, dst, src in transfers]
            signals = []
            try:
                for work in works:
                    signals.append(stack.enter_context(work.submit(self.deadline)))
            finally:
                gate.store(0)
            for signal in signals:
                signal.wait(deadline=self.deadline)
            return [signal.times for signal in signals]

    def copy_ns(self, engine: CopyEngine, dst: Any, src: Any) -> int:
        """How long one copy takes: the second of two, since the first may find nothing prepared."""
        for _ in range(2):
            ((start, end),) = self.copies([(engine, dst, src)])
        return end - start

    def kernel(self, queue: Queue, launch: Any) -> Times:
        with self.node.create_signal(1) as done:
            launch.launch(queue, done, deadline=self.deadline)
            done.wait(deadline=self.deadline)
            return done.times

    def kernel_ns(self, launch: Any, gpu: Gpu | None = None, mask: CuMask | None = None) -> int:
        """How long a kernel takes on a queue of its own with a mask: the second of two."""
        with (gpu or self.gpus[0]).create_queue(64, cu_mask=mask) as queue:
            for _ in range(2):
                start, end = self.kernel(queue, launch)
        return end - start


def slope(small: tuple[int, int], large: tuple[int, int]) -> tuple[float, float]:
    """Of two copies (bytes, nanoseconds): bytes a nanosecond, and the nanoseconds that a copy of nothing takes."""
    (n, t), (m, u) = small, large
    rate = (m - n) / max(u - t, 1)
    return rate, t - n / rate
