"""All-gather and all-to-all over sizes: engines and kernels of ours, and NCCL, on the same buffers in the same rounds.

What is timed is what a rank's own stream sees: from the end of a kernel that held all ranks back, to the moment from
which on the stream may go on with all bytes there. Both are events there; the slower rank counts. Every run is
verified. Two events with nothing between them are 3 us apart on an H200, and that is in every time.

NCCL runs in that stream, and so do engines there (``streamed``), with a kernel of one warp that waits. The form without
any kernel, which runs beside GEMMs, and kernels of ours have streams of their own, held back by the same flag.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from hsakit import results
from hsakit.collectives import Buffers, Operation, engines, kernels, nccl
from hsakit.collectives.streamed import StreamedCollective
from hsakit.cuda.instream import Mark
from hsakit.ffi.errors import HsakitError
from hsakit.kernels import REPORT
from hsakit.sweep.sizes import format_size

if TYPE_CHECKING:
    from hsakit.cuda.node import CudaNode

KIND = "collective"
DEVICE_FROM = 1 << 18  # bytes of a block from which on the GPUs fill and compare
_SETTLED = 2e-4  # seconds: what was submitted has reached the GPUs
_WORKGROUPS = (1, 4, 16, 64)
_LOOKS = 1 << 22  # of the kernel that holds: seconds
WINDOWED = {"nccl windows": nccl.DEFAULT_CTAS, "nccl zero CTA": nccl.ZERO_CTA}  # NCCL's on memory of its own
IN_STREAM = ("nccl", "streamed", *WINDOWED)  # run in the rank's own stream


def implementations(node: CudaNode) -> dict[str, Callable[..., Any]]:
    """By name, what prepares a collective."""
    made: dict[str, Callable[..., Any]] = {
        "nccl": lambda *a, after, queues, tail: nccl.of(node).prepare(*a, queues=queues, tail=tail),
        "streamed": lambda o, s, r, after, queues, tail: StreamedCollective(node, o, s, r, queues, tail),
        "engines": lambda *a, after, queues, tail: _untimed(engines.prepare(node, *a, after=after, form="shared")),
    }
    for label, policy in WINDOWED.items() if nccl.has_windows() else ():
        made[label] = lambda *a, after, queues, tail, of=policy: nccl.of(node, of).prepare(*a, queues=queues, tail=tail)
    for count in _WORKGROUPS:
        made[f"kernels {count}"] = lambda *a, after, queues, tail, n=count: kernels.prepare(
            node, *a, after=after, workgroups=n
        )
    return made


def _untimed(collective: Any) -> Any:
    for signal in collective.done:
        signal.timed = False
    return collective


def measure(
    node: CudaNode, names: Sequence[str], sizes: Sequence[int], repeats: int, warmup: int = 2, deadline: float = 30.0
) -> Iterator[dict]:
    """Rows: one for each operation, size (of the whole output) and implementation."""
    for name in names:
        for size in sizes:
            yield from _measure(node, name, size, repeats, warmup, deadline)


def _measure(node: CudaNode, name: str, size: int, repeats: int, warmup: int, deadline: float) -> Iterator[dict]:
    ranks = len(node.gpus)
    operation = Operation(name, ranks, size // ranks, in_place=name == "all-gather")
    samples: dict[str, list] = {}
    errors: dict[str, str] = {}
    with ExitStack() as closing:
        plain = closing.enter_context(Buffers(node, operation, device_from=DEVICE_FROM))
        gate = closing.enter_context(node.create_signal(0))
        watches = {}
        for label, prepare in implementations(node).items():
            if label in WINDOWED:
                memory = closing.enter_context(nccl.Symmetric(nccl.of(node, WINDOWED[label])))
                buffers = Buffers(node, operation, gpus=memory.gpus, device_from=DEVICE_FROM)  # type: ignore[arg-type]
                memory.register()
            else:
                buffers = plain
            queues = [closing.enter_context(gpu.create_queue(64)) for gpu in node.gpus]
            after = [[gate]] * ranks
            watch = watches[label] = closing.enter_context(Watch(node, gate, queues))
            made = prepare(operation, buffers.send, buffers.recv, after=after, queues=queues, tail=[*watch.marks])
            watch.take(closing.enter_context(made), label not in IN_STREAM)
            watch.buffers = buffers
            samples[label] = []
        for number in range(warmup + repeats):
            for label, watch in watches.items():
                if label in errors:
                    continue
                try:
                    watch.buffers.prepare(watch.collective, deadline)
                    taken = watch.once(deadline, held=number > 0)
                    watch.buffers.check(watch.collective, deadline)
                    if number >= warmup:
                        samples[label].append(taken)
                except HsakitError as wrong:
                    errors[label] = str(wrong)
    for label, taken in samples.items():
        error = errors.get(label)
        yield results.make_row(
            KIND,
            f"{KIND} {name} {format_size(size)} {label} r{repeats} w{warmup}",
            clock=node.clock,
            versions=results.versions(**node.versions),
            parameters={
                "operation": name,
                "in_place": operation.in_place,
                "size": size,
                "ranks": ranks,
                "by": label,
                "repeats": repeats,
                "warmup": warmup,
            },
            samples=taken,
            verified="none" if error else "full",
            launch="gated",
            packets={"planned": {}, "counted": None},
            error=error,
        )


class Watch:
    """Works between two events on a stream of each rank."""

    collective: Any
    buffers: Buffers  # of the collective

    def __init__(self, node: CudaNode, gate: Any, queues: list):
        self._gate, self._queues = gate, queues
        self._closing = ExitStack()
        self._begun, self._ended = ([Mark(queue) for queue in queues] for _ in range(2))
        self._over = [self._closing.enter_context(node.create_signal(0)) for _ in queues]
        for signal in self._over:
            signal.timed = False
        self._begin = [queue.prepare(self._hold(queue)) for queue in queues]
        self._begin += [queue.prepare(mark) for queue, mark in zip(queues, self._begun)]
        self.marks = [queue.prepare(mark) for queue, mark in zip(queues, self._ended)]

    def _hold(self, queue: Any) -> Any:
        """A kernel that ends when the gate's value is 0."""
        report = self._closing.enter_context(queue.gpu.allocate(REPORT.itemsize))
        launch = queue.gpu.kernels.kernel("latch", "latch").prepare(
            1, 64, {"flag": self._gate.address, "released": 0, "limit": _LOOKS, "report": report}
        )
        launch.set("flag", self._gate.address, hold=[self._gate])
        return launch

    def take(self, collective: Any, apart: bool) -> None:
        """What is watched. ``apart``: it runs in other streams, and this one waits; else it submits ``marks``."""
        self.collective = collective
        self._end = []
        if apart:
            for queue, mark, done in zip(self._queues, self._ended, collective.done):
                self._end.append(queue.prepare(mark, after=[done]))
        self._end += [queue.prepare(completion=signal) for queue, signal in zip(self._queues, self._over)]

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exc) -> None:
        self._closing.close()

    def once(self, deadline: float, held: bool = True) -> list[list[int]]:
        """[0, nanoseconds] of each rank. Not ``held``: for a first run, since what is loaded then waits for kernels."""
        self._gate.store(int(held))
        for signal in self._over:
            signal.store(1)
        for work in self._begin:
            work.submit(deadline)
        self.collective.submit(deadline)
        for work in self._end:
            work.submit(deadline)
        time.sleep(_SETTLED)
        self._gate.store(0)
        self.collective.wait(deadline)
        for signal in self._over:
            signal.wait(deadline=deadline)
        return [[0, end.since(begin)] for begin, end in zip(self._begun, self._ended)]


def table(rows: Sequence[dict]) -> tuple[list[str], list[list[str]]]:
    """Medians in microseconds of the slower rank, and the least; of kernels the best number of workgroups."""
    lines: dict[tuple[str, int], dict[str, tuple[float, float]]] = {}
    for row in rows:
        p = row["parameters"]
        if row["error"] is None:
            times = [max(end for _, end in sample) / 1e3 for sample in row["samples"]]
            lines.setdefault((p["operation"], p["size"]), {})[p["by"]] = float(np.median(times)), min(times)
    made = []
    for (name, size), found in lines.items():
        tried = {label: t for label, t in found.items() if label.startswith("kernels")}
        best = min(tried, key=lambda label: tried[label]) if tried else ""
        chosen = {
            "streamed": "",
            "engines": "",
            best: best.removeprefix("kernels"),
            "nccl": "",
            **dict.fromkeys(WINDOWED, ""),
        }
        times = [found.get(label) for label in chosen]
        line = [name, format_size(size)]
        line += [
            f"{t[0]:.1f}{f' ({more.strip()})' if more else ''}" if t else "" for t, more in zip(times, chosen.values())
        ]
        line += [f"{times[0][1]:.1f}" if times[0] else "", f"{times[3][1]:.1f}" if times[3] else ""]
        line += [f"{t[0] / times[3][0]:.2f}" if t and times[3] else "" for t in times[:3]]
        made.append(line)
    headers = (
        "operation,output,engines us,engines without a kernel us,kernels us (workgroups),NCCL us,NCCL on windows us"
    )
    headers += ",NCCL without CTAs us,engines least us,NCCL least us,engines/NCCL,without a kernel/NCCL,kernels/NCCL"
    return headers.split(","), made
