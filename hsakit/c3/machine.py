"""The rates of one GPU that a scenario is judged by: operations of a GEMM that fills it, bytes of a copy kernel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from hsakit.c3.gemms import Gemms
from hsakit.c3.heuristics import Machine
from hsakit.c3.scenario import Scenario
from hsakit.gemm import FORMATS
from hsakit.platform import Gpu, Platform, Queue

GEMM = Scenario("balance", "bf16", 8192, 8192, 8192, "all-gather", 8)
COPY = 1 << 30  # bytes read and as many written
QUICK_GEMM = Scenario("balance", "bf16", 128, 128, 32, "all-gather", 8)
QUICK_COPY = 1 << 20
_RUNS = 5


def measure(platform: Platform, quick: bool, deadline: float, gemms: Gemms | None = None) -> Machine:
    """The rates of the first GPU: medians of a few runs after one that is not counted. Nothing is compared: the same
    kernels are verified wherever results are. ``quick``: sizes that say little of a GPU but run anywhere. ``gemms``: by
    whom the GEMM is, by default ours."""
    gpu = platform.gpus[0]
    scenario, nbytes, runs = (QUICK_GEMM, QUICK_COPY, 1) if quick else (GEMM, COPY, _RUNS)
    makes = _gemm(scenario, gemms or Gemms(platform)), _copy(nbytes)
    gemm, copy = (_median(platform, gpu, make, runs, deadline) for make in makes)
    return Machine(gpu.cu_count, scenario.flops / gemm * 1e9, 2 * nbytes / copy * 1e9)


_Make = Callable[[Gpu, ExitStack], tuple[Any, Queue]]  # a launch and the queue for it


def _gemm(s: Scenario, gemms: Gemms) -> _Make:
    def make(gpu: Gpu, closing: ExitStack):
        size = FORMATS[s.dtype].element.itemsize
        shapes = (s.m, s.k), (s.k, s.n), (s.m, s.n)
        a, b, c = (closing.enter_context(gpu.allocate(rows * columns * size)) for rows, columns in shapes)
        launch = gemms.launch(0, closing, s.dtype, s.layout, a, b, c, s.m, s.n, s.k)
        return launch, closing.enter_context(gemms.create_queue(0, 64))

    return make


def _copy(nbytes: int) -> _Make:
    def make(gpu: Gpu, closing: ExitStack):
        dst, src = (closing.enter_context(gpu.allocate(nbytes)) for _ in range(2))
        return gpu.kernels.copy(dst, src), closing.enter_context(gpu.create_queue(64))

    return make


def _median(platform: Platform, gpu: Gpu, make: _Make, runs: int, deadline: float) -> float:
    """Nanoseconds."""
    with ExitStack() as closing:
        launch, queue = make(gpu, closing)
        done = closing.enter_context(platform.create_signal(0))
        work = queue.prepare(launch, completion=done)
        times = []
        for _ in range(1 + runs):
            done.store(1)
            work.submit(deadline)
            done.wait(deadline=deadline)
            start, end = done.times
            times.append(end - start)
        return float(np.median(times[1:]))
