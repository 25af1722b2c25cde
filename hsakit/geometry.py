"""The shape of a launch: workgroups, work-items of each, and LDS, checked against the kernel and its GPU."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hsakit.ffi.errors import InvalidArgument

if TYPE_CHECKING:
    from hsakit.codeobject import KernelInfo

Extent = int | Sequence[int]  # x, (x, y) or (x, y, z); what is left out is 1


@dataclass(frozen=True)
class Limits:
    """What a GPU can launch. ``grid`` is in work-items an axis, ``lds`` in bytes a workgroup."""

    device: str
    workgroup: int
    workgroup_axes: tuple[int, int, int]
    grid: tuple[int, int, int]
    lds: int


@dataclass(frozen=True)
class Geometry:
    """``grid`` counts workgroups, as HIP has it (an AQL packet counts work-items), ``block`` work-items of each;
    ``lds`` is dynamic LDS in bytes, on top of what the kernel declares."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds: int

    @property
    def items(self) -> tuple[int, ...]:
        """Work-items an axis."""
        return tuple(g * b for g, b in zip(self.grid, self.block))


def check(kernel: KernelInfo, grid: Extent, block: Extent, lds: int, limits: Limits) -> Geometry:
    """The geometry of a launch. InvalidArgument says which limit it breaks."""
    shape = Geometry(_extent(grid, "grid"), _extent(block, "block"), _size(lds))
    items = shape.block[0] * shape.block[1] * shape.block[2]
    for axis, own, limit in zip("xyz", shape.block, limits.workgroup_axes):
        if own > limit:
            raise InvalidArgument(f"block {shape.block}: {limits.device} takes at most {limit} work-items along {axis}")
    largest = min(kernel.max_workgroup_size, limits.workgroup)
    if items > largest:
        whose = kernel.name if kernel.max_workgroup_size <= limits.workgroup else limits.device
        raise InvalidArgument(
            f"block {shape.block} has {items} work-items: {whose} takes workgroups of at most {largest}"
        )
    if kernel.required_workgroup_size and shape.block != kernel.required_workgroup_size:
        raise InvalidArgument(
            f"block {shape.block}: {kernel.name} was compiled for {kernel.required_workgroup_size} and no other"
        )
    for axis, total, limit in zip("xyz", shape.items, limits.grid):
        if total > limit:
            raise InvalidArgument(
                f"grid {shape.grid} of blocks {shape.block} has {total} work-items along {axis}: "
                f"{limits.device} takes at most {limit}"
            )
    if kernel.group_segment_size + shape.lds > limits.lds:
        raise InvalidArgument(
            f"{kernel.group_segment_size + shape.lds} bytes of LDS ({kernel.group_segment_size} that {kernel.name} "
            f"declares and {shape.lds} more): {limits.device} has {limits.lds} a workgroup"
        )
    return shape


def _extent(value: Extent, what: str) -> tuple[int, int, int]:
    try:
        axes = tuple(map(operator.index, value)) if isinstance(value, Sequence) else (operator.index(value),)
    except TypeError:
        axes = ()
    if not 1 <= len(axes) <= 3 or min(axes) < 1:
        counted = "workgroups" if what == "grid" else "work-items"
        raise InvalidArgument(f"{what} {value!r}: x, (x, y) or (x, y, z) {counted}, each at least 1")
    x, y, z = (*axes, 1, 1)[:3]
    return x, y, z


def _size(lds: int) -> int:
    if not isinstance(lds, int) or lds < 0:
        raise InvalidArgument(f"lds {lds!r}: bytes of dynamic LDS, 0 for none")
    return lds
