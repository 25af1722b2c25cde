"""What is under way on a GPU, as the equations of sharing see it."""

from __future__ import annotations

from dataclasses import dataclass

from .cost import HOST, Cost


@dataclass(frozen=True)
class Flow:
    """``count`` workgroups that do the same side by side, or one engine's copy (its unit of progress is a byte).

    Flows that are equal run equally fast: nothing here says which kernel or which buffer it is.
    """

    gpu: int
    """whose CUs or engine"""
    count: int
    compute_ps: float
    delay_ps: float
    hbm_bytes: float
    l2_bytes: float
    wire: tuple[tuple[int, int, float], ...]
    """(from, to, bytes): what crosses links"""
    memory: tuple[tuple[int, float], ...]
    """(GPU, bytes): HBM traffic elsewhere, and of an engine's copy"""
    crowd: float = 1.0
    """workgroups on a CU, on average over these"""
    full: float = 0.0
    """share of the XCCs of which its kernel has all CUs"""
    engine: int | None = None

    @property
    def flows(self) -> bool:
        return bool(self.wire) or self.engine is not None


def of_workgroups(gpu: int, count: int, cost: Cost, crowd: float, full: float) -> Flow:
    wire = [(gpu, peer, n) for peer, n in cost.wire] + [(peer, gpu, n) for peer, n in cost.wire_reads]
    memory = [(peer, n) for peer, n in cost.wire + cost.wire_reads if peer != HOST]
    requested = max(cost.hbm_bytes, cost.l2_bytes)
    return Flow(gpu, count, cost.compute_ps, cost.delay_ps, cost.hbm_bytes, requested, tuple(wire), tuple(memory),
                crowd, full)  # fmt: skip


def of_copy(gpu: int, engine: int, source: int, destination: int, read: float) -> Flow:
    """``read``: bytes that it reads from the source's HBM for each that it writes."""
    wire = ((source, destination, 1.0),) if source != destination else ()
    memory = tuple((end, n) for end, n in ((source, read), (destination, 1.0)) if end != HOST)
    return Flow(gpu, 1, 0.0, 0.0, 0.0, 0.0, wire, memory, engine=engine)
