"""The rates of one GPU that a scenario is judged by: operations of a GEMM that fills it, bytes of a copy kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hsakit.c3.heuristics import Machine
from hsakit.c3.scenario import Scenario
from hsakit.gemm import FORMATS
from hsakit.platform import Gpu, Platform

GEMM = Scenario("balance", "bf16", 8192, 8192, 8192, "all-gather", 8)
COPY = 1 << 30  # bytes read and as many written
QUICK_GEMM = Scenario("balance", "bf16", 128, 128, 32, "all-gather", 8)
QUICK_COPY = 1 << 20
_RUNS = 5


def measure(platform: Platform, quick: bool, deadline: float) -> Machine:
    """The rates of the first GPU: medians of a few runs after one that is not counted. Nothing is compared: the same
    kernels are verified wherever results are. ``quick``: sizes that say little of a GPU but run anywhere."""
    gpu = platform.gpus[0]
    scenario, nbytes, runs = (QUICK_GEMM, QUICK_COPY, 1) if quick else (GEMM, COPY, _RUNS)
    gemm, copy = (_median(platform, gpu, make, runs, deadline) for make in (_gemm(scenario), _copy(nbytes)))
    return Machine(gpu.cu_count, scenario.flops / gemm * 1e9, 2 * nbytes / copy * 1e9)


def _gemm(s: Scenario) -> Callable[[Gpu], tuple[Any, Sequence[Any]]]:
    def make(gpu: Gpu):
        size = FORMATS[s.dtype].element.itemsize
        a, b, c = (gpu.allocate(rows * columns * size) for rows, columns in ((s.m, s.k), (s.k, s.n), (s.m, s.n)))
        return gpu.kernels.gemm(s.dtype, s.layout, a, b, c, s.m, s.n, s.k), (a, b, c)

    return make


def _copy(nbytes: int) -> Callable[[Gpu], tuple[Any, Sequence[Any]]]:
    def make(gpu: Gpu):
        dst, src = gpu.allocate(nbytes), gpu.allocate(nbytes)
        return gpu.kernels.copy(dst, src), (dst, src)

    return make


def _median(platform: Platform, gpu: Gpu, make, runs: int, deadline: float) -> float:
    """Nanoseconds."""
    launch, buffers = make(gpu)
    queue, done = gpu.create_queue(64), platform.create_signal(0)
    try:
        work = queue.prepare(launch, completion=done)
        times = []
        for _ in range(1 + runs):
            done.store(1)
            work.submit(deadline)
            done.wait(deadline=deadline)
            start, end = done.times
            times.append(end - start)
        return float(np.median(times[1:]))
    finally:
        for each in (queue, done, *buffers):
            each.close()
