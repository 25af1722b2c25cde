"""Scalar loads: a few dwords a wave from an address in scalar registers (ISA guide, "SMEM")."""

from __future__ import annotations

import numpy as np

from .decode import Instruction
from .memory import LaneFault
from .operands import scalar
from .program import IllegalInstruction, only, op

WORDS = {"dword": 1, "dwordx2": 2, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16}


@op(*(f"s_load_{size}" for size in WORDS))
def s_load(instruction: Instruction):
    only(instruction, "glc", "offset")
    words = WORDS[instruction.name.removeprefix("s_load_")]
    target, base, offset = instruction.operands
    start = scalar(base, "u64")
    if offset.kind == "int":
        add = np.uint64(offset.value & (1 << 64) - 1)
        address = lambda g: start(g) + add  # noqa: E731
    elif offset.kind == "s":
        index, extra = scalar(offset, "u32"), np.uint64(instruction.modifiers.get("offset", 0) & (1 << 64) - 1)
        address = lambda g: start(g) + index(g).astype(np.uint64) + extra  # noqa: E731
    else:
        raise IllegalInstruction(instruction.text)

    def step(g):
        at = address(g) & np.uint64(~3 & (1 << 64) - 1)
        g.w.memory.past_caches = False
        try:
            data = g.w.memory.arguments(at, 4 * words)
        except LaneFault as fault:
            fault.wave, fault.lane = fault.lane, None
            raise
        for i in range(words):
            g.set_s(target.index + i, np.ascontiguousarray(data[:, i]))

    return step
