"""Hardware registers and clocks, as a wave reads and sets them (ISA guide, "SOPK" and "SMEM": S_GETREG, S_SETREG,
S_MEMREALTIME)."""

from __future__ import annotations

import numpy as np

from .decode import Instruction
from .operands import scalar, write_scalar
from .program import IllegalInstruction, op

U32 = np.uint32


def _hwreg(instruction: Instruction, o) -> tuple[str, int, int]:
    inside = [part.strip() for part in str(o.value)[len("hwreg(") : -1].split(",")]
    offset, width = (int(inside[1]), int(inside[2])) if len(inside) == 3 else (0, 32)
    return inside[0], offset, width


@op("s_getreg_b32")
def s_getreg(instruction):
    name, offset, width = _hwreg(instruction, instruction.operands[1])
    registers = {
        "HW_REG_MODE": lambda w: w.mode,
        "HW_REG_HW_ID": lambda w: w.hw_id,
        "HW_REG_XCC_ID": lambda w: w.xcc_id,
        "HW_REG_TRAPSTS": lambda w: np.zeros(w.n, U32),
    }
    if name not in registers:
        raise IllegalInstruction(f"{instruction.text}: register {name} is not modelled")
    read, write = registers[name], write_scalar(instruction.operands[0], "u32")
    mask = U32((1 << width) - 1)
    return lambda g: write(g, read(g.w)[g.sel] >> U32(offset) & mask)


@op("s_setreg_b32", "s_setreg_imm32_b32")
def s_setreg(instruction):
    name, offset, width = _hwreg(instruction, instruction.operands[0])
    if name != "HW_REG_MODE":
        raise IllegalInstruction(f"{instruction.text}: register {name} is not modelled")
    source, mask = scalar(instruction.operands[1], "u32"), (1 << width) - 1

    def step(g):
        kept = g.w.mode[g.sel] & U32(~(mask << offset) & 0xFFFFFFFF)
        g.set_mode(kept | (source(g) & U32(mask)) << U32(offset))

    return step


@op("s_memrealtime", "s_memtime")
def s_memrealtime(instruction):
    index = instruction.operands[0].index
    return lambda g: g.set_s64(index, np.full(g.n, g.w.clock(), np.uint64))
