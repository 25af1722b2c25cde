"""The memory of a sweep: one source and one destination buffer an end, kept from point to point within a budget.

A source holds its end's pattern and is written once. Destinations are poisoned before each run and read back after it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from hsakit import staging
from hsakit.ffi.errors import InvalidArgument
from hsakit.hsa import Buffer, BufferSlice
from hsakit.hsa.memory import Span
from hsakit.node import Node
from hsakit.pattern import Pattern
from hsakit.sweep.layout import SOURCE, Layout
from hsakit.sweep.plan import HOST, End
from hsakit.verify import poison

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
                self._put(self._held[key], self.pattern(key[1]).fill)

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._held.values())

    def piece(self, role: str, end: End, offset: int, nbytes: int) -> BufferSlice:
        return self._held[role, end][offset : offset + nbytes]

    def poison(self, piece: BufferSlice, pattern: Pattern, offset: int) -> None:
        """Make every byte of a piece differ from `pattern` at `offset`."""
        self._put(piece, lambda view: poison(view, pattern, offset))

    def fetch(self, piece: BufferSlice) -> np.ndarray:
        """The bytes of a piece, valid until the next call."""
        return staging.get(piece, self._held[_STAGE], self._deadline)

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

    def _put(self, piece: Span, fill: Callable[[np.ndarray], None]) -> None:
        staging.put(piece, fill, self._held[_STAGE], self._deadline)
