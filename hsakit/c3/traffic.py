"""Copies from every GPU to some of its peers, for as long as wanted, by engines or by kernels: what disturbs a GEMM."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np

from hsakit.c3.run import After, Run, by_rank
from hsakit.c3.stage import Stage
from hsakit.c3.ticks import COLLECTIVE, Span, Work
from hsakit.collectives import allocation
from hsakit.ffi.errors import InvalidArgument
from hsakit.pattern import Pattern
from hsakit.platform import Signal
from hsakit.verify import check, poison

BY = ("engines", "kernels")
_RING = 256
MOST = 64  # copies to a peer in a run: what rings and signals are bounded by


class Memory:
    """What copies of ``nbytes`` read and write on every GPU of a stage; for all runs of it."""

    def __init__(self, stage: Stage, nbytes: int, seed: int = 1):
        self.stage = stage
        self.nbytes = nbytes
        self._patterns = [Pattern(seed, rank) for rank in range(len(stage.gpus))]
        self.sources = [stage.own(gpu.allocate(nbytes)) for gpu in stage.gpus]
        self.targets = [[stage.own(gpu.allocate(nbytes)) for _ in stage.gpus] for gpu in stage.gpus]  # [to][from]
        if stage.verify:
            for gpu, source, pattern in zip(stage.gpus, self.sources, self._patterns):
                gpu.put(source, pattern.fill, stage.deadline)

    def poison(self, src: int, dst: int, deadline: float) -> None:
        fill = partial(poison, pattern=self._patterns[src])
        self.stage.gpus[dst].put(self.targets[dst][src], fill, deadline)

    def check(self, src: int, dst: int, deadline: float) -> None:
        view = np.asarray(self.stage.gpus[dst].get(self.targets[dst][src], deadline))
        check(view, self._patterns[src], where=f"copy from GPU {src} to GPU {dst}", others=self._patterns)


class Traffic:
    """Every GPU copies to ``peers`` others, ``count`` times each, one after the other. A part of a run.

    By ``engines``: each peer has an engine of its own. By ``kernels``: each peer has a queue of its own, on the first
    ``cus`` CUs or, if that is 0, on all, and each copy so many ``workgroups``.
    """

    def __init__(
        self,
        run: Run,
        memory: Memory,
        by: str,
        peers: int,
        count: int,
        after: After = None,
        workgroups: int = 1,
        cus: int = 0,
    ):
        gpus, platform = run.stage.gpus, run.stage.platform
        if by not in BY or not 1 <= peers < len(gpus) or not 1 <= count <= MOST:
            raise InvalidArgument(
                f"{count} copies by {by} to {peers} peers: by {' or '.join(BY)}, to 1 to {len(gpus) - 1}, 1 to {MOST}"
            )
        self._memory = memory
        waits = by_rank(after, len(gpus))
        self.ways = [(src, (src + 1 + i) % len(gpus)) for src in range(len(gpus)) for i in range(peers)]
        self._works: list[Any] = []
        self._copies: list[tuple[Work, Signal]] = []
        if by == "engines":
            used = allocation.of(platform)
            taken = used.take(gpus, self.ways, 1)
            used.give_back(gpus, taken)  # nobody else prepares collectives meanwhile
        for src, dst in self.ways:
            mask = range(cus) if cus else None
            queue = run.own(gpus[src].create_queue(_RING, cu_mask=mask)) if by == "kernels" else None
            where = f"queue to GPU {dst}" if queue else taken[src, dst][0].label
            launch = gpus[src].kernels.copy(
                memory.targets[dst][src], memory.sources[src], workgroups=workgroups
            ) if queue else None  # fmt: skip
            for number in range(count):
                signal = run.own(platform.create_signal(0))
                first = waits[src] if number == 0 else ()
                if queue:
                    work = queue.prepare(launch, first, signal)
                else:
                    engine = taken[src, dst][0]
                    work = engine.prepare(memory.targets[dst][src], memory.sources[src], None, first, signal)
                self._works.append(work)
                self._copies.append((Work(COLLECTIVE, gpus[src].index, where), signal))
        self.costs = tuple(cost for work in self._works for cost in work.costs)
        self.dispatches = len(self._works) if by == "kernels" else 0
        packets = -(-memory.nbytes // run.stage.packet_bytes)
        self.copies = len(self._works) * packets if by == "engines" else 0

    def prepare(self, deadline: float) -> None:
        for src, dst in self.ways:
            self._memory.poison(src, dst, deadline)

    def arm(self) -> None:
        for _, signal in self._copies:
            signal.store(1)

    def submit(self, deadline: float = 30.0) -> None:
        for work in self._works:
            work.submit(deadline)

    def wait(self, deadline: float) -> None:
        end = time.monotonic() + deadline
        for _, signal in self._copies:
            signal.wait(deadline=max(0.0, end - time.monotonic()))

    def spans(self) -> list[tuple[Work, Span]]:
        return [(work, signal.times) for work, signal in self._copies]

    def check(self, deadline: float) -> None:
        for src, dst in self.ways:
            self._memory.check(src, dst, deadline)
