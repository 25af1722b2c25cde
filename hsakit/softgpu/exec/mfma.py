"""Matrix instructions: D = A B + C, one small matrix (or several blocks of them) spread over the lanes of a wave.

Layouts (CDNA3 ISA guide, "Matrix arithmetic", and AMD's matrix instruction calculator): with M = N,

* A: lane holds row ``lane % M``; lanes ``lane // M`` share the columns, ``per`` consecutive ones each, or the blocks;
* B: the same with columns and rows exchanged;
* C, D: lane holds column ``lane % N``; its registers go down the rows, four at a time for each group of N lanes.

EXEC does not matter.  Products and sums are those of float32 (int32 for i8); the hardware's order of summation is not
documented and not imitated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .decode import Instruction, Operand
from .operands import constant
from .program import IllegalInstruction, only, op
from .state import LANES

U16, U32 = np.uint16, np.uint32


# numpy converts halves in software, an element at a time; a table of all of them is twenty times as fast
_HALVES = np.arange(1 << 16, dtype=U16).view(np.float16).astype(np.float32)
_BYTES = np.arange(1 << 8, dtype=np.uint8).view(np.int8).astype(np.float32)  # exact: the sums stay below 2^24

UNPACK = {  # by type: (registers, uint32, to float32 elements, lowest first; bytes of an element)
    "f32": (lambda words: words.view(np.float32), 4),
    "f16": (lambda words: _HALVES[words.view(U16)], 2),
    "bf16": (lambda words: (words.view(U16).astype(U32) << U32(16)).view(np.float32), 2),
    "i8": (lambda words: _BYTES[words.view(np.uint8)], 1),
}


class Shape(NamedTuple):
    m: int  # and n
    k: int
    blocks: int
    type: str

    @property
    def per(self) -> int:
        """Consecutive elements of K in one lane."""
        return self.k * self.m * self.blocks // LANES

    @property
    def registers(self) -> int:
        """Registers of A, and of B."""
        return self.per * UNPACK[self.type][1] // 4

    @property
    def out_registers(self) -> int:
        return self.m * self.m * self.blocks // LANES


# (m, blocks): the same for every type; k follows from the number of registers
GEOMETRY = ((32, 1), (16, 1), (32, 2), (16, 4), (4, 16))


def _names() -> dict[str, Shape]:
    """Both spellings: gfx90a's (32x32x4f16, with _1k for the wide bf16) and gfx942's (32x32x4_2b_f16)."""
    names: dict[str, Shape] = {}
    variants = (  # type, registers, suffix on gfx90a, on gfx942
        ("f32", 1, "f32", "f32"),
        ("f16", 2, "f16", "f16"),
        ("bf16", 1, "bf16", None),
        ("bf16", 2, "bf16_1k", "bf16"),
        ("i8", 1, "i8", "i8"),
        ("i8", 2, None, "i8"),
    )
    for type_, registers, old, new in variants:
        out = "i32" if type_ == "i8" else "f32"
        for m, blocks in GEOMETRY:
            if type_ == "i8" and registers == 2 and blocks > 1:
                continue
            k = registers * 4 // UNPACK[type_][1] * LANES // (m * blocks)
            shape = Shape(m, k, blocks, type_)
            size = f"{m}x{m}x{k}"
            if old:
                names[f"v_mfma_{out}_{size}{old}"] = shape
            if new:
                names[f"v_mfma_{out}_{size}_{f'{blocks}b_' if blocks > 1 else ''}{new}"] = shape
    return names


SHAPES = _names()


def _file(g, o: Operand):
    return g.w.vgpr if o.kind == "v" else g.w.acc


def _matrix(g, o: Operand, shape: Shape) -> np.ndarray:
    """A's elements [n, blocks, m, k], or B's transposed, from its registers."""
    words = np.ascontiguousarray(_file(g, o)[o.index : o.index + shape.registers][:, g.sel])
    elements = UNPACK[shape.type][0](words)
    m, each = shape.m, shape.per // shape.registers
    groups = elements.reshape(shape.registers, g.n, shape.blocks, -1, m, each)  # lanes are (block, part of K, row)
    return groups.transpose(1, 2, 4, 3, 0, 5).reshape(g.n, shape.blocks, m, shape.k)


def _as_registers(d: np.ndarray, shape: Shape) -> np.ndarray:
    """[n, blocks, m, m] seen in the order of :func:`_rows`, without moving anything."""
    n, m, blocks = len(d), shape.m, shape.blocks
    if m == 4:  # a register is a row, four lanes a block
        return d.transpose(2, 0, 1, 3).reshape(1, 1, 4, n, LANES // 4, 4)
    groups = LANES // m
    return d.reshape(n, blocks, m // (4 * groups), groups, 4, m).transpose(1, 2, 4, 0, 3, 5)


def _rows(registers: np.ndarray, shape: Shape) -> np.ndarray:
    """[registers, n, 64] as [block, step, row of four, n, group of lanes, column]: a view."""
    n, m = registers.shape[1], shape.m
    return registers.reshape(shape.blocks if m > 4 else 1, -1, 4, n, LANES // m, m)


@op(*SHAPES)
def v_mfma(instruction: Instruction):
    only(instruction)  # cbsz, abid, blgp: broadcasts between blocks
    shape = SHAPES[instruction.name]
    target, a, b, c = instruction.operands
    integer = shape.type == "i8"
    fixed = None if c.kind in "va" else constant(c, "i32" if integer else "f32")
    if target.count != shape.out_registers or a.count != shape.registers:
        raise IllegalInstruction(f"{instruction.text}: registers do not fit {shape}")

    dtype = np.int32 if integer else np.float32

    def step(g):
        left, right = _matrix(g, a, shape), _matrix(g, b, shape)
        product = np.matmul(left, right.transpose(0, 1, 3, 2))
        if integer:
            product = product.astype(np.int32)
        place = _file(g, target)[target.index : target.index + shape.out_registers].view(dtype)[:, g.sel]
        if fixed is None:
            old = _file(g, c)[c.index : c.index + shape.out_registers].view(dtype)[:, g.sel]
        else:
            old = np.broadcast_to(fixed, place.shape)
        np.add(_rows(old, shape), _as_registers(product, shape), out=_rows(place, shape))
        if not g.view:  # an index array selected a copy
            _file(g, target)[target.index : target.index + shape.out_registers].view(dtype)[:, g.sel] = place

    return step
