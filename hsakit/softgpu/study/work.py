"""Synthetic work for the clock: a library's matrix product, its collectives by kernels, and collectives by engines.

All GPUs do the same, so one stands for all of them (``Machine(..., mirrored=True)``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..clock import Cohort, Constants, Cost, Machine
from ..clock.cost import Footprint, compute_ps
from ..node import NodeSpec

NS = 1000  # picoseconds
TILE = 256, 256  # rows and columns: a large matrix product's in AMD's libraries
TILES = TILE, (256, 128), (128, 256), (128, 128)  # that such a library has, too
ELEMENT = 2  # bytes: bf16


@dataclass(frozen=True)
class Library:
    """How a library of collectives runs one on CUs (RCCL's structure; see docs/clock.md)."""

    workgroups: int
    """channels that it uses by default"""
    local_bytes: float
    """to and from the GPU's own HBM for each byte that it sends; one more is written at the peer"""
    start_ns: float
    """from the start of the kernel until it moves data at full rate"""


LIBRARY = {
    # a ring: read the own copy, write the neighbour's
    "all-gather": Library(64, 1.0, 20_000),
    # through a peer's buffer: read, (write there), read the own buffer, write the output
    "all-to-all": Library(56, 3.0, 30_000),
}


@dataclass(frozen=True)
class Product:
    """C = A B in bf16, C of m x n."""

    m: int
    n: int
    k: int
    finer: int = 1
    """into so many the work of a workgroup is cut"""
    tile: tuple[int, int] = TILE

    @property
    def grid(self) -> tuple[int, int, int]:
        return -(-self.n // self.tile[1]), -(-self.m // self.tile[0]), 1

    @property
    def workgroups(self) -> int:
        return self.grid[0] * self.grid[1] * self.finer

    def cost(self, spec: NodeSpec, constants: Constants) -> Cost:
        rows, columns = min(self.m, self.tile[0]), min(self.n, self.tile[1])
        compute = compute_ps(
            {"mfma_bf16": 2 * rows * columns * self.k}, 0.0, spec.cu_rates, spec.gpu.clock_mhz, constants.efficiency
        )
        touched = Footprint(
            stored=rows * columns * ELEMENT, shared_x=rows * self.k * ELEMENT, shared_y=columns * self.k * ELEMENT
        )
        return Cost(
            compute_ps=compute / self.finer,
            hbm_bytes=touched.hbm_bytes(self.grid, spec.gpu.cus, spec.gpu.xccs) / self.finer,
            l2_bytes=touched.total / self.finer,
        )


class Kernel:
    """A job of workgroups that all cost the same, segment by segment."""

    per_cu = 1

    def __init__(self, workgroups: int, segments: Sequence[Cost], cus: Sequence[int], done: Callable[[], object]):
        self.workgroups, self.cus = workgroups, cus
        self._segments, self._done = segments, done

    def begin(self, cohort: Cohort) -> Cost:
        cohort.data = 1
        return self._segments[0]

    def resume(self, cohort: Cohort) -> Cost | None:
        following = cohort.data
        assert isinstance(following, int)
        cohort.data = following + 1
        return self._segments[following] if following < len(self._segments) else None

    def done(self) -> None:
        self._done()


def collective(spec: NodeSpec, kind: str, nbytes: int, channels: int = 0) -> tuple[int, list[Cost]]:
    """Workgroups of the library's collective of ``nbytes`` of output a GPU (``channels`` if not its default), and what
    each does."""
    library = LIBRARY[kind]
    workgroups = channels or library.workgroups
    peers = spec.gpus - 1
    to_a_peer = nbytes / spec.gpus / workgroups
    move = Cost.of_traffic(
        dict.fromkeys(range(1, spec.gpus), to_a_peer), hbm_bytes=peers * to_a_peer * library.local_bytes
    )
    return workgroups, [Cost(delay_ps=library.start_ns * NS), move]


class Ends:
    """When everything that was begun had ended."""

    def __init__(self, machine: Machine):
        self._machine = machine
        self.last = 0

    def __call__(self) -> None:
        self.last = self._machine.timeline.now


def launch(machine: Machine, at: int, workgroups: int, segments: Sequence[Cost], cus: Sequence[int], end: Ends) -> None:
    """A kernel whose packet's turn comes at ``at``."""
    job = Kernel(workgroups, segments, cus, end)
    start = at + int(machine.constants.launch_ns * NS)
    machine.timeline.at(start, lambda: machine.dispatch(0, job))


def engine_collective(machine: Machine, kind: str, nbytes: int, end: Ends, gated: bool = False) -> None:
    """Every GPU's shard straight to all its peers, each on an engine of its own.  Driven by the host, copy after copy,
    with a wait at the end, or ``gated``: released at once."""
    constants, spec = machine.constants, machine.spec
    peers = list(range(1, spec.gpus))
    left = len(peers)
    synchronise = 0 if gated else int(constants.host_sync_ns * NS)

    def over() -> None:
        nonlocal left
        left -= 1
        if not left:
            machine.timeline.at(machine.timeline.now + synchronise, end)

    engines = spec.gpu.engines - spec.gpu.sdma_engines
    for i, peer in enumerate(peers):
        host = 0 if gated else int((i + 1) * constants.host_copy_ns * NS)
        at = host + int(constants.engine_start_ns * NS)
        engine = spec.gpu.sdma_engines + i * max(1, engines // len(peers)) % engines
        origin = "shard" if kind == "all-gather" else None

        def begin(engine=engine, peer=peer, origin=origin) -> None:
            machine.transfer(0, engine, 0, peer, nbytes // spec.gpus, lambda: None, over, origin)

        machine.timeline.at(at, begin)
