"""The memory of a sweep: one source and one destination buffer an end, kept from point to point within a budget.

A source holds its end's pattern and is written once. Destinations are poisoned and read back through the host's mapping
while they are small or the host's own, else through a pinned host buffer and an engine: a host reads a GPU's memory
over the bus a few bytes at a time, if it may at all.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from hsakit.ffi.errors import InvalidArgument
from hsakit.hsa import Buffer, BufferSlice
from hsakit.node import Node
from hsakit.pattern import Pattern
from hsakit.sweep.layout import SOURCE, Layout
from hsakit.sweep.plan import HOST, End
from hsakit.verify import poison

_DIRECT = 128 << 10  # bytes that a host reads over the bus as soon as an engine brings them
_SMALLEST = 1 << 20
_STAGE = ("stage", HOST)


class Buffers:
    def __init__(self, node: Node, seed: int, budget: int, deadline: float):
        self._node = node
        self._seed = seed
        self._budget = budget
        self._deadline = deadline
        self._held: OrderedDict[tuple[str, End], Buffer] = OrderedDict()  # the one used last is last

    def pattern(self, end: End) -> Pattern:
        """The pattern of an end: a GPU's rank is its index, the host's is the number of GPUs."""
        return Pattern(self._seed, end if isinstance(end, int) else len(self._node.gpus))

    def prepare(self, layout: Layout) -> None:
        """Have every buffer of a layout, sources filled; buffers not used lately go when the budget is short."""
        if layout.footprint > self._budget:
            raise InvalidArgument(f"{layout.footprint} bytes of buffers, and {self._budget} are allowed")
        wanted = {key: max(nbytes, _SMALLEST) for key, nbytes in (layout.capacity | {_STAGE: layout.stage}).items()}
        for key in wanted:
            if key in self._held:
                self._held.move_to_end(key)
        missing = [key for key, nbytes in wanted.items() if key not in self._held or self._held[key].nbytes < nbytes]
        self.forget(missing)
        more = sum(wanted[key] for key in missing)
        while self._held and self.nbytes + more > self._budget:
            oldest = next(iter(self._held))
            self.forget([oldest])
            if oldest in wanted:  # it was larger than this layout needs
                missing.append(oldest)
                more += wanted[oldest]
        for key in sorted(missing, key=lambda key: key[0] == SOURCE):  # the stage is there before a source is filled
            self._held[key] = self._allocate(key[1], wanted[key])
            if key[0] == SOURCE:
                self._fill(key)

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._held.values())

    def piece(self, role: str, end: End, offset: int, nbytes: int) -> BufferSlice:
        return self._held[role, end][offset : offset + nbytes]

    def poison(self, end: End, piece: BufferSlice, pattern: Pattern, offset: int) -> None:
        """Make every byte of a piece of an end's memory differ from `pattern` at `offset`."""
        view, staged = self._window(end, piece)
        poison(view, pattern, offset)
        if staged is not None:
            self._move(end, piece, staged)

    def fetch(self, end: End, piece: BufferSlice) -> np.ndarray:
        """The bytes of a piece, valid until the next call."""
        view, staged = self._window(end, piece)
        if staged is not None:
            self._move(end, staged, piece)
        return view

    def forget(self, keys) -> None:
        """Close buffers; one that a copy still uses lives until that copy is done."""
        for key in list(keys):
            buffer = self._held.pop(key, None)
            if buffer is not None:
                buffer.close()

    def close(self) -> None:
        self.forget(self._held)

    def _allocate(self, end: End, nbytes: int) -> Buffer:
        agents = [self._node.cpus[0], *(gpu.agent for gpu in self._node.gpus)]
        pool = self._node.gpus[end].agent.pool("coarse") if isinstance(end, int) else agents[0].pool("fine")
        return pool.allocate(nbytes, access=[agent for agent in agents if pool.reachable_by(agent)])

    def _fill(self, key: tuple[str, End]) -> None:
        buffer, end = self._held[key], key[1]
        view, staged = self._window(end, buffer[:])
        self.pattern(end).fill(view)
        if staged is not None:
            self._move(end, buffer[:], staged)

    def _window(self, end: End, piece: BufferSlice) -> tuple[np.ndarray, BufferSlice | None]:
        """A view to read or write a piece by, and the staging memory it shows if that is not the piece itself."""
        if end == HOST or (piece.host_accessible and piece.nbytes <= _DIRECT):
            return piece.view(), None
        staged = self._held[_STAGE][: piece.nbytes]
        return staged.view(), staged

    def _move(self, end: End, dst: BufferSlice, src: BufferSlice) -> None:
        gpu = self._node.gpus[int(end)].agent
        gpu.copy_engines[0].copy(dst, src).wait(deadline=self._deadline)
