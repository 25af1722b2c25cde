"""What a workgroup asks of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from .constants import Constants

if TYPE_CHECKING:
    from ..node import NodeSpec

HOST = -1
"""stands for the host where a GPU's number would"""


@dataclass(frozen=True)
class Cost:
    """What one segment of one workgroup asks for.  Nothing says which kernel it is."""

    compute_ps: float = 0.0
    """time that its instructions take on a CU that it has for itself"""
    hbm_bytes: float = 0.0
    """to and from the GPU's own HBM, after reuse in the L2"""
    l2_bytes: float = 0.0
    """what it would be with no reuse at all: as bad as interference can make it; less than hbm_bytes counts as that"""
    wire: tuple[tuple[int, float], ...] = ()
    """(peer or HOST, bytes) that it writes there"""
    wire_reads: tuple[tuple[int, float], ...] = ()
    """(peer or HOST, bytes) that it reads from there"""
    delay_ps: float = 0.0
    """time that passes whatever else happens: a latency that nothing hides, sleep"""

    @classmethod
    def of_traffic(cls, wire: Mapping[int, float] | None = None, wire_reads: Mapping[int, float] | None = None,
                   **rest: float) -> Cost:  # fmt: skip
        """The same from mappings {peer: bytes}."""
        both = (tuple(sorted((peer, float(n)) for peer, n in (side or {}).items() if n)) for side in (wire, wire_reads))
        return cls(wire=next(both), wire_reads=next(both), **rest)


@dataclass(frozen=True)
class Footprint:
    """Bytes of its GPU's own memory that a workgroup touches: loads by who else loads the same, and stores."""

    private: float = 0.0
    """nobody"""
    shared_x: float = 0.0
    """workgroups that differ from it in x only"""
    shared_y: float = 0.0
    shared_z: float = 0.0
    shared_all: float = 0.0
    """all workgroups"""
    stored: float = 0.0

    @property
    def total(self) -> float:
        return self.private + self.shared_x + self.shared_y + self.shared_z + self.shared_all + self.stored

    def unique(self, grid: tuple[int, int, int], count: float, stride: int = 1) -> float:
        """Different bytes of ``count`` workgroups, every ``stride``-th of those that follow each other, x first."""
        x, y, z = grid
        count = max(1.0, min(count, x * y * z / stride))
        span = count * stride
        layers = max(1.0, span / (x * y))
        rows = min(count, max(1.0, span / x))  # of equal y and z
        in_a_row = max(1.0, min(span, x) / stride) if x % stride == 0 else min(count, x)
        columns = min(count, in_a_row * layers)
        stacks = min(count, x * y)
        return (
            self.shared_all
            + count * (self.private + self.stored)
            + rows * self.shared_x
            + columns * self.shared_y
            + stacks * self.shared_z
        )

    def hbm_bytes(self, grid: tuple[int, int, int], together: float, xccs: int) -> float:
        """HBM traffic of a workgroup of which so many are resident together on each of ``xccs`` XCCs, dealt to them in
        turn: what several of an XCC touch at a time comes through its L2 once."""
        together = max(1.0, min(together, grid[0] * grid[1] * grid[2] / xccs))
        return min(self.total, self.unique(grid, together, xccs) / together)


# Which unit of a CU issues what: units work side by side, the instructions of one after each other.
UNITS = {
    "vector": ("vector", "packed", "wide", "transcendental"),
    "scalar": ("scalar", "smem", "branch", "wait", "barrier"),
    "lds": ("lds",),
    "memory": ("memory",),
}
UNIT_OF = {name: unit for unit, names in UNITS.items() for name in names}


@dataclass(frozen=True)
class CuRates:
    """What a CU does in a clock: of a node file's ``[cu_rates]``."""

    matrix: Mapping[str, float]
    """operations of its matrix cores, by type of the operands (a multiplication and an addition are two)"""
    issue: Mapping[str, float]
    """instructions of a wave, by class"""
    memory_bytes: float
    """between its registers and its L1"""


def parse_cu_rates(table: dict) -> CuRates:
    """ValueError says what is wrong with it."""
    wanted = {field.name for field in fields(CuRates)}
    if table.keys() != wanted:
        raise ValueError(f"[cu_rates] has {', '.join(sorted(table))}; it must have {', '.join(sorted(wanted))}")
    classes = {name for unit in UNITS.values() for name in unit}
    if table["issue"].keys() != classes:
        raise ValueError(f"cu_rates.issue must have {', '.join(sorted(classes))}")
    for name, value in [*table["matrix"].items(), *table["issue"].items(), ("memory_bytes", table["memory_bytes"])]:
        if type(value) not in (int, float) or not 0 < value <= 1e9:
            raise ValueError(f"cu_rates: {name} = {value!r}; a number above 0 is possible")
    return CuRates(**table)


def compute_ps(
    instructions: Mapping[str, float], moved: float, rates: CuRates, clock_mhz: float, efficiency: float
) -> float:
    """Time of a workgroup on a CU of its own: that of the unit that has most to do, the others being busy meanwhile.

    ``instructions``: how many its waves issued, all together, by class (those of :data:`UNITS`), and as ``mfma_f16``
    and so on the operations of matrix instructions.  ``moved``: bytes of its vector memory instructions, wherever they
    come from."""
    matrix = 0.0
    clocks = dict.fromkeys(UNITS, 0.0)
    for name, amount in instructions.items():
        if name.startswith("mfma_"):
            if name[5:] not in rates.matrix:
                raise ValueError(f"no rate for {name}; [cu_rates] has {', '.join(rates.matrix)}")
            matrix += amount / rates.matrix[name[5:]]
        elif name in UNIT_OF:
            clocks[UNIT_OF[name]] += amount / rates.issue[name]
        else:
            raise ValueError(f"no rate for instructions of class {name!r}; there are {', '.join(UNIT_OF)}")
    clocks["memory"] = max(clocks["memory"], moved / rates.memory_bytes)
    return max(matrix, *clocks.values()) * 1e6 / (clock_mhz * efficiency)


def of(instructions: Mapping[str, float], moved: float, touched: Footprint, grid: tuple[int, int, int], together: float,
       spec: NodeSpec, constants: Constants, *, wire: Mapping[int, float] | None = None,
       wire_reads: Mapping[int, float] | None = None, delay_ps: float = 0.0) -> Cost:  # fmt: skip
    """The cost of a workgroup of ``grid`` (workgroups in x, y, z) from what it executed and touched.

    ``instructions``, ``moved``: see :func:`compute_ps`.  ``together``: workgroups of the kernel that an XCC holds at a
    time.  ``wire``, ``wire_reads``: bytes to and from peers.  ``delay_ps``: waiting that nothing hides."""
    return Cost.of_traffic(
        wire,
        wire_reads,
        compute_ps=compute_ps(instructions, moved, spec.cu_rates, spec.gpu.clock_mhz, constants.efficiency),
        hbm_bytes=touched.hbm_bytes(grid, together, spec.gpu.xccs),
        l2_bytes=touched.total,
        delay_ps=delay_ps,
    )
