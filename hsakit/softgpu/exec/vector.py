"""How vector instructions are built: sources with their encodings' extras (SDWA, DPP), results with theirs.

``valu("v_add_f32", "f32 = f32 f32", np.add)`` defines one from a function over arrays [n, 64]; :func:`compare` one that
gives a lane mask.  The families in ``valu_*.py`` are lists of such lines.
"""

from __future__ import annotations

import numpy as np

from .decode import EXEC, VCC, Instruction, Operand
from .operands import (
    FLOATS,
    HALF,
    TYPES,
    check_count,
    modified,
    parse_signature,
    read_mask,
    vector,
    write_vector,
)
from .program import IllegalInstruction, op, only
from .state import LANES, Group, lanes_of, mask_of

SDWA = ("dst_sel", "dst_unused", "src0_sel", "src1_sel")
DPP = ("quad_perm", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_newbcast", "row_bcast",
       "wave_shl", "wave_shr", "wave_rol", "wave_ror", "row_mask", "bank_mask", "bound_ctrl", "fi")  # fmt: skip
OUTPUT = ("clamp", "mul", "div")

# a byte or a word of a register: (shift, mask)
SELECT = {
    "DWORD": (0, 0xFFFFFFFF),
    "WORD_0": (0, 0xFFFF),
    "WORD_1": (16, 0xFFFF),
    **{f"BYTE_{i}": (8 * i, 0xFF) for i in range(4)},
}


def sources(instruction: Instruction, operands: tuple[Operand, ...], types: list[str]):
    """Readers of the sources, through SDWA selection or DPP where the encoding has it."""
    reads = []
    for i, (o, t) in enumerate(zip(operands, types)):
        if instruction.encoding == "sdwa" and i < 2:
            reads.append(_sdwa_source(o, t, instruction.modifiers.get(f"src{i}_sel", "DWORD")))
        elif instruction.encoding.endswith("dpp") and i == 0:
            reads.append(_dpp_source(instruction, o, t))
        else:
            reads.append(vector(o, t))
    return reads


def _sdwa_source(o: Operand, type_: str, select: str):
    shift, mask = SELECT[select]
    plain = vector(Operand(o.kind, o.index, o.count, o.value), "u32")
    dtype = TYPES[type_]

    def read(g):
        value = plain(g)
        if select != "DWORD":
            value = value >> np.uint32(shift) & np.uint32(mask)
            if o.sext:
                top = np.uint32((mask + 1) >> 1)
                value = (value ^ top) - top
        if type_ in HALF:
            return value.astype(np.uint16).view(dtype)
        return np.asarray(value).view(dtype)

    return modified(read, o, type_)


def _dpp_control(modifiers: dict) -> tuple[np.ndarray, np.ndarray]:
    """(source lane of each lane, whether it exists)."""
    lane = np.arange(LANES)
    row, at = lane & ~15, lane & 15
    valid = np.ones(LANES, bool)
    if "quad_perm" in modifiers:
        source = (lane & ~3) + np.array(modifiers["quad_perm"])[lane & 3]
    elif "row_shl" in modifiers:
        source = lane + modifiers["row_shl"]
        valid = at + modifiers["row_shl"] < 16
    elif "row_shr" in modifiers:
        source = lane - modifiers["row_shr"]
        valid = at >= modifiers["row_shr"]
    elif "row_ror" in modifiers:
        source = row + (at - modifiers["row_ror"] & 15)
    elif "row_mirror" in modifiers:
        source = row + 15 - at
    elif "row_half_mirror" in modifiers:
        source = (lane & ~7) + 7 - (lane & 7)
    elif "row_newbcast" in modifiers:
        source = row + modifiers["row_newbcast"]
    elif modifiers.get("row_bcast") == 15:
        source = row - 1
        valid = lane >= 16
    elif modifiers.get("row_bcast") == 31:
        source = np.where(lane >= 32, 31, 0)
        valid = lane >= 32
    elif "wave_shl" in modifiers:
        source, valid = lane + 1, lane < 63
    elif "wave_shr" in modifiers:
        source, valid = lane - 1, lane > 0
    elif "wave_rol" in modifiers:
        source = lane + 1 & 63
    elif "wave_ror" in modifiers:
        source = lane - 1 & 63
    else:
        raise IllegalInstruction(f"DPP control {modifiers}")
    return np.clip(source, 0, 63), valid


def _dpp_source(instruction: Instruction, o: Operand, type_: str):
    lanes, valid = _dpp_control(instruction.modifiers)
    plain = vector(o, type_)

    def read(g):
        value = np.broadcast_to(plain(g), (g.n, LANES))[:, lanes]
        # a lane whose source is invalid or inactive reads 0 if bound_ctrl is set; else it is not written at all
        readable = g.lanes[:, lanes] & valid
        return np.where(readable, value, np.zeros((), value.dtype))

    return read


def _dpp_lanes(instruction: Instruction, g: Group) -> np.ndarray:
    """Lanes that a DPP instruction writes."""
    lanes, valid = _dpp_control(instruction.modifiers)
    at = np.arange(LANES)
    row_mask, bank_mask = instruction.modifiers.get("row_mask", 15), instruction.modifiers.get("bank_mask", 15)
    enabled = (row_mask >> (at >> 4) & 1).astype(bool) & (bank_mask >> (at >> 2 & 3) & 1).astype(bool)
    if "bound_ctrl" not in instruction.modifiers:
        return g.lanes & enabled & valid & g.lanes[:, lanes]
    return g.lanes & enabled


def result_writer(instruction: Instruction, type_: str):
    """Write a result to the first operand: clamp and output scale, SDWA placement, DPP's lanes."""
    target = instruction.operands[0]
    write = write_vector(target, type_)
    modifiers = instruction.modifiers
    if any(m in modifiers for m in OUTPUT):
        write = _scaled(write, modifiers, type_)
    if instruction.encoding == "sdwa" and (
        modifiers.get("dst_sel", "DWORD") != "DWORD" or modifiers.get("dst_unused") == "UNUSED_PRESERVE"
    ):
        write = _sdwa_placed(target, modifiers, type_)
    if instruction.encoding.endswith("dpp"):
        inner = write

        def write(g, value):
            kept = g.lanes
            g.restrict(_dpp_lanes(instruction, g))
            try:
                inner(g, np.broadcast_to(value, (g.n, LANES)))
            finally:
                g.restrict(kept)

    return write


def _scaled(write, modifiers: dict, type_: str):
    if type_ not in FLOATS:
        raise IllegalInstruction(f"clamp of {type_}")  # integer saturation: the instructions that have it say so
    dtype = TYPES[type_]
    factor = dtype(modifiers.get("mul", 1) / modifiers.get("div", 1))

    def scaled(g, value):
        if factor != 1:
            value = value * factor
        if "clamp" in modifiers:
            value = np.where(np.isnan(value), dtype(0), np.clip(value, dtype(0), dtype(1)))
        write(g, value.astype(dtype, copy=False))

    return scaled


def _sdwa_placed(target: Operand, modifiers: dict, type_: str):
    shift, mask = SELECT[modifiers.get("dst_sel", "DWORD")]
    unused = modifiers.get("dst_unused", "UNUSED_PAD")

    def placed(g, value):
        bits = value.view(np.uint16).astype(np.uint32) if type_ in HALF else value.view(np.uint32)
        part = (bits & np.uint32(mask)) << np.uint32(shift)
        if unused == "UNUSED_PRESERVE":
            part = part | g.v(target.index) & np.uint32(~(mask << shift) & 0xFFFFFFFF)
        elif unused == "UNUSED_SEXT":
            top = np.uint32((mask + 1) >> 1)
            part = (((bits & np.uint32(mask)) ^ top) - top) << np.uint32(shift)
        g.set_v(target.index, part)

    return placed


def valu(name: str, signature: str, function, *, accumulate: bool = False) -> None:
    """Define a vector instruction.  ``accumulate``: the destination's old value is the function's last argument."""
    out, ins = parse_signature(signature)
    plain = isinstance(function, np.ufunc) and TYPES[out] in (np.uint32, np.int32, np.float32) and not accumulate

    @op(name)
    def make(instruction: Instruction):
        check_count(instruction, 1 + len(ins))
        only(instruction, *SDWA, *DPP, *OUTPUT)
        target, *operands = instruction.operands
        reads = sources(instruction, tuple(operands), ins)
        if accumulate:
            reads.append(vector(target, out))
        write, dtype = result_writer(instruction, out), TYPES[out]

        def step(g):
            result = function(*[read(g) for read in reads])
            write(g, result if result.dtype == dtype else result.astype(dtype))

        if not (plain and target.kind == "v" and not instruction.modifiers):
            return step
        index = target.index

        def fast(g):  # all lanes active, registers contiguous: compute straight into the destination
            if g.view and g.full:
                function(*[read(g) for read in reads], out=g.w.v[dtype][index][g.sel], casting="unsafe")
            else:
                step(g)

        return fast


def compare(name: str, types: str, function) -> None:
    """Define ``v_cmp_*`` (a mask of active lanes) and its ``v_cmpx_*`` form, which also becomes EXEC."""
    ins = types.split()

    @op(name, name.replace("v_cmp_", "v_cmpx_"))
    def make(instruction: Instruction):
        check_count(instruction, 1 + len(ins))
        only(instruction, "src0_sel", "src1_sel")
        target, *operands = instruction.operands
        reads = sources(instruction, tuple(operands), ins)
        exec_too = instruction.name.startswith("v_cmpx_")

        def step(g):
            mask = mask_of(np.ascontiguousarray(function(*[read(g) for read in reads]) & g.lanes))
            g.set_s64(target.index, mask)
            if exec_too:
                g.set_s64(EXEC, mask)

        return step


__all__ = ["LANES", "VCC", "compare", "lanes_of", "mask_of", "read_mask", "result_writer", "sources", "valu"]
