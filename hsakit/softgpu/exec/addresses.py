"""Where the lanes of a global or flat access point to: each of them, or in one piece for a whole wave."""

from __future__ import annotations

import numpy as np

from .decode import Instruction, Operand
from .operands import scalar
from .state import LANES

U32, U64 = np.uint32, np.uint64


class Address:
    """Vector address (a pair of registers), or scalar base + vector offset (one); and the immediate offset."""

    def __init__(self, instruction: Instruction, vector: Operand, base: Operand | None):
        self._add = U64(instruction.modifiers.get("offset", 0) & (1 << 64) - 1)
        self._index = vector.index
        self._base = None if base is None or base.value == "off" else scalar(base, "u64")

    def lanes(self, g) -> np.ndarray:
        """uint64 [n, 64]."""
        if self._base is None:
            at = g.v64(self._index)
            return at + self._add if self._add else at
        # the vector offset has no sign (ISA guide, "Global addressing with SGPR base")
        return (self._base(g) + self._add)[:, None] + g.v(self._index)

    def waves(self, g, nbytes: int) -> np.ndarray | None:
        """uint64 [n]: where each wave's bytes begin, if all lanes are active and each one's ``nbytes`` follow those of
        the lane before, as copies do; else None."""
        if not g.full:
            return None
        low = g.v(self._index)
        first = low[:, 0]
        if int(low[0, 1]) - int(first[0]) != nbytes or int(first.max()) > (1 << 32) - LANES * nbytes:
            return None
        if not _progress(low, nbytes):
            return None
        if self._base is not None:
            return self._base(g) + self._add + first
        high = g.v(self._index + 1)
        if not _progress(high, 0):
            return None
        return (high[:, 0].astype(U64) << U64(32)) + first + self._add


def _progress(register: np.ndarray, step: int) -> bool:
    """Whether it grows by ``step`` from lane to lane of every wave."""
    flat = register.reshape(-1)
    right = flat[1:] - flat[:-1] == U32(step)
    right[LANES - 1 :: LANES] = True  # from one wave to the next
    return bool(right.all())
