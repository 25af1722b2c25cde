"""The dma sweep: engine copies between the GPUs of a node and its host, each verified byte for byte.

Every run of a point poisons its destinations, counts packets, launches, waits, and compares. A single copy is launched
by the host; several wait for one signal and are released together. Times are the engines' own, from one signal a copy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from hsakit.ffi.errors import LOST, DeadlineExceeded, HsakitError
from hsakit.hsa.transfer import check_engine
from hsakit.node import Node
from hsakit.platform import Platform
from hsakit.sweep import packets, sweep
from hsakit.sweep.buffers import Buffers
from hsakit.sweep.layout import Place, lay_out
from hsakit.sweep.plan import Machine, Point, Selection, Transfer, plan
from hsakit.sweep.run import Run

SEED = 1

# Bytes that the runtime puts into one copy packet for gfx94x, by the HSA version (amd_gpu_agent.cpp, CreateBlitSdma):
# 1.13 the full 30-bit count; from 1.14 on 22 bits; and what HSA_ENABLE_SDMA_COPY_SIZE_OVERRIDE=0 leaves.
_PACKET_BYTES_1_13 = 0x3FFFFFFF
_PACKET_BYTES = 0x3FFFFF
_PACKET_BYTES_NO_OVERRIDE = 0x3FFFE0


@dataclass(frozen=True)
class Settings(sweep.Settings):
    """memory: bytes of all buffers together; the deadline is of a run's copies."""

    memory: int = 3 << 29

    def __post_init__(self):
        super().__post_init__()
        self._at_least(memory=1 << 23)


class DmaSweep(sweep.Sweep):
    kind = "dma"
    _settings: Settings

    def __init__(self, node: Platform, settings: Settings):
        super().__init__(node, settings)
        self._buffers = Buffers(node, SEED, settings.memory, settings.deadline)
        self._stuck: set[tuple[int, int]] = set()  # (GPU, engine)
        self.driver_engines: dict[tuple[int, int], int] = {}  # of (GPU, number): the engine that the driver gave it
        self._packet_bytes = packet_bytes_of(node)

    def close(self) -> None:
        self._buffers.close()

    def plan(self, selection: Selection) -> list[Point]:
        """The points of a selection, in the order to run them."""
        return plan(machine_of(self._node), selection)

    def gated(self, point: Point) -> bool:
        """Whether the copies wait for a signal."""
        return point.gated

    def fits(self, point: Point) -> bool:
        """Whether the point's buffers stay within the memory allowed."""
        return lay_out(point).footprint <= self._settings.memory

    def check(self, points: Iterable[Point]) -> None:
        """Raise InvalidArgument if an engine cannot do its transfer, for what it is or by the environment's setting."""
        for transfer in dict.fromkeys(transfer for point in points for transfer in point.transfers):
            ends = (transfer.dst, transfer.src)
            dst, src = (self._node.gpus[end].agent if isinstance(end, int) else self._node.cpus[0] for end in ends)
            check_engine(self._node.gpus[transfer.owner].agent.engine(transfer.engine), dst, src)

    def wake(self, points: Iterable[Point]) -> list[dict]:
        return self.wake_engines({transfer.owner for point in points for transfer in point.transfers})

    def wake_engines(self, gpus: Iterable[int]) -> list[dict]:
        """Use each engine of some GPUs once, in the order of their numbers; returns rows of those that failed.

        Up to ROCm 6.2 the runtime asks the driver for some engine when a number is first used, and the driver gives the
        first that is free; later ones ask for engines by number, but swap the host's two on gfx94x. So the order is
        fixed here, and where the driver counts packets, what each number stands for is learned. From then on rows
        whose packets went to another engine are errors, as is one engine under two numbers.
        """
        rows = []
        for gpu in sorted(set(gpus)):
            for engine in self._node.gpus[gpu].engines:
                row = self._measure(Point("wake", (Transfer(gpu, gpu, engine.index),), 1), warmup=1, repeats=0)
                if row["error"] is None and row["packets"]["counted"] is not None:
                    (name,) = row["packets"]["counted"]["engines"]
                    row["error"] = self._learn(gpu, engine.index, int(name.partition("/")[2]))
                    row["verified"] = "none" if row["error"] else "full"
                rows.append(row)
        return [row for row in rows if row["error"]]

    def _learn(self, gpu: int, number: int, given: int) -> str | None:
        self.driver_engines[gpu, number] = given
        same = [k for (owner, k), engine in self.driver_engines.items() if (owner, engine) == (gpu, given)]
        return f"engines {same[0]} and {same[1]} of GPU {gpu} are one" if len(same) > 1 else None

    def run(self, point: Point) -> dict:
        return self._measure(point, self._settings.warmup, self._settings.repeats)

    def _measure(self, point: Point, warmup: int, repeats: int) -> dict:
        run = Run(self._node, self._buffers, point, self._settings.deadline, self.gated(point))
        error = self._refusal(point)
        if error is None:
            try:
                run.all(warmup, repeats)
            except DeadlineExceeded as late:
                error = f"{run.where}: {late}"
                self._stuck |= {(transfer.owner, transfer.engine) for transfer in run.unfinished}
                if not run.unfinished:
                    self.broken = error  # the copies that poison and fetch: nothing can be verified without them
                self._buffers.forget(run.layout.capacity)  # a late copy may still write there
            except LOST as fault:
                error = self.broken = f"{run.where}: {fault}"
            except HsakitError as failed:
                error = f"{run.where}: {failed}"
        planned, counted = run.packets(self._packet_bytes, self.driver_engines)
        if error is None and counted is not None:
            known = all((t.owner, t.engine) in self.driver_engines for t in point.transfers)
            error = packets.difference(run.where, planned, counted, known)
        return self.row(
            point,
            parameters=_parameters(point, run.layout.places, self.driver_engines, warmup, repeats),
            samples=run.samples,
            verified="none" if error else "full",
            launch="gated" if self.gated(point) else "host",
            packets={"planned": planned, "counted": counted},
            error=error,
        )

    def _refusal(self, point: Point) -> str | None:
        for transfer in point.transfers:
            if (transfer.owner, transfer.engine) in self._stuck:
                return f"not run: engine {transfer.engine} of GPU {transfer.owner} missed a deadline before"
        return None


def _parameters(point: Point, places: tuple[Place, ...], driver_engines: dict, warmup: int, repeats: int) -> dict:
    return {
        "mode": point.mode,
        "kind": point.kind,
        "nbytes": point.nbytes,
        "transfers": [
            {
                "src": transfer.src,
                "dst": transfer.dst,
                "engine": transfer.engine,
                "owner": transfer.owner,
                "driver_engine": driver_engines.get((transfer.owner, transfer.engine)),
                "src_offset": place.source,
                "dst_offset": place.destination,
            }
            for transfer, place in zip(point.transfers, places)
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


def packet_bytes_of(node: Platform) -> int:
    """The same of a node; without end where no runtime cuts copies into packets."""
    return packet_bytes(node.versions["hsa"]) if "hsa" in node.versions else 1 << 62


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
        # ROCr (GpuAgent::DmaCopyOnEngine) refuses the first engine of this part all copies that leave it, for its RAS.
        inward=frozenset((gpu.index, 0) for gpu in node.gpus if gpu.agent.name == "gfx90a"),
    )
