"""What a workgroup asks of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
