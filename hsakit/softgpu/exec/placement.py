"""Which CUs a dispatch may go to, in the order in which workgroups are dealt to them."""

from __future__ import annotations

from typing import NamedTuple

from ..node import Gpu
from .cus import decode


class Placement(NamedTuple):
    cus: list[list[tuple[int, int]]]
    """of each XCC, its CUs (shader engine, CU of it): the i-th is the i-th to be dealt to"""
    allowed: list[int]
    """of each XCC, those that the queue's mask leaves, a bit each"""


def placement(part: Gpu, mask: bytes | None) -> Placement | None:
    """For a queue with this mask (as the driver got it); None if an XCC would get workgroups that it has no CU for:
    every XCC gets its share, whatever the mask leaves it."""
    cus: list[list[tuple[int, int]]] = [[] for _ in range(part.xccs)]
    for xcc, engine, cu in decode(None, part):
        cus[xcc].append((engine, cu))
    allowed = [0] * part.xccs
    for xcc, engine, cu in decode(mask, part):
        allowed[xcc] |= 1 << cus[xcc].index((engine, cu))
    return Placement(cus, allowed) if all(allowed) else None
