"""The memory of a sweep: one source and one destination buffer an end, kept from point to point within a budget.

A source holds its end's pattern and is written once. Destinations are poisoned before each run and read back after it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from hsakit.ffi.errors import InvalidArgument
from hsakit.pattern import Pattern
from hsakit.platform import Buffer, Platform, Span
from hsakit.sweep.layout import SOURCE, Layout
from hsakit.sweep.plan import End
from hsakit.verify import poison

_SMALLEST = 1 << 20


class Buffers:
    def __init__(self, node: Platform, seed: int, budget: int, deadline: float):
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
        wanted = {key: max(nbytes, _SMALLEST) for key, nbytes in layout.capacity.items()}
        for key in wanted:
            if key in self._held:
                self._held.move_to_end(key)
        missing = [key for key, nbytes in wanted.items() if key not in self._held or self._held[key].nbytes < nbytes]
        self.forget(missing)
        more = sum(wanted[key] for key in missing)
        while self._held and self.nbytes + more + layout.stage > self._budget:
            oldest = next(iter(self._held))
            self.forget([oldest])
            if oldest in wanted:  # it was larger than this layout needs
                missing.append(oldest)
                more += wanted[oldest]
        for role, end in missing:
            self._held[role, end] = self._allocate(end, wanted[role, end])
            if role == SOURCE:
                self._put(end, self._held[role, end], self.pattern(end).fill)

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for buffer in self._held.values())

    def piece(self, role: str, end: End, offset: int, nbytes: int) -> Span:
        return self._held[role, end][offset : offset + nbytes]

    def poison(self, end: End, piece: Span, pattern: Pattern, offset: int) -> None:
        """Make every byte of a piece of an end's memory differ from `pattern` at `offset`."""
        self._put(end, piece, lambda view: poison(view, pattern, offset))

    def fetch(self, end: End, piece: Span) -> np.ndarray:
        """The bytes of a piece of an end's memory, valid until the next call."""
        return self._node.gpus[end].get(piece, self._deadline) if isinstance(end, int) else piece.view()

    def forget(self, keys) -> None:
        """Close buffers; one that a copy still uses lives until that copy is done."""
        for key in list(keys):
            buffer = self._held.pop(key, None)
            if buffer is not None:
                buffer.close()

    def close(self) -> None:
        self.forget(self._held)

    def _allocate(self, end: End, nbytes: int) -> Buffer:
        return self._node.gpus[end].allocate(nbytes) if isinstance(end, int) else self._node.allocate(nbytes)

    def _put(self, end: End, piece: Span, fill: Callable[[np.ndarray], None]) -> None:
        if isinstance(end, int):
            self._node.gpus[end].put(piece, fill, self._deadline)
        else:
            fill(piece.view())
