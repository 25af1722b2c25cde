"""Which CU the n-th workgroup of a dispatch goes to: XCCs in turn, and in each XCC its usable CUs in turn."""

from __future__ import annotations

from collections.abc import Callable

from ..node import Gpu

Cu = tuple[int, int, int]  # XCC, shader engine, CU of it


def usable(part: Gpu, mask: bytes | None) -> list[Cu]:
    """The CUs that a queue's mask (as the driver got it) allows; None allows all."""
    cus = [
        (xcc, j % part.shader_engines, j // part.shader_engines) for j in range(part.cus) for xcc in range(part.xccs)
    ]
    if mask is None:
        return cus
    bits = int.from_bytes(mask, "little")
    return [cu for i, cu in enumerate(cus) if bits >> i & 1]


def round_robin(cus: list[Cu]) -> Callable[[int], Cu]:
    """``cus``: the usable ones, in the order in which an XCC's dispatcher takes them."""
    by_xcc: dict[int, list[Cu]] = {}
    for cu in cus:
        by_xcc.setdefault(cu[0], []).append(cu)
    xccs = [by_xcc[x] for x in sorted(by_xcc)]

    def place(n: int) -> Cu:
        turn, which = divmod(n, len(xccs))
        own = xccs[which]
        return own[turn % len(own)]

    return place
