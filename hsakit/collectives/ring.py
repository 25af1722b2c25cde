"""How bytes travel in a ring: every rank sends to the next one only.

All ranks go through the same number of steps; in each a rank handles one block at most. What a rank sends in step s the
next one receives in step s + 1: that is what keeps ranks with two slots each from waiting for each other for ever
(``kernels_src/ring.hip``). A rank writes its own buffers only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hsakit.collectives.operation import Block, Operation, Where
from hsakit.collectives.plan import parts_of_sum


class Hop(NamedTuple):
    """What a rank does with one block in one step: takes ``nbytes`` from the previous rank (``receive``), or from its
    own ``src``, or the sum of both; and puts them to ``out``, or sends them on, or both."""

    step: int
    rank: int
    nbytes: int
    receive: bool
    send: bool
    src: Where | None
    out: Where | None
    block: Block

    def __str__(self) -> str:
        given = [str(self.src)] if self.src else []
        taken = " + ".join([*given, "what it is sent"] if self.receive else given)
        goes = [str(self.out)] if self.out else []
        return f"{self.nbytes} B {taken} -> {' and '.join([*goes, 'the next'] if self.send else goes)}"


def ring(operation: Operation) -> tuple[tuple[Hop, ...], ...]:
    """By rank: its hops, in the order of their steps. What an operation in place needs before it is sent on is not
    overwritten: all-to-all goes through scratch memory, at the offsets of the result."""
    hops: list[list[Hop]] = [[] for _ in range(operation.ranks)]
    for hop in _hops(operation):
        if hop.src == hop.out and not hop.receive:  # it is there already
            hop = hop._replace(out=None)
        if hop.nbytes and (hop.out or hop.send):
            hops[hop.rank].append(hop)
    return tuple(tuple(sorted(mine, key=lambda hop: hop.step)) for mine in hops)


def through_scratch(operation: Operation) -> bool:
    """Whether results come to scratch memory first, to be copied from there."""
    return operation.in_place and operation.name in ("all-to-all", "all-to-all-v")


def _hops(operation: Operation) -> Iterator[Hop]:
    n = operation.ranks
    if operation.reduces:
        yield from _sums(operation)
        return
    blocks = {(block.src[0], block.dst): block for block in operation.blocks}
    if operation.name in ("all-gather", "broadcast"):  # one journey passes all ranks, and every one keeps a copy
        for (src, dst), block in blocks.items():
            h = (dst - src) % n
            yield _hop(operation, block, h, dst, h, n - 1, keep=True)
        return
    for (src, dst), block in blocks.items():
        k = (dst - src) % n
        # The root scatters to the farthest first. All-to-all has a round for each distance, of k + 1 steps.
        begin = {"scatter": n - 1 - k, "gather": 0}.get(operation.name, k * (k + 1) // 2)
        for h in range(k + 1):
            yield _hop(operation, block, begin + h, (src + h) % n, h, k, keep=h == k)


def _hop(operation: Operation, block: Block, step: int, rank: int, h: int, last: int, keep: bool) -> Hop:
    """Hop ``h`` of ``last`` of a block that moves."""
    src = operation.source(block.src[0], block.src_offset) if h == 0 else None
    out = operation.target(rank, block.dst_offset) if keep else None
    if out and through_scratch(operation):
        out = Where(rank, "scratch", block.dst_offset)
    return Hop(step, rank, block.nbytes, h > 0, h < last, src, out, block)


def _sums(operation: Operation) -> Iterator[Hop]:
    """A part begins at the rank behind the one whose it is, and is complete there; all-reduce sends it round again."""
    n, everybody = operation.ranks, tuple(range(operation.ranks))
    spread = operation.name == "all-reduce"
    for j, (offset, nbytes) in enumerate(parts_of_sum(operation)):
        at = offset if spread else 0  # in the result
        block = Block(everybody, offset, j, at, nbytes)
        for h in range(n):
            rank, complete = (j + 1 + h) % n, h == n - 1
            out = operation.target(rank, at) if complete else None
            send = not complete or spread and n > 1
            yield Hop(h, rank, nbytes, h > 0, send, operation.source(rank, offset), out, block)
        if spread:
            for h in range(1, n):
                rank = (j + h) % n
                out = operation.target(rank, at)
                yield Hop(n - 1 + h, rank, nbytes, True, h < n - 1, None, out, block._replace(dst=rank))
