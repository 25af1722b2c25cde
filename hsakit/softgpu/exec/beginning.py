"""How workgroups begin, in a sampled execution: what they do up to where they first meet others is executed once.

A kernel that hands over by flags moves its bytes first, and then looks at its flags: only the second is different in
each run.  So of a long beginning it is kept in what state it left the waves, and what it cost.  Waves that begin alike,
with the same workgroups, registers and scalar loads, are put into that state; what they would have stored stays as it
was.

It is executed each time where it touches the host's memory, through which bytes are carried; where it stores nothing,
for then it searches or compares; and where it looks at what is never the same, such as where it runs.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .batch import DONE, STOP
from .sampling import MEETS, is_large
from .signature import read
from .state import join64

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..memory import AddressSpace
    from .batch import Batch
    from .memory import Read
    from .program import Program
    from .state import Waves
    from .tally import Count

PACKET = 64  # bytes of a dispatch packet
NBYTES = 256 << 20  # of what is kept, at most
REGISTERS, MEMORY = ("sgpr", "vgpr", "acc", "scc", "pc", "status", "lanes", "mode"), ("lds", "scratch")


class Beginning(NamedTuple):
    """``packet``: the dispatch packet's address, which is another in each run."""

    packet: int
    found: list[tuple[int, bytes]]
    """by scalar loads, at these addresses"""
    executed: Count
    state: dict[str, np.ndarray]
    outcome: str


class Beginnings:
    """Those of all kernels, by :func:`key`."""

    def __init__(self, space: AddressSpace) -> None:
        self._space = space
        self._kept: dict[bytes, Beginning] = {}
        self._nbytes = 0

    def recall(self, key: bytes, gpu: int, batch: Batch, packet: int) -> Count | None:
        """What the beginning costs, if ``batch`` is behind it now."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        for at, found in kept.found:
            inside = 0 <= at - kept.packet < PACKET
            if read(self._space, gpu, at - kept.packet + packet if inside else at, len(found)) != found:
                return None
        for name, values in kept.state.items():
            getattr(batch.waves, name)[...] = values
        _point(batch.waves.sgpr, np.uint64(kept.packet), np.uint64(packet))
        batch.outcome = kept.outcome
        return kept.executed

    def keep(self, key: bytes, batch: Batch, packet: int, count: Count, of: int) -> None:
        """``batch`` has just come to the end of its beginning, where ``count`` was executed.  ``of``: workgroups of the
        dispatch."""
        waves, reads = batch.waves, batch.waves.memory.reads
        if batch.outcome not in (DONE, STOP) or not any(count.stores.values()):
            return
        found = None if reads is None else _ranges(reads)
        if found is None or not is_large(count, of / len(batch.numbers)):
            return
        state = {name: getattr(waves, name).copy() for name in REGISTERS}
        for name in MEMORY:
            values = getattr(waves, name)
            if values is not None and values.any():  # they begin as zeros, and often stay so
                state[name] = values.copy()
        nbytes = sum(values.nbytes for values in state.values())
        if self._nbytes + nbytes > NBYTES:
            self._kept.clear()
            self._nbytes = 0
        self._nbytes += nbytes
        self._kept[key] = Beginning(packet, found, count, state, batch.outcome)


def key(dispatch: bytes, numbers: list[int], waves: Waves, registers: int, packet_at: int | None) -> bytes:
    """``numbers``: the workgroups; ``registers``: how many scalar ones are set; ``packet_at``: those with the packet's
    address, which do not matter."""
    values = waves.sgpr[:registers].copy()
    if packet_at is not None:
        values[packet_at : packet_at + 2] = 0
    text = hashlib.blake2b(dispatch, digest_size=16)
    text.update(repr(numbers).encode())
    text.update(values.data)
    return text.digest()


def same_each_time(program: Program, executed: Iterable[int]) -> bool:
    """Whether none of these instructions looks at where it runs, or at others."""
    return not any(MEETS.search(program.entry(pc).instruction.name) for pc in executed)


def _ranges(reads: list[Read]) -> list[tuple[int, bytes]] | None:
    """What was found, by address, in as few pieces as there are; None where a word was two things at two times."""
    words: dict[int, int] = {}
    for addresses, values in reads:
        for address, some in zip(addresses.tolist(), values.tolist()):
            for i, word in enumerate(some):
                if words.setdefault(address + 4 * i, word) != word:
                    return None
    found: list[tuple[int, bytes]] = []
    for address, word in sorted(words.items()):
        if found and address == found[-1][0] + len(found[-1][1]):
            address, before = found.pop()
        else:
            before = b""
        found.append((address, before + word.to_bytes(4, "little")))
    return found


def _point(sgpr: np.ndarray, before: np.uint64, now: np.uint64) -> None:
    """Let pairs of registers that point into the packet do so where it is now."""
    offsets = join64(sgpr[:-1:2], sgpr[1::2]) - before
    for pair, wave in zip(*np.nonzero(offsets < np.uint64(PACKET))):
        address = int(offsets[pair, wave] + now)
        sgpr[2 * pair, wave], sgpr[2 * pair + 1, wave] = address & 0xFFFFFFFF, address >> 32
