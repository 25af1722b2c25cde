"""Packed instructions: two values of 16 bits in a register, or of 32 bits in a pair; dot products (ISA guide, "VOP3P").

OP_SEL names the element of each source that the low result is made from, OP_SEL_HI that of the high result; NEG_LO and
NEG_HI negate them.
"""

from __future__ import annotations

import numpy as np

from . import floats
from .decode import Instruction, Operand
from .floats import F16, FMA, flush, widen
from .operands import FLOATS, TYPES, check_count, constant, halves, parse_signature
from .program import IllegalInstruction, only, op
from .valu_half import HALF
from .vector import clamped, valu
from .vector_float import ALWAYS, Governed, by_mode

U16, U32, I16, I32, I64 = np.uint16, np.uint32, np.int16, np.int32, np.int64
FIELDS = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi")


def _fields(instruction: Instruction, count: int) -> list[tuple[int, ...]]:
    defaults = ((0,) * count, (1,) * count, (0,) * count, (0,) * count)
    return [instruction.modifiers.get(name, default) for name, default in zip(FIELDS, defaults)]


def _negated(read):
    return lambda g: np.negative(read(g))


def packed(name: str, signature: str, function, *, accumulate: bool = False, saturate: bool = False, ieee: bool = False,
           rounds: bool = True) -> None:  # fmt: skip
    """Define an instruction on halves of registers; ``saturate`` as for ``valu``."""
    out, ins = parse_signature(signature)
    dtype = TYPES[out]
    every = ins + [out] if accumulate else ins
    governed = Governed(function, out, every, rounds=out if rounds and out in FLOATS else None, ieee=ieee)

    @op(name)
    def make(instruction: Instruction):
        check_count(instruction, 1 + len(ins))
        only(instruction, *FIELDS, *(("clamp",) if saturate or out in FLOATS else ()))
        target, *operands = instruction.operands
        if accumulate:
            operands = [*operands, target]
        op_sel, op_sel_hi, neg_lo, neg_hi = _fields(instruction, len(operands))
        raw = [halves(o, t) for o, t in zip(operands, every)]

        def element(i: int, high: int, negate: int):
            shift, view = U32(16 if high else 0), TYPES[every[i]]
            read = lambda g: (raw[i](g) >> shift).astype(U16).view(view)  # noqa: E731
            return _negated(read) if negate else read

        def with_defaults(field, value, i):  # the accumulator is not an encoded operand
            return field[i] if i < len(field) else value

        both = [
            [element(i, with_defaults(sel, default, i), with_defaults(neg, 0, i)) for i in range(len(operands))]
            for sel, neg, default in ((op_sel, neg_lo, 0), (op_sel_hi, neg_hi, 1))
        ]
        limits = None if dtype is F16 else np.iinfo(dtype)
        clamp = "clamp" in instruction.modifiers

        def half(g, reads):
            args = [read(g) for read in reads]
            if clamp and limits:
                exact = function(*[np.asarray(a).astype(I64) for a in args])
                return np.clip(exact, limits.min, limits.max).astype(dtype)
            result = governed(g.mode, *args)
            return clamped(result, g.mode) if clamp else result

        @by_mode
        def step(g):
            low, high = (half(g, reads).view(U16).astype(U32) for reads in both)
            g.set_v(target.index, low | high << U32(16))

        return step


for _name in ("add", "mul"):
    packed(f"v_pk_{_name}_f16", "f16 = f16 f16", HALF[_name])
packed("v_pk_fma_f16", "f16 = f16 f16 f16", FMA["f16"])
packed("v_pk_fmac_f16", "f16 = f16 f16", FMA["f16"], accumulate=True)
packed("v_pk_min_f16", "f16 = f16 f16", floats.minimum, ieee=True, rounds=False)
packed("v_pk_max_f16", "f16 = f16 f16", floats.maximum, ieee=True, rounds=False)
for _type, _dtype in (("u16", U16), ("i16", I16)):
    packed(f"v_pk_add_{_type}", f"{_type} = {_type} {_type}", np.add, saturate=True)
    packed(f"v_pk_sub_{_type}", f"{_type} = {_type} {_type}", np.subtract, saturate=True)
    packed(f"v_pk_mad_{_type}", f"{_type} = {_type} {_type} {_type}", lambda a, b, c: a * b + c, saturate=True)
    packed(f"v_pk_min_{_type}", f"{_type} = {_type} {_type}", np.minimum)
    packed(f"v_pk_max_{_type}", f"{_type} = {_type} {_type}", np.maximum)
packed("v_pk_mul_lo_u16", "u16 = u16 u16", np.multiply)
packed("v_pk_lshlrev_b16", "u16 = u16 u16", lambda a, b: b << (a & U16(15)))
packed("v_pk_lshrrev_b16", "u16 = u16 u16", lambda a, b: b >> (a & U16(15)))
packed("v_pk_ashrrev_i16", "i16 = u16 i16", lambda a, b: b >> (a & U16(15)).astype(I16))

# -- pairs of float32 --------------------------------------------------------------------------------------------------


def _dword(o: Operand, which: int, type_: str):
    """One dword of a source pair; an integer constant is 64 bits, a float one stands in the low dword."""
    if o.kind == "v":
        return lambda g: g.v(o.index + which, TYPES[type_])
    if o.kind == "s":
        return lambda g: g.s(o.index + which, TYPES[type_])[:, None]
    if o.kind == "int":
        value = np.array([o.value & 0xFFFFFFFF, o.value >> 32 & 0xFFFFFFFF], U32).view(TYPES[type_])[which]
    elif o.kind == "float":
        value = constant(o, type_) if which == 0 else TYPES[type_](0)
    else:
        raise IllegalInstruction(f"operand {o.value!r} is not implemented")
    return lambda g: value


def packed_single(name: str, count: int, function) -> None:
    governed = Governed(function, "f32", ["f32"] * count, rounds="f32")

    @op(name)
    def make(instruction: Instruction):
        check_count(instruction, 1 + count)
        only(instruction, *FIELDS, "clamp")
        target, *operands = instruction.operands
        op_sel, op_sel_hi, neg_lo, neg_hi = _fields(instruction, count)
        both = []
        for sel, neg in ((op_sel, neg_lo), (op_sel_hi, neg_hi)):
            reads = [_dword(o, sel[i], "f32") for i, o in enumerate(operands)]
            both.append([_negated(read) if neg[i] else read for i, read in enumerate(reads)])
        clamp = "clamp" in instruction.modifiers
        # the low result must not be written while the high one still needs what it replaces
        apart = all(o.kind != "v" or o.index + op_sel_hi[i] != target.index for i, o in enumerate(operands))

        def fast(g):
            if not (apart and g.view and g.full and governed.plain(g.mode)):
                return step(g)
            for i, reads in enumerate(both):
                function(*[read(g) for read in reads], out=g.w.v[np.float32][target.index + i][g.sel])

        @by_mode
        def step(g):
            results = [governed(g.mode, *[read(g) for read in reads]) for reads in both]
            for i, result in enumerate(results):
                g.set_v(target.index + i, clamped(result, g.mode) if clamp else result)

        return step if clamp else fast


packed_single("v_pk_fma_f32", 3, FMA["f32"])
packed_single("v_pk_mul_f32", 2, np.multiply)
packed_single("v_pk_add_f32", 2, np.add)


@op("v_pk_mov_b32")
def v_pk_mov(instruction: Instruction):
    """The low dword from the first source, the high one from the second; OP_SEL says which of theirs."""
    only(instruction, "op_sel", "op_sel_hi")
    target, a, b = instruction.operands
    op_sel = instruction.modifiers.get("op_sel", (0, 0))
    low, high = _dword(a, op_sel[0], "u32"), _dword(b, op_sel[1], "u32")

    def step(g):
        first, second = np.array(low(g)), np.array(high(g))  # the sources may be the destination
        g.set_v(target.index, first)
        g.set_v(target.index + 1, second)

    return step


# -- dot products ------------------------------------------------------------------------------------------------------


def _dot_f16(a, b, c):
    """c, plus the products of the halves one after the other; denormals are flushed."""
    for shift in (U32(0), U32(16)):
        x, y = (widen(flush((v >> shift).astype(U16).view(F16))) for v in (a, b))
        c = flush(c + x * y)
    return c


def _dot(bits: int, signed: bool):
    """int64: c plus the products of the fields of ``bits`` bits."""
    mask, top = I64((1 << bits) - 1), I64(1 << bits - 1 if signed else 0)

    def dot(a, b, c):
        a, b, c = (np.asarray(x).astype(I64) for x in (a, b, c))
        for shift in range(0, 32, bits):
            x, y = (((v >> I64(shift) & mask) ^ top) - top for v in (a, b))
            c = c + x * y
        return c

    return dot


DOTS = {"i32_i16": (16, True), "u32_u16": (16, False), "i32_i8": (8, True), "u32_u8": (8, False),
        "i32_i4": (4, True), "u32_u4": (4, False)}  # fmt: skip
for _types, (_bits, _signed) in DOTS.items():
    _out = _types[:3]
    valu(f"v_dot{32 // _bits}_{_types}", f"{_out} = u32 u32 {_out}", _dot(_bits, _signed), saturate=True)
    if _signed:
        valu(f"v_dot{32 // _bits}c_{_types}", f"{_out} = u32 u32", _dot(_bits, _signed), accumulate=True)


def _define_dot2(name: str, accumulate: bool) -> None:
    governed = Governed(_dot_f16, "f32", ["u32", "u32", "f32"], denormals=ALWAYS, rounds=None)

    @op(name)
    def make(instruction: Instruction):
        only(instruction, "clamp")
        target, a, b, *rest = instruction.operands
        reads = [halves(o, "f16") for o in (a, b)] + [_dword(target if accumulate else rest[0], 0, "f32")]
        clamp = "clamp" in instruction.modifiers

        @by_mode
        def step(g):
            result = governed(g.mode, *[read(g) for read in reads])
            g.set_v(target.index, clamped(result, g.mode) if clamp else result)

        return step


_define_dot2("v_dot2_f32_f16", False)
_define_dot2("v_dot2c_f32_f16", True)
