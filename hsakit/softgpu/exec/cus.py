"""The CUs that a queue may use, as the driver programs them and the hardware reads them.

The driver turns a queue's CU mask into the registers COMPUTE_STATIC_THREAD_MGMT_SE0 and up of each XCC (amdkfd,
``mqd_symmetrically_map_cu_mask``), one enable bit a CU.  That is done here; the toolkit's own account of CU masks is
not used, so that each checks the other.
"""

from __future__ import annotations

from itertools import zip_longest

from ..node import Gpu

REGISTER_CUS = 16  # of the register's 32 bits: the node's parts have one shader array an engine


def registers(mask: bytes | None, part: Gpu) -> list[list[int]]:
    """The enable registers, ``[xcc][shader engine]``, after SET_CU_MASK with these bits; all ones if it never came."""
    engines = part.active_cus
    if mask is None:
        return [[0xFFFFFFFF] * part.shader_engines for _ in engines]
    words = memoryview(mask).cast("I")
    limit = min(32 * len(words), sum(map(sum, engines)))
    return [_registers_of_xcc(words, limit, xcc, len(engines), active) for xcc, active in enumerate(engines)]


def _registers_of_xcc(words: memoryview, limit: int, xcc: int, stride: int, active: tuple[int, ...]) -> list[int]:
    enable = [0] * len(active)
    bit = xcc
    for cu in range(REGISTER_CUS):
        for engine, count in enumerate(active):
            if count <= cu:
                continue
            if words[bit // 32] >> bit % 32 & 1:
                enable[engine] |= 1 << cu
            bit += stride
            if bit >= limit:
                return enable
    return enable


def decode(mask: bytes | None, part: Gpu) -> list[tuple[int, int, int]]:
    """The enabled CUs (XCC, shader engine, CU of the engine), in the order in which workgroups are to be dealt to them.

    XCCs take turns; each XCC's shader engines take turns.  An XCC may be missing: on hardware, the workgroups that are
    its share would wait for ever.
    """
    order = []
    for xcc, (enable, active) in enumerate(zip(registers(mask, part), part.active_cus, strict=True)):
        order.append(
            [
                (xcc, engine, cu)
                for cu in range(REGISTER_CUS)
                for engine, count in enumerate(active)
                if cu < count and enable[engine] >> cu & 1
            ]
        )
    return [cu for turn in zip_longest(*order) for cu in turn if cu is not None]
