"""What a collective does: the buffers that each rank has, and where every byte of a result comes from.

Implementations decide how bytes travel; that they agree on this is what is verified. Sizes and offsets are in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from numbers import Integral
from typing import NamedTuple

from hsakit.ffi.errors import InvalidArgument

MOVES = ("all-gather", "all-to-all", "all-to-all-v", "broadcast", "scatter", "gather")
REDUCTIONS = ("reduce-scatter", "all-reduce")
OPERATIONS = MOVES + REDUCTIONS
ROOTED = ("broadcast", "scatter", "gather")
ITEMSIZE = {"i32": 4, "f32": 4, "f16": 2, "bf16": 2}  # what can be summed

Counts = tuple[tuple[int, ...], ...]


class Block(NamedTuple):
    """``nbytes`` of the result of rank ``dst``: the bytes from ``src_offset`` on of what rank ``src`` sends, or, where
    several are named, the sum of theirs."""

    src: tuple[int, ...]
    src_offset: int
    dst: int
    dst_offset: int
    nbytes: int


class Where(NamedTuple):
    """A byte of a rank's memory: its buffer is ``send``, ``recv`` or ``scratch``."""

    rank: int
    buffer: str
    offset: int

    def __str__(self) -> str:
        return f"rank {self.rank} {self.buffer}+{self.offset}"


@dataclass(frozen=True)
class Operation:
    """A collective over ``ranks`` GPUs. ``nbytes`` is the size of a block, as everything that is not said to be larger:

    ============== ======================= ======================= ========================================
    name           sent by a rank          received by a rank
    ============== ======================= ======================= ========================================
    all-gather     a block                 ranks blocks            block r is rank r's
    all-to-all     ranks blocks            ranks blocks            block r of rank s becomes block s of rank r
    all-to-all-v   sum of ``counts[r]``    sum of column r         the same, with ``counts[s][r]`` bytes for it
    broadcast      a block (root only)     a block
    scatter        ranks blocks (root)     a block                 block r goes to rank r
    gather         a block                 ranks blocks (root)     block r is rank r's
    reduce-scatter ranks blocks            a block                 rank r gets the sum of all blocks r
    all-reduce     a block                 a block                 the sum of all
    ============== ======================= ======================= ========================================

    Out of place a rank has a buffer ``send`` and a buffer ``recv``. In place it has one, ``recv``, in which lies what
    it sends: where it would be received (all-gather, gather at the root), or the result lies where it was sent from
    (reduce-scatter, scatter at the root), or both begin at 0. Reductions add elements of ``dtype``.
    """

    name: str
    ranks: int
    nbytes: int = 0
    root: int = 0
    counts: Counts | None = None
    dtype: str = "i32"
    in_place: bool = False

    def __post_init__(self):
        if self.name not in OPERATIONS:
            raise InvalidArgument(f"collective {self.name!r} is none of {', '.join(OPERATIONS)}")
        sizes = chain((self.ranks, self.nbytes, self.root), *(self.counts or ()))
        if not all(isinstance(size, Integral) for size in sizes):
            raise InvalidArgument("ranks, sizes in bytes and the root are whole numbers")
        if self.ranks < 1 or self.nbytes < 0:
            raise InvalidArgument(f"{self.ranks} ranks with blocks of {self.nbytes} bytes: at least 1, of 0 or more")
        if not 0 <= self.root < self.ranks or self.root and self.name not in ROOTED:
            raise InvalidArgument(f"root {self.root}: {', '.join(ROOTED)} have one, of ranks 0 to {self.ranks - 1}")
        if (self.counts is not None) != (self.name == "all-to-all-v"):
            raise InvalidArgument("counts are the sizes of all-to-all-v: it needs them, and nothing else has them")
        if self.counts is not None:
            square = len(self.counts) == self.ranks and all(len(row) == self.ranks for row in self.counts)
            if not square or min(map(min, self.counts)) < 0 or self.nbytes:
                raise InvalidArgument(
                    f"counts are {self.ranks} rows, one a sender, of {self.ranks} sizes in bytes; nbytes is left out"
                )
        if self.name in REDUCTIONS:
            if self.dtype not in ITEMSIZE:
                raise InvalidArgument(f"dtype {self.dtype!r}: sums are of {', '.join(ITEMSIZE)}")
            if self.nbytes % ITEMSIZE[self.dtype]:
                raise InvalidArgument(f"{self.nbytes} bytes are no whole number of elements of {self.dtype}")

    def __str__(self) -> str:
        size = f"{sum(map(sum, self.counts))} B in all" if self.counts else f"{self.nbytes} B"
        words = [self.name, size, f"{self.ranks} ranks"]
        if self.name in ROOTED:
            words.append(f"root {self.root}")
        if self.name in REDUCTIONS:
            words.append(self.dtype)
        return ", ".join([*words, "in place" if self.in_place else "out of place"])

    @property
    def reduces(self) -> bool:
        """Whether results are sums."""
        return self.name in REDUCTIONS

    # The rank's buffers

    def sent(self, rank: int) -> int:
        """Bytes that a rank sends, of its own and to itself included."""
        if self.counts is not None:
            return sum(self.counts[rank])
        if self.name in ("all-to-all", "reduce-scatter") or self.name == "scatter" and rank == self.root:
            return self.ranks * self.nbytes
        return 0 if self.name in ("broadcast", "scatter") and rank != self.root else self.nbytes

    def received(self, rank: int) -> int:
        """Bytes of a rank's result."""
        if self.counts is not None:
            return sum(row[rank] for row in self.counts)
        if self.name in ("all-gather", "all-to-all") or self.name == "gather" and rank == self.root:
            return self.ranks * self.nbytes
        return 0 if self.name == "gather" else self.nbytes

    def buffer_bytes(self, rank: int, buffer: str) -> int:
        """The size of a rank's buffer ``send`` or ``recv``."""
        if not self.in_place:
            return self.sent(rank) if buffer == "send" else self.received(rank)
        if buffer == "send":
            return 0
        return max(self._sent_from(rank) + self.sent(rank), self._received_at(rank) + self.received(rank))

    def source(self, rank: int, offset: int) -> Where:
        """Where byte ``offset`` of what a rank sends lies."""
        return Where(rank, "recv", self._sent_from(rank) + offset) if self.in_place else Where(rank, "send", offset)

    def target(self, rank: int, offset: int) -> Where:
        """Where byte ``offset`` of a rank's result lies."""
        return Where(rank, "recv", self._received_at(rank) + offset if self.in_place else offset)

    def _sent_from(self, rank: int) -> int:
        there = self.name == "all-gather" or self.name == "gather" and rank == self.root
        return rank * self.nbytes if there else 0

    def _received_at(self, rank: int) -> int:
        there = self.name == "reduce-scatter" or self.name == "scatter" and rank == self.root
        return rank * self.nbytes if there else 0

    # The bytes

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Where all bytes of all results come from; blocks without bytes are left out."""
        return tuple(block for block in self._blocks() if block.nbytes)

    def _blocks(self) -> Iterator[Block]:
        n, size, root = self.ranks, self.nbytes, self.root
        every = range(n)
        if self.counts is not None:
            rows = [[0, *accumulate(row)] for row in self.counts]
            columns = [[0, *accumulate(column)] for column in zip(*self.counts)]
            for src in every:
                for dst in every:
                    yield Block((src,), rows[src][dst], dst, columns[dst][src], self.counts[src][dst])
        elif self.name == "all-gather":
            yield from (Block((src,), 0, dst, src * size, size) for src in every for dst in every)
        elif self.name == "all-to-all":
            yield from (Block((src,), dst * size, dst, src * size, size) for src in every for dst in every)
        elif self.name == "broadcast":
            yield from (Block((root,), 0, dst, 0, size) for dst in every)
        elif self.name == "scatter":
            yield from (Block((root,), dst * size, dst, 0, size) for dst in every)
        elif self.name == "gather":
            yield from (Block((src,), 0, root, src * size, size) for src in every)
        elif self.name == "reduce-scatter":
            yield from (Block(tuple(every), dst * size, dst, 0, size) for dst in every)
        else:
            yield from (Block(tuple(every), 0, dst, 0, size) for dst in every)

    # Bandwidth

    @property
    def size(self) -> int:
        """The bytes by which algbw is counted, as NCCL's tests do: the larger of what a rank sends and receives; for
        all-to-all-v the most of any rank."""
        return max(max(self.sent(rank), self.received(rank)) for rank in range(self.ranks))

    def algbw(self, seconds: float) -> float:
        """Algorithm bandwidth in bytes a second."""
        return self.size / seconds

    def busbw(self, seconds: float) -> float:
        """Bus bandwidth: what a link would carry if the data went the shortest way (NCCL's doc/PERFORMANCE.md)."""
        n = self.ranks
        factor = {"broadcast": 1.0, "all-reduce": 2 * (n - 1) / n}.get(self.name, (n - 1) / n)
        return self.algbw(seconds) * factor
