"""What is under way on a GPU, as the equations of sharing see it."""

from __future__ import annotations

from dataclasses import dataclass

from .cost import HOST, Cost


@dataclass(frozen=True)
class Flow:
    """``count`` workgroups that do the same side by side, or engines' copies (their unit of progress is a byte).

    Nothing here says which kernel or which buffer it is.
    """

    gpu: int
    """whose CUs or engine"""
    count: int = 1
    compute_ps: float = 0.0
    delay_ps: float = 0.0
    hbm_bytes: float = 0.0
    l2_bytes: float = 0.0
    wire: tuple[tuple[int, int, float], ...] = ()
    """(from, to, bytes): what crosses links"""
    memory: tuple[tuple[int, float], ...] = ()
    """(GPU, bytes): HBM traffic at the other ends, and at both of a copy"""
    crowd: float = 1.0
    """workgroups on a CU, on average over these"""
    full: float = 0.0
    """share of the XCCs of which its kernel has all CUs"""
    sharers: int = 0
    """copies on its engine, 0: it is on CUs"""


def of_workgroups(gpu: int, count: int, cost: Cost, crowd: float, full: float) -> Flow:
    return Flow(
        gpu=gpu,
        count=count,
        compute_ps=cost.compute_ps,
        delay_ps=cost.delay_ps,
        hbm_bytes=cost.hbm_bytes,
        l2_bytes=max(cost.hbm_bytes, cost.l2_bytes),
        wire=tuple([(gpu, peer, n) for peer, n in cost.wire] + [(peer, gpu, n) for peer, n in cost.wire_reads]),
        memory=tuple((peer, n) for peer, n in cost.wire + cost.wire_reads if peer != HOST),
        crowd=crowd,
        full=full,
    )


def of_copies(gpu: int, count: int, source: int, destination: int, sharers: int, read: float) -> Flow:
    """``sharers``: copies on the engine of each; ``read``: bytes that it reads from HBM for each that it writes."""
    return Flow(
        gpu=gpu,
        count=count,
        wire=((source, destination, 1.0),) if source != destination else (),
        memory=tuple((end, n) for end, n in ((source, read), (destination, 1.0)) if end != HOST),
        sharers=sharers,
    )
