"""Which CU the n-th workgroup of a dispatch goes to: XCCs in turn, and in each XCC its enabled CUs in turn."""

from __future__ import annotations

from collections.abc import Callable

from ..node import Gpu
from .cus import decode

Cu = tuple[int, int, int]  # XCC, shader engine, CU of it


def placement(part: Gpu, mask: bytes | None) -> Callable[[int], Cu] | None:
    """The dealer for a queue with this mask (as the driver got it), or None if an XCC would get workgroups that it has
    no CU for: every XCC gets its share, whatever the mask leaves it."""
    by_xcc: list[list[Cu]] = [[] for _ in range(part.xccs)]
    for cu in decode(mask, part):
        by_xcc[cu[0]].append(cu)
    if not all(by_xcc):
        return None

    def place(n: int) -> Cu:
        turn, xcc = divmod(n, part.xccs)
        own = by_xcc[xcc]
        return own[turn % len(own)]

    return place
