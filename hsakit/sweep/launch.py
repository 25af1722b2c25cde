"""The launch sweep: what a kernel launch costs the host, through HSA and through HIP, and how long the empty kernel is
on its way there and back.

Launches are made while the GPU is held at a gate (a barrier packet, for HIP a closed latch), so that its work does not
compete with them. What is launched is a latch that is open: four arguments, one wave, and a report that is poisoned
before and checked after every repeat.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from hsakit.counters import Tally
from hsakit.ffi.errors import LOST, DeadlineExceeded, HsakitError
from hsakit.hsa.packet import Batch
from hsakit.kernels import RELEASED, REPORT, Kernels
from hsakit.node import Gpu, Node
from hsakit.sweep import stats
from hsakit.sweep.sweep import Settings, Sweep, dispatched, find_gpu, hip_device

REPEATS = 20  # by default
LAUNCHES = 128  # in a repeat
BATCH = 64
TRIPS = 32
_RING = 1024  # packets: more than a repeat has
_LOOKS = 1 << 26  # of the latch, which then lets go: longer than any deadline in use
_SETTLE = 2e-3  # seconds for the GPU to come to the gate
_POISON = 0xFF
ROUND_TRIP = "round trip"
# naive: prepared anew for each launch, its arguments checked and packed. batch: AQL packets, BATCH with one doorbell.
MODES = {"hsa": ("naive", "prepared", "batch", ROUND_TRIP), "hip": ("naive", "prepared", ROUND_TRIP)}


@dataclass(frozen=True)
class Point:
    gpu: int
    api: str
    mode: str

    def __str__(self) -> str:
        return f"gpu{self.gpu} {self.api} {self.mode}"


class _Bench:
    """A queue or stream, and the launches to make on it."""

    def __init__(self, gpu: Gpu, device: Any, deadline: float):
        self.gpu = gpu
        self.deadline = deadline
        self.runtime = gpu.node.runtime
        self.kernels = Kernels(device)
        self._words = gpu.node.cpus[0].pool("fine").allocate(2 * (8 + REPORT.itemsize), access=gpu.agent)
        self._words.view()[:] = 0
        self.flag, self.report = self._words[:8], self._words[8 : 8 + REPORT.itemsize]
        self.gate_flag, self.gate_report = self._words[40:48], self._words[48:]
        self.one = self.kernels.latch(self.flag, self.report, released=0, limit=1)
        self.empty = self.kernels.empty()
        self.modes: dict[str, Callable[[], int]] = {"naive": self.naive, "prepared": self.prepared}
        self.where: Any = None  # the queue or stream
        self.own = 0  # dispatches that holding and opening add
        self._last = 0  # tick of the last report

    def poison(self) -> None:
        self.report.view()[:] = _POISON

    def check(self) -> None:
        """Raise HsakitError unless a launch wrote the report since it was poisoned."""
        found = self.report.view(REPORT)[0]
        state, start, end, looks = (int(found[name]) for name in ("state", "start", "end", "looks"))
        if (state, looks) != (RELEASED, 1) or not self._last < start <= end:
            raise HsakitError(
                f"the report is {found}: expected state {RELEASED}, 1 look, and ticks after {self._last} of the repeat "
                "before"
            )
        self._last = start

    def naive(self) -> int:
        prepare, where, shape = self.one.kernel.prepare, self.where, self.one.geometry
        arguments = (self.flag, 0, 1, self.report)
        start = time.perf_counter_ns()
        for _ in repeat(None, LAUNCHES):
            prepare(shape.grid, shape.block, arguments).launch(where)
        return time.perf_counter_ns() - start

    def prepared(self) -> int:
        launch, where = self.one.launch, self.where
        start = time.perf_counter_ns()
        for _ in repeat(None, LAUNCHES):
            launch(where)
        return time.perf_counter_ns() - start

    def hold(self) -> None:
        """Keep what is launched from now on from running."""
        raise NotImplementedError

    def open(self) -> None:
        """Let it run, and wait for it."""
        raise NotImplementedError

    def trips(self) -> list[int]:
        """Nanoseconds of launches of the empty kernel that are waited for."""
        raise NotImplementedError

    def close(self) -> None:
        for each in (self.where, self.kernels, self._words):
            each.close()


class _Hsa(_Bench):
    def __init__(self, gpu: Gpu, deadline: float):
        super().__init__(gpu, gpu.agent, deadline)
        self.where = gpu.agent.create_queue(_RING)
        self._gate, self._done = self.runtime.create_signal(0), self.runtime.create_signal(1)
        self._batch = Batch([self.one.packet()] * BATCH)
        self.modes["batch"] = self.batch

    def batch(self) -> int:
        submit, batch = self.where.submit_batch, self._batch
        start = time.perf_counter_ns()
        for _ in repeat(None, LAUNCHES // BATCH):
            submit(batch)
        return time.perf_counter_ns() - start

    def hold(self) -> None:
        self._gate.store(1)
        self.where.barrier_and(after=[self._gate])

    def open(self) -> None:
        self._gate.store(0)
        self.where.drain(self.deadline)

    def trips(self) -> list[int]:
        launch, queue, done, taken = self.empty.launch, self.where, self._done, []
        for _ in repeat(None, TRIPS):
            done.store(1)
            start = time.perf_counter_ns()
            launch(queue, done)
            done.wait(deadline=self.deadline)
            taken.append(time.perf_counter_ns() - start)
        return taken

    def close(self) -> None:
        super().close()
        self._gate.close()
        self._done.close()


class _Hip(_Bench):
    def __init__(self, gpu: Gpu, deadline: float):
        device = hip_device(gpu)
        super().__init__(gpu, device, deadline)
        self.where = device.create_stream()
        self._latch = self.kernels.latch(self.gate_flag, self.gate_report, limit=_LOOKS)
        self.own = 1

    def hold(self) -> None:
        self.gate_flag.view()[:] = 0
        self._latch.launch(self.where)

    def open(self) -> None:
        self.gate_flag.view(np.uint64)[0] = 1
        self.where.synchronize(self.deadline)
        if self.gate_report.view(REPORT)["state"][0] != RELEASED:
            raise HsakitError("the latch let go before it was told to: launches and their work competed")

    def trips(self) -> list[int]:
        launch, stream, taken = self.empty.launch, self.where, []
        for _ in repeat(None, TRIPS):
            start = time.perf_counter_ns()
            launch(stream)
            stream.synchronize(self.deadline)
            taken.append(time.perf_counter_ns() - start)
        return taken


_BENCHES: dict[str, Callable[[Gpu, float], _Bench]] = {"hsa": _Hsa, "hip": _Hip}


class LaunchSweep(Sweep):
    """Its times are the host's, on every node."""

    kind = "launch"

    def __init__(self, node: Node, settings: Settings):
        super().__init__(node, settings, clock="host")
        self._benches: dict[tuple[int, str], _Bench] = {}

    def close(self) -> None:
        for bench in self._benches.values():
            bench.close()

    def plan(self, gpus: Sequence[int], apis: Sequence[str]) -> list[Point]:
        self.through(apis)
        for gpu in gpus:
            for api in apis:
                if (gpu, api) not in self._benches:
                    self._benches[gpu, api] = _BENCHES[api](find_gpu(self._node, gpu), self._settings.deadline)
        return [Point(gpu, api, mode) for gpu in gpus for api in apis for mode in MODES[api]]

    def run(self, point: Point) -> dict:
        bench = self._benches[point.gpu, point.api]
        tally = Tally([bench.gpu.agent.driver_node])
        samples: list[list[list[int]]] = []
        launches, error = 0, None
        try:
            for number in range(self._settings.warmup + self._settings.repeats):
                bench.poison()
                with tally:
                    taken, made = _once(bench, point.mode)
                launches += made
                bench.check()
                if number >= self._settings.warmup:
                    samples += [[[0, each]] for each in taken]
        except (DeadlineExceeded, *LOST) as end:
            error = self.broken = f"{point}: {end}"
        except HsakitError as failed:
            error = f"{point}: {failed}"
        packets, difference = dispatched(tally, launches)
        if error is None and difference:
            error = f"{point}: {difference}"
        return self.row(
            point,
            parameters={
                "gpu": point.gpu,
                "api": point.api,
                "mode": point.mode,
                "launches": 1 if point.mode == ROUND_TRIP else LAUNCHES,
                "repeats": self._settings.repeats,
                "warmup": self._settings.warmup,
            },
            samples=samples,
            verified="none" if error else "full",
            launch="host" if point.mode == ROUND_TRIP else "gated",
            packets=packets,
            error=error,
        )


def _once(bench: _Bench, mode: str) -> tuple[list[int], int]:
    """One repeat: the samples in nanoseconds, and how many kernels were launched."""
    trips = bench.trips() if mode == ROUND_TRIP else None
    bench.hold()
    try:
        if trips is not None:
            bench.one.launch(bench.where)  # the empty kernel leaves nothing to check
            return trips, TRIPS + 1 + bench.own
        time.sleep(_SETTLE)
        return [bench.modes[mode]()], LAUNCHES + bench.own
    finally:
        bench.open()


HEADERS = ("GPU", "through", "what", "ns best", "median", "spread", "samples", "verified", "launch", "clock")


def table(rows: Sequence[dict]) -> tuple[tuple[str, ...], list[list]]:
    """Headers and lines: nanoseconds of one launch, or of one round trip."""
    return HEADERS, [_line(row) for row in rows]


def _line(row: dict) -> list:
    p = row["parameters"]
    what = p["mode"] + (f" of {BATCH}" if p["mode"] == "batch" else "")
    line = [p["gpu"], p["api"], what]
    if row["error"]:
        return [*line, None, None, None, len(row["samples"]), "none", row["launch"], row["clock"]]
    best, median = min(map(stats.span, row["samples"])), stats.median_ns(row)
    spread = stats.spread(row)
    return [
        *line,
        f"{best / p['launches']:.0f}",
        f"{median / p['launches']:.0f}",
        None if spread is None else f"{spread:.0%}",
        len(row["samples"]),
        row["verified"],
        row["launch"],
        row["clock"],
    ]
