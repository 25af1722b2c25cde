"""How bytes travel in a direct collective: transfers between ranks in the order in which they are submitted, and sums.

Every rank writes straight to every other. What belongs to nobody else (sums, and all-to-all in place) goes through
scratch memory of the receiver first. A plan knows no engine and no kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from hsakit.collectives.operation import ITEMSIZE, Block, Operation, Where

Group = tuple[str, int]  # steps that others wait for together: what it is, and at which rank (-1: at all)


class Transfer(NamedTuple):
    """``nbytes`` from ``src`` to ``dst``, once all steps of the groups ``after`` are complete. The bytes are those of
    ``block``, unless they are sums already."""

    src: Where
    dst: Where
    nbytes: int
    group: Group
    after: tuple[Group, ...] = ()
    block: Block | None = None

    def __str__(self) -> str:
        return f"{self.nbytes} B {self.src} -> {self.dst}"


class Sum(NamedTuple):
    """``dst`` becomes the sum of the ``sources``, element by element, all in memory of the same rank."""

    sources: tuple[Where, ...]
    dst: Where
    nbytes: int
    dtype: str
    group: Group
    after: tuple[Group, ...] = ()

    def __str__(self) -> str:
        return f"{self.nbytes} B {self.dst} = sum of {', '.join(map(str, self.sources))}"


Step = Transfer | Sum


@dataclass(frozen=True)
class Plan:
    """Steps in the order of their submission: none waits for a later one."""

    operation: Operation
    steps: tuple[Step, ...]

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        return tuple(step for step in self.steps if isinstance(step, Transfer))

    @cached_property
    def groups(self) -> dict[Group, tuple[Step, ...]]:
        """The steps of each group, in order."""
        found: dict[Group, list[Step]] = {}
        for step in self.steps:
            found.setdefault(step.group, []).append(step)
        return {group: tuple(steps) for group, steps in found.items()}

    def scratch(self, rank: int) -> int:
        """Bytes of scratch memory that a rank needs."""
        ends = [step.dst.offset + step.nbytes for step in self.steps if step.dst[:2] == (rank, "scratch")]
        return max(ends, default=0)

    def final(self, rank: int) -> tuple[Group, ...]:
        """The groups after which a rank has its result; none if it needs nothing."""
        return tuple(group for group in self.groups if group in (("result", rank), ("sum", rank)))

    def writers(self, where: Where) -> Iterable[Step]:
        """The steps that write a byte, the last of them first."""
        for step in reversed(self.steps):
            dst = step.dst
            if (dst.rank, dst.buffer) == (where.rank, where.buffer) and 0 <= where.offset - dst.offset < step.nbytes:
                yield step


def direct(operation: Operation) -> Plan:
    """The plan in which every rank writes to every other, in as few steps as there can be."""
    if operation.reduces:
        return _reduction(operation)
    if operation.in_place and operation.name in ("all-to-all", "all-to-all-v"):
        return _through_scratch(operation)
    steps = [
        Transfer(*_ends(operation, block), block.nbytes, ("result", block.dst), (), block)
        for block in _fan_out(operation, operation.blocks)
    ]
    return Plan(operation, tuple(steps))


def rank_by_rank(plan: Plan) -> Plan:
    """The same plan with all transfers of a rank before those of the next, but none waits for a later one."""

    def phase(step: Step):
        return type(step), bool(step.after)

    def ranks(step: Step):
        return (step.src.rank if isinstance(step, Transfer) else step.dst.rank), step.dst.rank

    steps = [step for _, together in groupby(plan.steps, phase) for step in sorted(together, key=ranks)]
    return Plan(plan.operation, tuple(steps))


def _ends(operation: Operation, block: Block) -> tuple[Where, Where]:
    return operation.source(block.src[0], block.src_offset), operation.target(block.dst, block.dst_offset)


def _fan_out(operation: Operation, blocks: Iterable[Block]) -> list[Block]:
    """Blocks that have to move, in the order to submit them, so that the engine that starts last does so early: larger
    ones first; one transfer of every rank, then the next of each, all to different peers; what stays within a rank
    needs no link and goes last."""

    def key(block: Block):
        distance = (block.dst - block.src[0]) % operation.ranks
        return distance == 0, -block.nbytes, distance, block.src[0]

    moving = [block for block in blocks if len(set(_ends(operation, block))) == 2]
    return sorted(moving, key=key)


def _through_scratch(operation: Operation) -> Plan:
    """In place a block lies where another one has to go: all of them move to their receivers' scratch memory first."""
    steps: list[Step] = []
    back: list[Step] = []
    out: Group = ("out", -1)
    for block in _fan_out(operation, operation.blocks):
        src, dst = _ends(operation, block)
        there = Where(block.dst, "scratch", block.dst_offset)
        steps.append(Transfer(src, there, block.nbytes, out, (), block))
        back.append(Transfer(there, dst, block.nbytes, ("result", block.dst), (out,), block))
    return Plan(operation, tuple(steps + back))


def parts_of_sum(operation: Operation) -> list[tuple[int, int]]:
    """The part of every rank's vector that each rank adds up: where it begins, and its bytes."""
    n = operation.ranks
    if operation.name == "reduce-scatter":
        return [(rank * operation.nbytes, operation.nbytes) for rank in range(n)]
    item = ITEMSIZE[operation.dtype]
    ends = [rank * (operation.nbytes // item) // n * item for rank in range(n + 1)]
    return [(first, last - first) for first, last in zip(ends, ends[1:])]


def _reduction(operation: Operation) -> Plan:
    """Every rank gets its part of all the others' vectors into scratch memory and sums it; for all-reduce it then sends
    the sum to all."""
    n, parts = operation.ranks, parts_of_sum(operation)
    moves: list[Step] = []
    sums: list[Step] = []
    spread: list[Step] = []
    for distance in range(1, n):
        for src in range(n):
            dst = (src + distance) % n
            offset, nbytes = parts[dst]
            if nbytes:
                block = Block((src,), offset, dst, (distance - 1) * nbytes, nbytes)
                there = Where(dst, "scratch", block.dst_offset)
                moves.append(Transfer(operation.source(src, offset), there, nbytes, ("part", dst), (), block))
    for rank, (offset, nbytes) in enumerate(parts):
        if not nbytes:
            continue
        sources = [operation.source(rank, offset), *(Where(rank, "scratch", k * nbytes) for k in range(n - 1))]
        dst_offset = 0 if operation.name == "reduce-scatter" else offset
        target = operation.target(rank, dst_offset)
        if n == 1:  # nothing to add
            if sources[0] != target:
                moves.append(Transfer(sources[0], target, nbytes, ("result", rank)))
            continue
        sums.append(Sum(tuple(sources), target, nbytes, operation.dtype, ("sum", rank), (("part", rank),)))
    if operation.name == "all-reduce":
        for distance in range(1, n):
            for src in range(n):
                dst = (src + distance) % n
                offset, nbytes = parts[src]
                if nbytes:
                    ends = operation.target(src, offset), operation.target(dst, offset)
                    # Not before dst's own vector has been read where it goes in place: src's sum waited for that.
                    spread.append(Transfer(*ends, nbytes, ("result", dst), (("sum", src),)))
    return Plan(operation, tuple(moves + sums + spread))
