"""The dma sweep: engine copies between the GPUs of a node and its host, each verified byte for byte.

Every run of a point poisons its destinations, counts packets, launches, waits, and compares. A single copy is launched by
the host; several wait for one signal and are released together. Times are the engines' own, from one signal a copy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hsakit import counters, results
from hsakit.counters import Counters
from hsakit.ffi import loader, node_choice
from hsakit.ffi.errors import DeadlineExceeded, GpuMemoryFault, HsakitError, InvalidArgument
from hsakit.hsa.transfer import check_engine
from hsakit.node import Node
from hsakit.sweep.buffers import Buffers
from hsakit.sweep.layout import DESTINATION, GUARD, SOURCE, Place, lay_out
from hsakit.sweep.plan import HOST, Machine, Point, Transfer
from hsakit.verify import check, compare

KIND = "dma"
SEED = 1
_SETTLE = 5.0  # seconds that a run which cannot go on waits for the copies it submitted

# Bytes that the runtime puts into one copy packet for gfx94x, by the HSA version (amd_gpu_agent.cpp, CreateBlitSdma):
# 1.13 the full 30-bit count; from 1.14 on 22 bits; and what HSA_ENABLE_SDMA_COPY_SIZE_OVERRIDE=0 leaves.
_PACKET_BYTES_1_13 = 0x3FFFFFFF
_PACKET_BYTES = 0x3FFFFF
_PACKET_BYTES_NO_OVERRIDE = 0x3FFFE0


@dataclass(frozen=True)
class Settings:
    """repeats: measured runs a point; warmup: runs before them, verified but not measured. deadline: seconds a run's
    copies may take. memory: bytes of all buffers together."""

    repeats: int = 5
    warmup: int = 1
    deadline: float = 30.0
    memory: int = 3 << 29

    def __post_init__(self):
        for name, least in (("repeats", 1), ("warmup", 0), ("memory", 1 << 23)):
            if getattr(self, name) < least:
                raise InvalidArgument(f"{name} is {getattr(self, name)}: at least {least}")
        if not 0 < self.deadline < 86400:
            raise InvalidArgument(f"deadline is {self.deadline}: more than 0 seconds, less than a day")


class DmaSweep:
    """Runs points on a node. Not for several threads: a sweep owns its engines while it measures."""

    def __init__(self, node: Node, settings: Settings):
        self._node = node
        self._settings = settings
        self._buffers = Buffers(node, SEED, settings.memory, settings.deadline)
        self._stuck: set[tuple[int, int]] = set()  # (GPU, engine)
        self._packet_bytes = packet_bytes(node.runtime.version)
        self.clock = node_choice.clock_label()
        self.versions = results.versions(hsa=node.runtime.version, libhsa=loader.hsa().path.name)
        self.broken: str | None = None  # why nothing more can be measured

    def close(self) -> None:
        self._buffers.close()

    def __enter__(self) -> DmaSweep:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def key(self, point: Point) -> str:
        return f"{KIND} {point} r{self._settings.repeats} w{self._settings.warmup}"

    def fits(self, point: Point) -> bool:
        """Whether the point's buffers stay within the memory allowed."""
        return lay_out(point).footprint <= self._settings.memory

    def check(self, points: Iterable[Point]) -> None:
        """Raise InvalidArgument if an engine cannot do its transfer: for what it is, or for how the environment is set."""
        for transfer in dict.fromkeys(transfer for point in points for transfer in point.transfers):
            src, dst = (self._node.cpus[0] if end == HOST else self._node.gpus[end].agent for end in (transfer.src, transfer.dst))
            check_engine(self._node.gpus[transfer.owner].agent.engine(transfer.engine), dst, src)

    def wake(self, points: Iterable[Point]) -> list[dict]:
        """Use each engine of the GPUs concerned once, in the order of their numbers; returns the rows of those that failed.

        A runtime without SDMA_BY_ENG_ID queues (up to ROCm 6.2) asks the driver for some engine when a number is first
        used, and the driver gives the first that is free. Only in this order is number k engine k.
        """
        gpus = sorted({transfer.owner for point in points for transfer in point.transfers})
        copies = [Transfer(gpu, gpu, engine.index) for gpu in gpus for engine in self._node.gpus[gpu].agent.copy_engines]
        rows = [self._measure(Point("wake", (transfer,), 1), warmup=1, repeats=0) for transfer in copies]
        return [row for row in rows if row["error"]]

    def run(self, point: Point) -> dict:
        """Measure one point and return its row; what went wrong is in the row's `error`. Never waits past deadlines."""
        return self._measure(point, self._settings.warmup, self._settings.repeats)

    def _measure(self, point: Point, warmup: int, repeats: int) -> dict:
        run = _Run(self._node, self._buffers, point, self._settings.deadline)
        error = self._refusal(point)
        if error is None:
            try:
                run.all(warmup, repeats)
            except DeadlineExceeded as late:
                error = f"{run.where}: {late}"
                for transfer in run.unfinished:
                    self._stuck.add((transfer.owner, transfer.engine))
                self._buffers.forget(run.layout.capacity)  # a late copy may still write there
            except GpuMemoryFault as fault:
                error = self.broken = f"{run.where}: {fault}"
            except HsakitError as failed:
                error = f"{run.where}: {failed}"
        planned, counted = run.packets(self._packet_bytes)
        if error is None and counted is not None:
            error = _difference(run.where, planned, counted)
        return results.make_row(
            KIND,
            self.key(point),
            parameters=_parameters(point, run.layout.places, warmup, repeats),
            samples=run.samples,
            verified="none" if error else "full",
            launch="gated" if point.gated else "host",
            clock=self.clock,
            packets={"planned": planned, "counted": counted},
            versions=self.versions,
            error=error,
        )

    def _refusal(self, point: Point) -> str | None:
        for transfer in point.transfers:
            if (transfer.owner, transfer.engine) in self._stuck:
                return f"not run: engine {transfer.engine} of GPU {transfer.owner} missed a deadline earlier in this sweep"
        return None


class _Run:
    """All runs of one point."""

    def __init__(self, node: Node, buffers: Buffers, point: Point, deadline: float):
        self._node = node
        self._buffers = buffers
        self._point = point
        self._deadline = deadline
        self._submitted = 0
        self._counted: Counters | None = None
        self._ends = list(dict.fromkeys(end for t in point.transfers for end in (t.src, t.dst)))
        self._nodes = {node.gpus[end].agent.driver_node: end for end in self._ends if end != HOST}
        self._gate = node.runtime.create_signal(0) if point.gated else None
        self._copies: list = []
        self.layout = lay_out(point)
        self.samples: list[list[list[int]]] = []
        self.unfinished: list[Transfer] = []
        self.where = f"{point}"

    def all(self, warmup: int, repeats: int) -> None:
        self._buffers.prepare(self.layout)
        self._copies = [self._prepare(t, place) for t, place in zip(self._point.transfers, self.layout.places)]
        for number in range(warmup + repeats):
            measured = number >= warmup
            self.where = f"{self._point}, " + (
                f"repeat {number - warmup + 1} of {repeats}" if measured else f"warm-up {number + 1} of {warmup}"
            )
            sample = self._once()
            if measured:
                self.samples.append(sample)

    def packets(self, packet_bytes: int) -> tuple[dict, dict | None]:
        """Copy packets that this point's submissions make, and those that crossed the library. No copy may have become
        a kernel."""
        per_copy = -(-self._point.nbytes // packet_bytes)
        runs, rest = divmod(self._submitted, len(self._point.transfers))
        engines: dict[str, int] = {}
        for index, transfer in enumerate(self._point.transfers):
            name = f"{transfer.owner}/{transfer.engine}"
            engines[name] = engines.get(name, 0) + (runs + (index < rest)) * per_copy
        planned = {"sdma_copy": self._submitted * per_copy, "aql_dispatch": 0, "engines": engines}
        if self._counted is None:
            return planned, None
        names = {name for counts in self._counted.nodes.values() for name, n in counts.items() if n and "engine" not in name}
        counted: dict = {name: self._counted.total(name) for name in sorted(names | planned.keys() - {"engines"})}
        counted["engines"] = {
            f"{self._nodes[node]}/{engine}": n
            for node in self._counted.nodes
            for engine, n in self._counted.engine_copies(node).items()
        }
        return planned, counted

    def _prepare(self, transfer: Transfer, place: Place):
        source = self._buffers.piece(SOURCE, transfer.src, place.source, self._point.nbytes)
        target = self._buffers.piece(DESTINATION, transfer.dst, place.destination, self._point.nbytes)
        engine = self._node.gpus[transfer.owner].agent.engine(transfer.engine)
        return engine.prepare(target, source, after=(self._gate,) if self._gate else ())

    def _once(self) -> list[list[int]]:
        for transfer, place in zip(self._point.transfers, self.layout.places):
            self._buffers.poison(transfer.dst, self._slot(transfer, place), *self._expected(transfer, place))
        before = counters.snapshot(self._nodes)
        signals = self._launch_and_wait()
        after = counters.snapshot(self._nodes)
        if before is not None and after is not None:
            crossed = after - before
            self._counted = crossed if self._counted is None else self._counted + crossed
        times = [signal.times for signal in signals]
        for transfer, place in zip(self._point.transfers, self.layout.places):
            self._verify(transfer, place)
        first = min(start for start, _ in times)
        return [[start - first, end - first] for start, end in times]

    def _launch_and_wait(self) -> list:
        """Submit every copy, release them, and wait; whatever happens, the gate opens and the copies are waited for."""
        if self._gate:
            self._gate.store(1)
        signals: list = []
        try:
            for copy in self._copies:
                signals.append(copy.submit(self._deadline))
                self._submitted += 1
        except BaseException:
            self._drain(signals, _SETTLE)
            raise
        self._drain(signals, self._deadline)
        return signals

    def _drain(self, signals: list, deadline: float) -> None:
        if self._gate:
            self._gate.store(0)
        end = time.monotonic() + deadline
        try:
            for signal in signals:
                signal.wait(deadline=max(0.0, end - time.monotonic()))
        except DeadlineExceeded:
            self.unfinished = [t for t, signal in zip(self._point.transfers, signals) if signal.value >= 1]
            raise

    def _slot(self, transfer: Transfer, place: Place):
        nbytes = GUARD + self._point.nbytes + GUARD
        return self._buffers.piece(DESTINATION, transfer.dst, place.destination - GUARD, nbytes)

    def _expected(self, transfer: Transfer, place: Place):
        """The pattern of a slot, guards included, and its offset."""
        return self._buffers.pattern(transfer.src), place.source - GUARD

    def _verify(self, transfer: Transfer, place: Place) -> None:
        pattern, offset = self._expected(transfer, place)
        slot = self._buffers.fetch(transfer.dst, self._slot(transfer, place))
        name = f"rank {pattern.rank} ({_end(transfer.src)}) to {_end(transfer.dst)} on engine {transfer.engine}"
        inside = slot[GUARD : GUARD + self._point.nbytes]
        check(inside, pattern, offset + GUARD, name, [self._buffers.pattern(end) for end in self._ends])
        for side, start in (("before", 0), ("behind", GUARD + self._point.nbytes)):
            mismatch = compare(np.invert(slot[start : start + GUARD]), pattern, offset + start)  # it must still be poison
            if mismatch:
                raise HsakitError(f"{name}: {mismatch.count} bytes {side} the destination were overwritten")


def _end(end) -> str:
    return "the host" if end == HOST else f"GPU {end}"


def _difference(where: str, planned: dict, counted: dict) -> str | None:
    for name, number in planned.items():
        if counted[name] != number:
            return f"{where}: not the packets of the plan crossed the library: {name} counted {counted[name]}, planned {number}"
    return None


def _parameters(point: Point, places: tuple[Place, ...], warmup: int, repeats: int) -> dict:
    return {
        "mode": point.mode,
        "kind": point.kind,
        "nbytes": point.nbytes,
        "transfers": [
            {"src": t.src, "dst": t.dst, "engine": t.engine, "owner": t.owner, "src_offset": p.source, "dst_offset": p.destination}
            for t, p in zip(point.transfers, places)
        ],
        "repeats": repeats,
        "warmup": warmup,
        "seed": SEED,
    }


def packet_bytes(version: str) -> int:
    """The most bytes that the runtime of a version, "1.13 (build)", puts into one copy packet."""
    if os.environ.get("HSA_ENABLE_SDMA_COPY_SIZE_OVERRIDE") == "0":
        return _PACKET_BYTES_NO_OVERRIDE
    major, minor = version.split()[0].split(".")
    return _PACKET_BYTES_1_13 if (int(major), int(minor)) <= (1, 13) else _PACKET_BYTES


def machine_of(node: Node) -> Machine:
    """What a node's GPUs can choose from: towards a peer the engines of the links, where there are any."""
    engines = {gpu.index: gpu.engines for gpu in node.gpus}
    links = {gpu: tuple(e.index for e in found if e.kind == "xgmi") for gpu, found in engines.items()}
    every = {gpu: tuple(e.index for e in found) for gpu, found in engines.items()}
    between = [link for link in node.links if link.src.kind == link.dst.kind == "gpu"]
    return Machine(
        engines=every,
        peer_engines={gpu: links[gpu] or every[gpu] for gpu in every},
        linked=frozenset((link.src.index, link.dst.index) for link in between),
        recommended={
            (link.src.index, link.dst.index): (link.recommended_engines & -link.recommended_engines).bit_length() - 1
            for link in between
            if link.recommended_engines
        },
    )
