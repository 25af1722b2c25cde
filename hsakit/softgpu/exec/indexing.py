"""Vector registers chosen at run time (ISA guide, "VGPR indexing"): what a private array in registers is compiled to.

Between S_SET_GPR_IDX_ON and _OFF, the low byte of M0 is added to the number of each vector register that bits 12-15 of
M0 select.  There the program counter has a mark (``program.INDEXED``), and instructions are looked up as "indexed ...":
the others know nothing of all this.  Compilers put only moves between the two.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .control import nothing
from .decode import M0, Instruction
from .operands import scalar
from .program import REGISTRY, IllegalInstruction, op
from .state import Group

U32 = np.uint32
INDEX, ENABLES = 0xFF, 0xF000
SRC0, DST = 0x1000, 0x8000
NAMES = {"SRC0": SRC0, "SRC1": 0x2000, "SRC2": 0x4000, "DST": DST}


def _enables(instruction: Instruction) -> int:
    """gpr_idx(SRC0,DST) -> bits of M0."""
    names = str(instruction.operands[-1].value).removeprefix("gpr_idx(").removesuffix(")")
    return sum(NAMES[name] for name in names.split(",") if name)


def _set_m0(g: Group, bits, mask: int) -> None:
    g.set_s(M0, g.s(M0) & U32(~mask & 0xFFFFFFFF) | bits & U32(mask))


@op("s_set_gpr_idx_on", "indexed s_set_gpr_idx_on")
def s_set_gpr_idx_on(instruction: Instruction):
    index, enables = scalar(instruction.operands[0], "u32"), U32(_enables(instruction))
    return lambda g: _set_m0(g, index(g) & U32(INDEX) | enables, INDEX | ENABLES)


@op("s_set_gpr_idx_mode", "indexed s_set_gpr_idx_mode")
def s_set_gpr_idx_mode(instruction: Instruction):
    enables = U32(_enables(instruction))
    return lambda g: _set_m0(g, enables, ENABLES)


@op("s_set_gpr_idx_idx", "indexed s_set_gpr_idx_idx")
def s_set_gpr_idx_idx(instruction: Instruction):
    index = scalar(instruction.operands[0], "u32")
    return lambda g: _set_m0(g, index(g), INDEX)


op("s_set_gpr_idx_off", "indexed s_set_gpr_idx_off", "indexed s_nop")(nothing)


@op("indexed v_mov_b32")
def v_mov(instruction: Instruction):
    made = {}  # by what M0 says: the move between the registers that it chooses

    def step(g):
        choices = g.s(M0) & U32(INDEX | ENABLES)
        values = np.unique(choices).tolist()
        waves = np.arange(g.w.n)[g.sel]
        for value in values:
            if value not in made:
                made[value] = REGISTRY["v_mov_b32"](_moved(instruction, value))
            made[value](g if len(values) == 1 else Group(g.w, waves[choices == value]))

    return step


def _moved(instruction: Instruction, m0: int) -> Instruction:
    operands = []
    for o, enable in zip(instruction.operands, (DST, SRC0)):
        if m0 & enable:
            if o.kind == "a":
                raise IllegalInstruction(f"{instruction.text}: accumulators are not indexed")
            o = replace(o, index=o.index + (m0 & INDEX)) if o.kind == "v" else o
        operands.append(o)
    return replace(instruction, operands=tuple(operands))
