"""What the collective sweep measures: operations, by what, how launched, of which sizes, over how many GPUs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hsakit.collectives.engines import ORDERS
from hsakit.collectives.operation import ITEMSIZE, OPERATIONS, REDUCTIONS, Operation
from hsakit.ffi.errors import InvalidArgument
from hsakit.sweep.sizes import counted, format_size

OPS = ("all-gather", "all-to-all")  # by default: those of the paper
ENGINES = "engines"
KERNELS = {"kernels-direct": "direct", "kernels-ring": "ring"}  # and their algorithms
IMPLEMENTATIONS = (ENGINES, *KERNELS)
LAUNCHES = ("host", "gated")
PLACES = ("out", "in")
SIZES = "4K:1G:x4,1M+13"
PLAYED_SIZES = "4K:16M:x4,1M+13"  # where a software node executes every byte
QUICK_SIZES = "1000,64K"


@dataclass(frozen=True)
class Point:
    """An operation by one implementation. ``workgroups`` (of a rank) and ``cus`` (of each GPU) are those of kernels,
    ``split`` the pieces of a transfer by engines, ``order`` that of their submission; None leaves them to the
    implementation."""

    operation: Operation
    implementation: str
    launch: str
    workgroups: int | None = None
    cus: int | None = None
    split: int | None = None
    order: str | None = None

    @property
    def by(self) -> str:
        """The implementation, and what was chosen of it."""
        chosen = (("workgroup", self.workgroups), ("CU", self.cus), ("piece", self.split))
        numbers = [counted(n, what) for what, n in chosen if n is not None]
        return ", ".join([self.implementation, *numbers, *([self.order] if self.order else [])])

    def __str__(self) -> str:
        return f"{self.operation}, by {self.by}, {self.launch}"


@dataclass(frozen=True)
class Selection:
    """What to sweep. sizes: bytes of the larger of what a rank sends and receives, that by which algbw counts. gpus:
    how many. places: whether results lie in buffers of their own (``out``) or ``in`` those of what is sent."""

    sizes: Sequence[int]
    gpus: Sequence[int]
    ops: Sequence[str] = OPS
    implementations: Sequence[str] = IMPLEMENTATIONS
    launches: Sequence[str] = LAUNCHES
    places: Sequence[str] = PLACES[:1]
    dtype: str = "bf16"
    workgroups: Sequence[int] = ()
    cus: Sequence[int] = ()
    splits: Sequence[int] = ()
    orders: Sequence[str] = ()


def plan(selection: Selection) -> list[Point]:
    """The points in the order to run them, all of one size in a row. InvalidArgument for what there is not."""
    for what, given, valid in (
        ("operation", selection.ops, OPERATIONS),
        ("implementation", selection.implementations, IMPLEMENTATIONS),
        ("launch", selection.launches, LAUNCHES),
        ("order", selection.orders, ORDERS),
        ("place", selection.places, PLACES),
        ("dtype", [selection.dtype], ITEMSIZE),
    ):
        for name in given:
            if name not in valid:
                raise InvalidArgument(f"{what} {name!r}: valid are {', '.join(valid)}")
    for n in selection.gpus:
        if n < 2:
            raise InvalidArgument("a collective over 1 GPU moves nothing: 2 or more")
    kernels = [name for name in selection.implementations if name != ENGINES]
    for option, numbers, there in (
        ("workgroups", selection.workgroups, kernels),
        ("CUs", selection.cus, kernels),
        ("pieces", selection.splits, ENGINES in selection.implementations),
        ("orders", selection.orders, ENGINES in selection.implementations),
    ):
        if numbers and not there:
            chosen = ", ".join(selection.implementations)
            raise InvalidArgument(f"{option} are chosen, and no implementation that has them: {chosen}")
    points = [
        Point(operation_of(op, ranks, size, place == "in", selection.dtype), implementation, launch, *chosen)
        for op in selection.ops
        for ranks in selection.gpus
        for place in selection.places
        for size in selection.sizes
        for launch in selection.launches
        for implementation in selection.implementations
        for chosen in _choices(implementation, selection)
        if launch == "host" or chosen[-1] != "stepwise"  # which waits for copies that the gate holds
    ]
    return list(dict.fromkeys(points))


def _choices(implementation: str, selection: Selection) -> list[tuple]:
    """Of workgroups, CUs, pieces, and orders."""
    if implementation == ENGINES:
        chosen = itertools.product(selection.splits or (None,), selection.orders or (None,))
        return [(None, None, pieces, order) for pieces, order in chosen]
    return [(w, c, None, None) for w, c in itertools.product(selection.workgroups or (None,), selection.cus or (None,))]


def operation_of(name: str, ranks: int, size: int, in_place: bool, dtype: str) -> Operation:
    """An operation of about that size: its blocks are whole bytes, or elements, and at least one."""
    share = 1 if name in ("broadcast", "all-reduce") else ranks
    item = ITEMSIZE[dtype] if name in REDUCTIONS else 1
    block = max(size // share // item, 1) * item
    if name == "all-to-all-v":
        return Operation(name, ranks, counts=_uneven(ranks, block), in_place=in_place)
    if name in REDUCTIONS:
        return Operation(name, ranks, block, dtype=dtype, in_place=in_place)
    return Operation(name, ranks, block, in_place=in_place)


def resized(point: Point, size: int) -> Point:
    """The same with about so many bytes."""
    was = point.operation
    return replace(point, operation=operation_of(was.name, was.ranks, size, was.in_place, was.dtype))


def _uneven(ranks: int, block: int) -> tuple[tuple[int, ...], ...]:
    """Counts from nothing to twice the block, that average the block in every row and every column."""
    return tuple(tuple(2 * block * ((s + d) % ranks) // (ranks - 1) for d in range(ranks)) for s in range(ranks))


def footprint(operation: Operation) -> int:
    """Bytes of the buffers of all ranks, with scratch memory at its most."""
    ranks = range(operation.ranks)
    buffers = sum(operation.buffer_bytes(rank, name) for rank in ranks for name in ("send", "recv"))
    scratch = operation.reduces or operation.in_place and operation.name.startswith("all-to-all")
    return buffers + (sum(map(operation.sent, ranks)) if scratch else 0)


def describe(points: Sequence[Point]) -> str:
    """One line about a plan."""
    ops = dict.fromkeys(point.operation.name for point in points)
    gpus = dict.fromkeys(str(point.operation.ranks) for point in points)
    by = dict.fromkeys(point.by for point in points)
    sizes = [point.operation.size for point in points]
    return (
        f"{counted(len(points), 'point')}: {', '.join(ops)} over {', '.join(gpus)} GPUs, by "
        f"{'; '.join(by)}, {format_size(min(sizes))} to {format_size(max(sizes))}"
    )
