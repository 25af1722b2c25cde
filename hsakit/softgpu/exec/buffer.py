"""Buffer loads and stores, as gfx90a's compiler uses them: for scratch only (ISA guide, "MUBUF").

The four SGPRs of such a buffer come from the dispatch (LLVM AMDGPU usage, "private segment buffer"), which begins the
scratch of every wave at 0.  The buffer interleaves its lanes, a dword each, so the scalar offset, which is added behind
that, counts every lane's bytes; the others count those of one lane.
"""

from __future__ import annotations

import numpy as np

from .decode import Instruction
from .lanes import active, gather_registers, scatter_registers
from .operands import scalar, vector
from .program import IllegalInstruction, only, op
from .scratch import HINTS, LOADS, STORES, scratch_load, scratch_store
from .state import LANES

U32 = np.uint32
# What a dispatch puts into the SGPRs of scratch's buffer: base 0, swizzled; no limit; lanes added, 64 to a stride.
SCRATCH_BUFFER = (0, 1 << 31, 0xFFFFFFFF, 1 << 23 | 3 << 21)


def _offset(instruction: Instruction, address, buffer, base):
    """Byte offsets in the scratch of each active lane."""
    only(instruction, "offen", "offset", *HINTS)
    add = instruction.modifiers.get("offset", 0)
    within = vector(address, "i32") if "offen" in instruction.modifiers else None
    start = scalar(base, "i32")

    def read(g):
        words = [g.s(buffer.index + i) for i in range(4)]
        if any((word != expected).any() for word, expected in zip(words, SCRATCH_BUFFER)):
            raise IllegalInstruction(f"{instruction.text}: buffers other than scratch are not implemented")
        total = np.zeros((g.n, LANES), np.int64)
        total += np.asarray(start(g)).reshape(-1, 1) // LANES + add
        if within is not None:
            total += within(g)
        return active(g, total)

    return read


@op(*(f"buffer_load_{kind}" for kind in LOADS))
def load(instruction: Instruction):
    nbytes, how = LOADS[instruction.name.removeprefix("buffer_load_")]
    target, *where = instruction.operands
    at = _offset(instruction, *where)

    def step(g):
        if g.lanes.any():
            scatter_registers(g, target, scratch_load(g, at(g), nbytes), how)

    return step


@op(*(f"buffer_store_{kind}" for kind in STORES))
def store(instruction: Instruction):
    nbytes, shift = STORES[instruction.name.removeprefix("buffer_store_")]
    data, *where = instruction.operands
    at = _offset(instruction, *where)

    def step(g):
        if g.lanes.any():
            scratch_store(g, at(g), gather_registers(g, data, max(nbytes // 4, 1)) >> U32(shift), nbytes)

    return step
