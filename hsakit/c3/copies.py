"""Copies by the engines of GPUs of NVIDIA's, over ways and sizes: what ``tools/sweep.py dma`` is for AMD's.

All copies of a run wait for one signal. Times are from the first start to the last end of the engines' own ticks. Every
run is verified.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hsakit import results
from hsakit.ffi.errors import HsakitError
from hsakit.kernels import MISMATCH, NOWHERE
from hsakit.pattern import Pattern
from hsakit.sweep.sizes import format_size
from hsakit.verify import check, poison

if TYPE_CHECKING:
    from hsakit.cuda.node import CudaNode

KIND = "copies"
HOST = None  # as an end of a copy
_DEVICE_FROM = 1 << 18  # bytes from which on the GPUs fill and compare
_SETTLED = 2e-4  # seconds: what was submitted has reached the GPUs


class Copy(NamedTuple):
    """By an engine of ``gpu``, from one end to the other: GPUs, or the host."""

    gpu: int
    engine: int
    src: int | None
    dst: int | None


WAYS = {
    "to the peer": (Copy(0, 0, 0, 1),),
    "from the peer": (Copy(0, 0, 1, 0),),
    "to the peer, by two engines": (Copy(0, 0, 0, 1), Copy(0, 1, 0, 1)),
    "both to each other": (Copy(0, 0, 0, 1), Copy(1, 0, 1, 0)),
    "to the host": (Copy(0, 0, 0, HOST),),
    "from the host": (Copy(0, 0, HOST, 0),),
    "to and from the host": (Copy(0, 0, 0, HOST), Copy(0, 1, HOST, 0)),
}


class _Moving:
    """A copy with its memory. ``number`` tells its bytes from those of others."""

    def __init__(self, node: CudaNode, closing: ExitStack, copy: Copy, nbytes: int, number: int, gate: Any):
        self._node, self._copy, self._pattern = node, copy, Pattern(1, number)
        self._seed = 1
        self.src, self.dst = (
            closing.enter_context(node.allocate(nbytes) if end is HOST else node.gpus[end].allocate(nbytes))
            for end in (copy.src, copy.dst)
        )
        self.work = node.gpus[copy.gpu].engines[copy.engine].prepare(self.dst, self.src, nbytes, [gate])

    def prepare(self, deadline: float) -> None:
        """New bytes at the source, all wrong ones at the destination."""
        self._seed += 1
        self._pattern = Pattern(self._seed, self._pattern.rank)
        self._write(self._copy.src, self.src, False, deadline)
        self._write(self._copy.dst, self.dst, True, deadline)

    def _write(self, end: int | None, memory: Any, wrong: bool, deadline: float) -> None:
        fill = partial(poison, pattern=self._pattern) if wrong else self._pattern.fill
        if end is HOST:
            fill(memory.view())
        elif memory.nbytes < _DEVICE_FROM:
            self._node.gpus[end].put(memory, fill, deadline)
        else:
            gpu = self._node.gpus[end]
            self._run(gpu, gpu.kernels.fill(memory, self._pattern, 0, inverted=wrong), deadline)

    def check(self, deadline: float) -> None:
        end = self._copy.dst
        if end is not HOST and self.dst.nbytes >= _DEVICE_FROM:
            gpu = self._node.gpus[end]
            with gpu.allocate(MISMATCH.itemsize) as found:
                gpu.put(found, partial(_copy, np.array([(0, NOWHERE)], MISMATCH).view(np.uint8)), deadline)
                self._run(gpu, gpu.kernels.compare(self.dst, self._pattern, found, 0), deadline)  # type: ignore[arg-type]
                if not gpu.get(found, deadline).view(MISMATCH)["count"][0]:
                    return
        view = self.dst.view() if end is HOST else self._node.gpus[end].get(self.dst, deadline)
        check(np.asarray(view), self._pattern, where=str(self._copy))

    @staticmethod
    def _run(gpu: Any, launch: Any, deadline: float) -> None:
        with gpu.create_queue(64) as queue:
            queue.prepare(launch).submit(deadline)
            queue.drain(deadline)


def measure(
    node: CudaNode, sizes: Sequence[int], repeats: int, warmup: int = 1, deadline: float = 30.0
) -> Iterator[dict]:
    """Rows: one for each way and size of a copy."""
    for way, copies in WAYS.items():
        for nbytes in sizes:
            samples: list[list[list[int]]] = []
            error = None
            with ExitStack() as closing:
                gate = closing.enter_context(node.create_signal(0))
                moving = [_Moving(node, closing, copy, nbytes, i, gate) for i, copy in enumerate(copies)]
                try:
                    for number in range(warmup + repeats):
                        for each in moving:
                            each.prepare(deadline)
                        taken = _once(node, gate, moving, deadline)
                        for each in moving:
                            each.check(deadline)
                        if number >= warmup:
                            samples.append(taken)
                except HsakitError as wrong:
                    error = str(wrong)
            yield results.make_row(
                KIND,
                f"{KIND} {way} {format_size(nbytes)} r{repeats} w{warmup}",
                clock=node.clock,
                versions=results.versions(**node.versions),
                parameters={"way": way, "nbytes": nbytes, "copies": len(copies), "repeats": repeats, "warmup": warmup},
                samples=samples,
                verified="none" if error else "full",
                launch="gated",
                packets={"planned": {}, "counted": None},
                error=error,
            )


def _once(node: CudaNode, gate: Any, moving: Sequence[_Moving], deadline: float) -> list[list[int]]:
    """Start and end of each copy, in nanoseconds from the first start on."""
    with node.tally():
        gate.store(1)
        signals = [each.work.submit(deadline) for each in moving]
        time.sleep(_SETTLED)
        gate.store(0)
        for signal in signals:
            signal.wait(deadline=deadline)
    spans = [signal.times for signal in signals]
    first = min(start for start, _ in spans)
    return [[start - first, end - first] for start, end in spans]


def _copy(content: np.ndarray, view: np.ndarray) -> None:
    view[:] = content


def table(rows: Sequence[dict]) -> tuple[list[str], list[list[str]]]:
    """Medians, and bytes of all copies together over them."""
    made = []
    for row in rows:
        p = row["parameters"]
        if row["error"] is None:
            median = float(np.median([max(end for _, end in sample) for sample in row["samples"]]))
            rate = p["copies"] * p["nbytes"] / median
            made.append([p["way"], format_size(p["nbytes"]), f"{median / 1e3:.1f}", f"{rate:.3g}"])
    return ["way", "bytes of a copy", "us", "GB/s"], made
