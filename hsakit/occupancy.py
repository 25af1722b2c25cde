"""How much of a launch a compute unit (CU) holds at a time, by waves, registers and LDS.

For parts whose SIMDs share 512 vector registers a lane between waves, accumulators included: CDNA 2 and 3.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hsakit.codeobject import KernelInfo
    from hsakit.geometry import Geometry
    from hsakit.hsa import Agent

_REGISTERS, _REGISTER_GRANULE = 512, 8  # LLVM's AMDGPU usage guide, gfx90a and gfx942
_LDS_GRANULE = 512


def waves_a_workgroup(kernel: KernelInfo, geometry: Geometry) -> int:
    return -(-prod(geometry.block) // kernel.wavefront_size)


def workgroups_a_cu(kernel: KernelInfo, geometry: Geometry, agent: Agent) -> int:
    """Workgroups of a launch that a CU of a GPU holds at a time."""
    simds = agent.simds_per_cu
    a_simd = min(agent.waves_per_cu // simds, _REGISTERS // _up(max(kernel.vgprs, 1), _REGISTER_GRANULE))
    held = a_simd * simds // waves_a_workgroup(kernel, geometry)
    lds = _up(kernel.group_segment_size + geometry.lds, _LDS_GRANULE)
    return min(held, agent.limits.lds // lds) if lds else held


def _up(n: int, granule: int) -> int:
    return -(-n // granule) * granule
