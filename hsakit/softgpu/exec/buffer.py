"""Buffer loads and stores (ISA guide, "MUBUF"): of scratch, as gfx90a's compiler uses them, and of raw memory, as the
matrix products of rocBLAS do.

The four SGPRs of scratch's buffer come from the dispatch (LLVM AMDGPU usage, "private segment buffer"), which begins
the scratch of every wave at 0.  The buffer interleaves its lanes, a dword each, so the scalar offset, which is added
behind that, counts every lane's bytes; the others count those of one lane.

A raw buffer has a base, no stride, and a size.  A lane whose offset, without the scalar one, is not below the size less
the scalar one is out of range: it loads 0 and stores nothing, each dword by itself.
"""

from __future__ import annotations

import numpy as np

from .decode import Instruction
from .lanes import active, gather_registers, scatter_registers
from .operands import scalar, vector
from .program import IllegalInstruction, only, op
from .scratch import HINTS, LOADS, STORES, scratch_load, scratch_store
from .state import LANES
from .vector_memory import beyond_gpu

U32 = np.uint32
# What a dispatch puts into the SGPRs of scratch's buffer: base 0, swizzled; no limit; lanes added, 64 to a stride.
SCRATCH_BUFFER = (0, 1 << 31, 0xFFFFFFFF, 1 << 23 | 3 << 21)


_STRIDE = 0xBFFF0000  # of the second word: the stride, and whether lanes are interleaved
_ADD_LANES = 1 << 23  # of the fourth


class _Buffer:
    """What an instruction's lanes access."""

    def __init__(self, instruction: Instruction, address, buffer, base):
        only(instruction, "offen", "offset", *HINTS)
        self._text, self._buffer = instruction.text, buffer
        self._add = instruction.modifiers.get("offset", 0)
        self._signed, self._unsigned = (
            vector(address, kind) if "offen" in instruction.modifiers else None for kind in ("i32", "u32")
        )
        self._start, self._begin = scalar(base, "i32"), scalar(base, "u32")

    def words(self, g) -> list[np.ndarray] | None:
        """The descriptor's, of each wave; None for scratch."""
        words = [np.broadcast_to(np.asarray(g.s(self._buffer.index + i)), (g.n,)) for i in range(4)]
        if all((word == expected).all() for word, expected in zip(words, SCRATCH_BUFFER)):
            return None
        if (words[1] & U32(_STRIDE)).any() or (words[3] & U32(_ADD_LANES)).any():
            raise IllegalInstruction(f"{self._text}: of buffers only scratch and raw ones are implemented")
        return words

    def scratch(self, g) -> np.ndarray:
        """Byte offsets in the scratch of each active lane."""
        total = np.zeros((g.n, LANES), np.int64)
        total += np.asarray(self._start(g)).reshape(-1, 1) // LANES + self._add
        if self._signed is not None:
            total += self._signed(g)
        return active(g, total)

    def raw(self, g, words) -> tuple[np.ndarray, np.ndarray]:
        """Of each active lane the address, and how many bytes from there on are in range."""
        offset = np.full((g.n, LANES), self._add, np.int64)
        if self._unsigned is not None:
            offset += self._unsigned(g)
        begin = np.broadcast_to(np.asarray(self._begin(g)), (g.n,)).astype(np.int64)[:, None]
        first = words[0].astype(np.int64) | (words[1] & U32(0xFFFF)).astype(np.int64) << 32
        left = words[2].astype(np.int64)[:, None] - begin - offset
        return active(g, first[:, None] + begin + offset).astype(np.uint64), active(g, left)


def _raw_load(g, at: np.ndarray, left: np.ndarray, nbytes: int) -> np.ndarray:
    out = np.zeros((len(at), max(nbytes // 4, 1)), U32)
    whole = left >= nbytes
    if whole.any():
        out[whole] = g.w.memory.load(at[whole], nbytes)
    for word in range(out.shape[1]):
        some = ~whole & (left >= min(nbytes, 4) + 4 * word)
        if some.any():
            out[some, word] = g.w.memory.load(at[some] + np.uint64(4 * word), 4)[:, 0]
    return out


def _raw_store(g, at: np.ndarray, left: np.ndarray, values: np.ndarray, nbytes: int) -> None:
    whole = left >= nbytes
    if whole.any():
        g.w.memory.store(at[whole], values[whole], nbytes)
    for word in range(values.shape[1]):
        some = ~whole & (left >= min(nbytes, 4) + 4 * word)
        if some.any():
            g.w.memory.store(at[some] + np.uint64(4 * word), values[some, word : word + 1], 4)


@op(*(f"buffer_load_{kind}" for kind in LOADS))
def load(instruction: Instruction):
    nbytes, how = LOADS[instruction.name.removeprefix("buffer_load_")]
    target, *where = instruction.operands
    buffer = _Buffer(instruction, *where)
    past_caches = beyond_gpu(instruction)

    def step(g):
        if not g.lanes.any():
            return
        words = buffer.words(g)
        if words is None:
            loaded = scratch_load(g, buffer.scratch(g), nbytes)
        else:
            g.w.memory.past_caches = past_caches
            at, left = buffer.raw(g, words)
            loaded = _raw_load(g, at, left, nbytes)
            if g.w.trace is not None:
                g.w.trace.note(g, at, nbytes, False)
        scatter_registers(g, target, loaded, how)

    return step


@op(*(f"buffer_store_{kind}" for kind in STORES))
def store(instruction: Instruction):
    nbytes, shift = STORES[instruction.name.removeprefix("buffer_store_")]
    data, *where = instruction.operands
    buffer = _Buffer(instruction, *where)
    past_caches = beyond_gpu(instruction)

    def step(g):
        if not g.lanes.any():
            return
        values = gather_registers(g, data, max(nbytes // 4, 1)) >> U32(shift)
        words = buffer.words(g)
        if words is None:
            scratch_store(g, buffer.scratch(g), values, nbytes)
            return
        g.w.memory.past_caches = past_caches
        at, left = buffer.raw(g, words)
        _raw_store(g, at, left, values, nbytes)
        g.w.work(g)
        if g.w.trace is not None:
            g.w.trace.note(g, at, nbytes, True)

    return step
