"""How much work a check does: as much as hardware needs to show what it can, or little."""

from __future__ import annotations

from dataclasses import dataclass, replace

KIB, MIB = 1 << 10, 1 << 20
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Sizes:
    """Bytes. ``products`` are the m, n, k of one bound by computing and of one bound by memory."""

    by_size: tuple[int, ...]
    """copies over one link"""
    copy: int
    """of one engine among others"""
    few: int
    """by few workgroups"""
    hbm: int
    """by all CUs: more than any cache holds"""
    beside: int
    """copies that outlast the first product"""
    block: int
    """of a collective, from each rank to each"""
    products: tuple[Shape, Shape] | None


LARGE = Sizes(
    by_size=(KIB, 64 * KIB, MIB, 32 * MIB, 256 * MIB),
    copy=64 * MIB,
    few=16 * MIB,
    hbm=512 * MIB,
    beside=256 * MIB,
    block=16 * MIB,
    products=((8192, 8192, 8192), (16384, 57344, 128)),
)
MODELLED = replace(LARGE, block=4 * MIB)
"""where large work is sampled, and collectives less so than copies"""
SMALL = Sizes(
    by_size=(KIB, 64 * KIB, MIB, 32 * MIB),
    copy=8 * MIB,
    few=2 * MIB,
    hbm=48 * MIB,
    beside=0,
    block=2 * MIB,
    products=None,
)
