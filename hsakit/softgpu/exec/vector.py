"""How vector instructions are built: sources with their encodings' extras (SDWA, DPP), results with theirs.

``valu("v_add_u32", "u32 = u32 u32", np.add)`` defines one from a function over arrays [n, 64]; :func:`compare` one that
gives a lane mask.  The families in ``valu_*.py`` are lists of such lines.
"""

from __future__ import annotations

import numpy as np

from .decode import EXEC, Instruction, Operand
from .floats import flush
from .operands import (
    FLOATS,
    HALF,
    TYPES,
    WIDE,
    check_count,
    modified,
    parse_signature,
    vector,
    write_vector,
)
from .program import IllegalInstruction, only, op
from .state import LANES, mask_of

SDWA = ("dst_sel", "dst_unused", "src0_sel", "src1_sel")
DPP = ("quad_perm", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_newbcast", "row_bcast",
       "wave_shl", "wave_shr", "wave_rol", "wave_ror", "row_mask", "bank_mask", "bound_ctrl")  # fmt: skip
OUTPUT = ("clamp", "mul", "div")

# bits of the MODE register
DENORMALS_OUT = {"f32": 0x20, "f16": 0x80, "f64": 0x80}
DX10_CLAMP, IEEE = 1 << 8, 1 << 9

# a byte or a word of a register: (shift, mask)
SELECT = {
    "DWORD": (0, 0xFFFFFFFF),
    "WORD_0": (0, 0xFFFF),
    "WORD_1": (16, 0xFFFF),
    **{f"BYTE_{i}": (8 * i, 0xFF) for i in range(4)},
}


def sources(instruction: Instruction, operands: tuple[Operand, ...], types: list[str]):
    """Readers of the sources, through SDWA selection, DPP or OP_SEL where the encoding has it."""
    reads = []
    op_sel = instruction.modifiers.get("op_sel", ())
    for i, (o, t) in enumerate(zip(operands, types)):
        if instruction.encoding == "sdwa" and i < 2:
            reads.append(_sdwa_source(o, t, instruction.modifiers.get(f"src{i}_sel", "DWORD")))
        elif instruction.encoding.endswith("dpp") and i == 0:
            reads.append(_dpp_source(instruction, o, t))
        else:
            reads.append(vector(o, t, high=t in HALF and bool(op_sel) and bool(op_sel[i])))
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
    plain = vector(Operand(o.kind, o.index, o.count, o.value), type_)

    def read(g):
        value = np.broadcast_to(plain(g), (g.n, LANES))[:, lanes]
        # a lane whose source is invalid or inactive reads 0 if bound_ctrl is set; else it is not written at all
        readable = g.lanes[:, lanes] & valid
        return np.where(readable, value, np.zeros((), value.dtype))

    return modified(read, o, type_)


def _dpp_lanes(instruction: Instruction):
    """Which lanes a DPP instruction writes, of the active ones."""
    lanes, valid = _dpp_control(instruction.modifiers)
    at = np.arange(LANES)
    row_mask, bank_mask = instruction.modifiers.get("row_mask", 15), instruction.modifiers.get("bank_mask", 15)
    enabled = (row_mask >> (at >> 4) & 1).astype(bool) & (bank_mask >> (at >> 2 & 3) & 1).astype(bool)
    if "bound_ctrl" in instruction.modifiers:
        return lambda g: g.lanes & enabled
    return lambda g: g.lanes & (enabled & valid) & g.lanes[:, lanes]


# -- results -----------------------------------------------------------------------------------------------------------


def result_writer(instruction: Instruction, type_: str, keep: bool = False, high: bool = False):
    """Write a result to the first operand: output scale and clamp of floats, SDWA placement, DPP's lanes, the half that
    OP_SEL names.  Of 16-bit results: ``keep`` the other half of the register (the default is zero); write the ``high``
    half, whatever OP_SEL says."""
    target, modifiers = instruction.operands[0], instruction.modifiers
    if instruction.encoding == "sdwa" and type_ not in WIDE:
        write = _sdwa_placed(target, modifiers, type_)
    elif type_ in HALF:
        op_sel = modifiers.get("op_sel", ())
        high = high or len(op_sel) == len(instruction.operands) and bool(op_sel[-1])
        write = _half_placed(target, high, keep)
    else:
        write = write_vector(target, type_)
    if instruction.encoding.endswith("dpp"):
        write = _masked(write, _dpp_lanes(instruction))
    if type_ in FLOATS and any(m in modifiers for m in OUTPUT):
        return _finished(write, modifiers, type_)
    return write


def _masked(write, lanes_written):
    def masked(g, value):
        kept = g.lanes
        g.restrict(lanes_written(g))
        try:
            write(g, np.broadcast_to(value, (g.n, LANES)))
        finally:
            g.restrict(kept)

    return masked


def _finished(write, modifiers: dict, type_: str):
    """Output scale and clamp, as MODE lets them act (ISA guide, "Instruction Outputs")."""
    dtype = TYPES[type_]
    factor = dtype(modifiers.get("mul", 1) / modifiers.get("div", 1))
    disabled = IEEE | DENORMALS_OUT[type_]

    def finished(g, value):
        if factor != 1 and not g.mode & disabled:
            value = flush(value * factor) + dtype(0)  # -0 becomes +0
        write(g, clamped(value, g.mode) if "clamp" in modifiers else value)

    return finished


def clamped(value, mode: int) -> np.ndarray:
    """A float result between 0 and 1; a NaN is 0 if MODE's DX10_CLAMP is set."""
    dtype = value.dtype.type
    result = np.where(value > 0, np.minimum(value, dtype(1)), dtype(0))
    return result if mode & DX10_CLAMP else np.where(np.isnan(value), value, result)


def _half_placed(target: Operand, high: bool, keep: bool):
    i = target.index
    if not (high or keep):
        return lambda g, value: g.set_v(i, value.view(np.uint16).astype(np.uint32))
    shift, kept = (np.uint32(16), np.uint32(0xFFFF)) if high else (np.uint32(0), np.uint32(0xFFFF0000))

    def placed(g, value):
        g.set_v(i, value.view(np.uint16).astype(np.uint32) << shift | g.v(i) & kept)

    return placed


def _sdwa_placed(target: Operand, modifiers: dict, type_: str):
    shift, mask = SELECT[modifiers.get("dst_sel", "DWORD")]
    unused = modifiers.get("dst_unused", "UNUSED_PAD")
    position, low = np.uint32(shift), np.uint32(mask)

    def placed(g, value):
        bits = value.view(np.uint16).astype(np.uint32) if type_ in HALF else value.view(np.uint32)
        part = (bits & low) << position
        if unused == "UNUSED_PRESERVE":
            part = part | g.v(target.index) & np.uint32(~(mask << shift) & 0xFFFFFFFF)
        elif unused == "UNUSED_SEXT":
            top = np.uint32((mask + 1) >> 1)
            part = (((bits & low) ^ top) - top) << position
        g.set_v(target.index, part)

    return placed


def valu(name: str, signature: str, function, *, accumulate: bool = False, saturate: bool = False,
         keep: bool = False) -> None:  # fmt: skip
    """Define an integer or bit instruction.  ``accumulate``: the destination's old value is the function's last
    argument.  ``saturate``: the clamp modifier limits the exact result, which the function gives for int64 arguments,
    to the result's type.  ``keep``: as for :func:`result_writer`."""
    out, ins = parse_signature(signature)
    dtype = TYPES[out]
    plain = isinstance(function, np.ufunc) and dtype in (np.uint32, np.int32) and not accumulate
    known = SDWA + DPP + (("clamp",) if saturate else ()) + (("op_sel",) if set(HALF) & {out, *ins} else ())

    @op(name)
    def make(instruction: Instruction):
        check_count(instruction, 1 + len(ins))
        only(instruction, *known)
        target, *operands = instruction.operands
        reads = sources(instruction, tuple(operands), ins)
        if accumulate:
            reads.append(vector(target, out))
        write = result_writer(instruction, out, keep)
        if "clamp" in instruction.modifiers:
            lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max

            def saturated(g):
                exact = function(*[np.asarray(read(g)).astype(np.int64) for read in reads])
                write(g, np.clip(exact, lowest, highest).astype(dtype))

            return saturated

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
        reads = sources(instruction, instruction.operands[1:], ins)
        write = mask_writer(instruction)
        return lambda g: write(g, function(*[read(g) for read in reads]))


def mask_writer(instruction: Instruction):
    """Write a comparison's outcome, active lanes only, to its lane mask and, for ``v_cmpx_*``, to EXEC."""
    index = instruction.operands[0].index
    exec_too = instruction.name.startswith("v_cmpx_")

    def write(g, met):
        mask = mask_of(np.ascontiguousarray(met & g.lanes))
        g.set_s64(index, mask)
        if exec_too:
            g.set_s64(EXEC, mask)

    return write
