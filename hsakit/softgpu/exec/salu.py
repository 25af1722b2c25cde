"""Scalar arithmetic: one value a wave (ISA guide, "SOP1", "SOP2", "SOPK" and "SOPC" formats).

A definition computes the result from typed sources; ``scc`` says what SCC becomes: "nz" (result is not zero), or the
function returns it beside the result.
"""

from __future__ import annotations

import numpy as np

from .decode import EXEC, M0, Instruction
from .operands import TYPES, WIDE, check_count, parse_signature, scalar, write_scalar
from .program import IllegalInstruction, only, op

U32, U64, I32, I64 = np.uint32, np.uint64, np.int32, np.int64


def salu(name: str, signature: str, function, scc: str | None = None) -> None:
    """``scc``: None (untouched), "nz", or "pair" (the function returns result and SCC)."""
    out, ins = parse_signature(signature)

    @op(name)
    def make(instruction: Instruction):
        check_count(instruction, 1 + len(ins))
        only(instruction)
        reads = [scalar(o, t) for o, t in zip(instruction.operands[1:], ins)]
        write = write_scalar(instruction.operands[0], out)
        dtype = TYPES[out]

        def step(g):
            result = function(*[read(g) for read in reads])
            if scc == "pair":
                result, flag = result
                g.scc = flag
            elif scc == "nz":
                g.scc = result != 0
            write(g, result if result.dtype == dtype else result.astype(dtype))

        return step


def compare(name: str, types: str, function) -> None:
    ins = types.split()

    @op(name)
    def make(instruction: Instruction):
        check_count(instruction, 2)
        a, b = (scalar(o, t) for o, t in zip(instruction.operands, ins))

        def step(g):
            g.scc = function(a(g), b(g))

        return step


def _wide(value):
    return np.asarray(value).astype(U64)


def _add_u32(a, b):
    total = _wide(a) + _wide(b)
    return total.astype(U32), total >> U64(32) != 0


def _sub_u32(a, b):
    return a - b, b > a


def _add_i32(a, b):
    total = np.asarray(a).astype(I64) + b
    result = total.astype(I32)
    return result, result != total


def _sub_i32(a, b):
    total = np.asarray(a).astype(I64) - b
    result = total.astype(I32)
    return result, result != total


salu("s_add_u32", "u32 = u32 u32", _add_u32, "pair")
salu("s_sub_u32", "u32 = u32 u32", _sub_u32, "pair")
salu("s_add_i32", "i32 = i32 i32", _add_i32, "pair")
salu("s_sub_i32", "i32 = i32 i32", _sub_i32, "pair")
salu("s_absdiff_i32", "i32 = i32 i32", lambda a, b: np.abs(a - b), "nz")
salu("s_mul_i32", "u32 = u32 u32", lambda a, b: a * b)
salu("s_mul_hi_u32", "u32 = u32 u32", lambda a, b: (_wide(a) * _wide(b) >> U64(32)).astype(U32))
salu("s_mul_hi_i32", "i32 = i32 i32", lambda a, b: (np.asarray(a).astype(I64) * b >> I64(32)).astype(I32))
salu("s_abs_i32", "i32 = i32", np.abs, "nz")

for bits in (32, 64):
    u, one = f"u{bits}", TYPES[f"u{bits}"](1)
    salu(f"s_and_b{bits}", f"{u} = {u} {u}", np.bitwise_and, "nz")
    salu(f"s_or_b{bits}", f"{u} = {u} {u}", np.bitwise_or, "nz")
    salu(f"s_xor_b{bits}", f"{u} = {u} {u}", np.bitwise_xor, "nz")
    salu(f"s_andn2_b{bits}", f"{u} = {u} {u}", lambda a, b: a & ~b, "nz")
    salu(f"s_orn2_b{bits}", f"{u} = {u} {u}", lambda a, b: a | ~b, "nz")
    salu(f"s_nand_b{bits}", f"{u} = {u} {u}", lambda a, b: ~(a & b), "nz")
    salu(f"s_nor_b{bits}", f"{u} = {u} {u}", lambda a, b: ~(a | b), "nz")
    salu(f"s_xnor_b{bits}", f"{u} = {u} {u}", lambda a, b: ~(a ^ b), "nz")
    salu(f"s_not_b{bits}", f"{u} = {u}", np.invert, "nz")
    salu(f"s_mov_b{bits}", f"{u} = {u}", np.asarray)


def _shift_count(b, bits):
    return b & U32(bits - 1)


salu("s_lshl_b32", "u32 = u32 u32", lambda a, b: a << _shift_count(b, 32), "nz")
salu("s_lshr_b32", "u32 = u32 u32", lambda a, b: a >> _shift_count(b, 32), "nz")
salu("s_ashr_i32", "i32 = i32 u32", lambda a, b: a >> _shift_count(b, 32).astype(I32), "nz")
salu("s_lshl_b64", "u64 = u64 u32", lambda a, b: a << _wide(_shift_count(b, 64)), "nz")
salu("s_lshr_b64", "u64 = u64 u32", lambda a, b: a >> _wide(_shift_count(b, 64)), "nz")
salu("s_ashr_i64", "i64 = i64 u32", lambda a, b: a >> _shift_count(b, 64).astype(I64), "nz")
for n in (1, 2, 3, 4):

    def _lshl_add(a, b, n=n):
        total = (_wide(a) << U64(n)) + _wide(b)
        return total.astype(U32), total >> U64(32) != 0

    salu(f"s_lshl{n}_add_u32", "u32 = u32 u32", _lshl_add, "pair")


for type_ in ("i32", "u32"):  # SCC: whether the first is chosen
    salu(f"s_min_{type_}", f"{type_} = {type_} {type_}", lambda a, b: (np.minimum(a, b), a < b), "pair")
    salu(f"s_max_{type_}", f"{type_} = {type_} {type_}", lambda a, b: (np.maximum(a, b), a >= b), "pair")

salu("s_sext_i32_i8", "i32 = u32", lambda a: np.asarray(a).astype(np.int8).astype(I32))
salu("s_sext_i32_i16", "i32 = u32", lambda a: np.asarray(a).astype(np.int16).astype(I32))
salu("s_pack_ll_b32_b16", "u32 = u32 u32", lambda a, b: a & U32(0xFFFF) | b << U32(16))
salu("s_pack_lh_b32_b16", "u32 = u32 u32", lambda a, b: a & U32(0xFFFF) | b & U32(0xFFFF0000))
salu("s_pack_hh_b32_b16", "u32 = u32 u32", lambda a, b: a >> U32(16) | b & U32(0xFFFF0000))


def _popcount(a):
    a = np.atleast_1d(a)
    return np.unpackbits(a.view(np.uint8).reshape(len(a), -1), axis=1).sum(axis=1).astype(U32)


def _bits(a) -> np.ndarray:
    """[n, bits], lowest first."""
    a = np.atleast_1d(a)
    return np.unpackbits(a.view(np.uint8).reshape(len(a), -1), axis=1, bitorder="little").view(bool)


def _first(bits: np.ndarray) -> np.ndarray:
    return np.where(bits.any(axis=1), bits.argmax(axis=1), -1).astype(I32)


salu("s_bcnt1_i32_b32", "u32 = u32", _popcount, "nz")
salu("s_bcnt1_i32_b64", "u32 = u64", _popcount, "nz")
salu("s_bcnt0_i32_b32", "u32 = u32", lambda a: _popcount(~a), "nz")
salu("s_bcnt0_i32_b64", "u32 = u64", lambda a: _popcount(~a), "nz")
salu("s_ff1_i32_b32", "i32 = u32", lambda a: _first(_bits(a)))
salu("s_ff1_i32_b64", "i32 = u64", lambda a: _first(_bits(a)))
salu("s_ff0_i32_b32", "i32 = u32", lambda a: _first(~_bits(a)))
salu("s_ff0_i32_b64", "i32 = u64", lambda a: _first(~_bits(a)))
salu("s_flbit_i32_b32", "i32 = u32", lambda a: _first(_bits(a)[:, ::-1]))
salu("s_flbit_i32_b64", "i32 = u64", lambda a: _first(_bits(a)[:, ::-1]))


def _flbit_i32(a):
    bits = _bits(a)[:, ::-1]
    return _first(bits != bits[:, :1])


salu("s_flbit_i32", "i32 = u32", _flbit_i32)
salu("s_flbit_i32_i64", "i32 = u64", _flbit_i32)
salu("s_brev_b32", "u32 = u32", lambda a: np.packbits(_bits(a)[:, ::-1], axis=1, bitorder="little").view(U32)[:, 0])
salu("s_brev_b64", "u64 = u64", lambda a: np.packbits(_bits(a)[:, ::-1], axis=1, bitorder="little").view(U64)[:, 0])


def _bfe(bits: int, signed: bool):
    u, i = TYPES[f"u{bits}"], TYPES[f"i{bits}"]

    def extract(a, b):
        offset = (b & U32(bits - 1)).astype(u)
        width = np.minimum(b >> U32(16) & U32(0x7F), U32(bits)).astype(u)
        left = u(bits) - np.minimum(offset + width, u(bits))  # bits above the field
        kept = np.minimum(width, u(bits) - offset)
        a = np.asarray(a).view(u) if isinstance(a, np.ndarray) else u(a)
        moved = a << np.minimum(left, u(bits - 1))
        down = np.minimum(u(bits) - kept, u(bits - 1))
        result = moved.view(i) >> down.astype(i) if signed else moved >> down
        return np.where(kept == 0, 0, result)

    return extract


salu("s_bfe_u32", "u32 = u32 u32", _bfe(32, False), "nz")
salu("s_bfe_i32", "i32 = i32 u32", _bfe(32, True), "nz")
salu("s_bfe_u64", "u64 = u64 u32", _bfe(64, False), "nz")
salu("s_bfe_i64", "i64 = i64 u32", _bfe(64, True), "nz")
salu("s_bfm_b32", "u32 = u32 u32", lambda a, b: ((U32(1) << (a & U32(31))) - U32(1)) << (b & U32(31)))
salu("s_bfm_b64", "u64 = u32 u32", lambda a, b: ((U64(1) << _wide(a & U32(63))) - U64(1)) << _wide(b & U32(63)))

RELATIONS = {
    "eq": np.equal,
    "lg": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
}
for relation, function in RELATIONS.items():
    compare(f"s_cmp_{relation}_u32", "u32 u32", function)
    compare(f"s_cmp_{relation}_i32", "i32 i32", function)
for relation in ("eq", "lg"):
    compare(f"s_cmp_{relation}_u64", "u64 u64", RELATIONS[relation])
compare("s_bitcmp0_b32", "u32 u32", lambda a, b: a >> (b & U32(31)) & U32(1) == 0)
compare("s_bitcmp1_b32", "u32 u32", lambda a, b: a >> (b & U32(31)) & U32(1) != 0)
compare("s_bitcmp0_b64", "u64 u32", lambda a, b: a >> _wide(b & U32(63)) & U64(1) == 0)
compare("s_bitcmp1_b64", "u64 u32", lambda a, b: a >> _wide(b & U32(63)) & U64(1) != 0)


# -- instructions that read SCC or their own destination ---------------------------------------------------------------


@op("s_addc_u32", "s_subb_u32")
def s_addc(instruction):
    a, b = (scalar(o, "u32") for o in instruction.operands[1:])
    write = write_scalar(instruction.operands[0], "u32")
    subtract = instruction.name == "s_subb_u32"

    def step(g):
        carry = g.scc.astype(U64)
        x, y = _wide(a(g)), _wide(b(g))
        total = x - y - carry if subtract else x + y + carry
        g.scc = total >> U64(32) != 0
        write(g, total.astype(U32))

    return step


@op("s_cselect_b32", "s_cselect_b64")
def s_cselect(instruction):
    type_ = "u64" if instruction.name.endswith("b64") else "u32"
    a, b = (scalar(o, type_) for o in instruction.operands[1:])
    write = write_scalar(instruction.operands[0], type_)
    return lambda g: write(g, np.where(g.scc, a(g), b(g)).astype(TYPES[type_]))


@op("s_cmov_b32", "s_cmov_b64", "s_cmovk_i32")
def s_cmov(instruction):
    type_ = "u64" if instruction.name.endswith("b64") else "u32"
    target, source = instruction.operands
    old = scalar(target, type_)
    new = _k(source) if instruction.name == "s_cmovk_i32" else scalar(source, type_)
    write = write_scalar(target, type_)
    return lambda g: write(g, np.where(g.scc, new(g), old(g)).astype(TYPES[type_]))


def _k(o):
    """A 16-bit immediate, sign-extended, as an i32's bits."""
    value = o.value & 0xFFFF
    value = U32(value | 0xFFFF0000 if value & 0x8000 else value)
    return lambda g: value


@op("s_movk_i32")
def s_movk(instruction):
    value, write = _k(instruction.operands[1]), write_scalar(instruction.operands[0], "u32")
    return lambda g: write(g, np.asarray(value(g)))


@op("s_addk_i32", "s_mulk_i32")
def s_addk(instruction):
    target = instruction.operands[0]
    old, k, write = scalar(target, "i32"), _k(instruction.operands[1]), write_scalar(target, "i32")
    add = instruction.name == "s_addk_i32"

    def step(g):
        value = k(g).view(I32)
        if add:
            result, g.scc = _add_i32(old(g), value)
        else:
            result = old(g) * value
        write(g, result)

    return step


for relation, function in RELATIONS.items():
    for type_ in ("i32", "u32"):

        @op(f"s_cmpk_{relation}_{type_}")
        def s_cmpk(instruction, function=function, type_=type_):
            a = scalar(instruction.operands[0], type_)
            k = _k(instruction.operands[1])
            value = k(None).view(I32) if type_ == "i32" else U32(instruction.operands[1].value & 0xFFFF)

            def step(g):
                g.scc = function(a(g), value)

            return step


@op("s_bitset0_b32", "s_bitset1_b32", "s_bitset0_b64", "s_bitset1_b64")
def s_bitset(instruction):
    type_ = "u64" if instruction.name.endswith("b64") else "u32"
    u = TYPES[type_]
    target = instruction.operands[0]
    old, bit, write = scalar(target, type_), scalar(instruction.operands[1], "u32"), write_scalar(target, type_)
    count = U32(63 if type_ == "u64" else 31)

    def step(g):
        mask = u(1) << (bit(g) & count).astype(u)
        write(g, old(g) | mask if "bitset1" in instruction.name else old(g) & ~mask)

    return step


SAVEEXEC = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "andn2": lambda s, e: s & ~e,
    "orn2": lambda s, e: s | ~e,
    "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e),
    "andn1": lambda s, e: ~s & e,
    "orn1": lambda s, e: ~s | e,
}


@op(*(f"s_{name}_saveexec_b64" for name in SAVEEXEC))
def s_saveexec(instruction):
    combine = SAVEEXEC[instruction.name.split("_")[1]]
    write, source = write_scalar(instruction.operands[0], "u64"), scalar(instruction.operands[1], "u64")

    def step(g):
        old = g.s64(EXEC)
        new = combine(np.broadcast_to(source(g), old.shape), old)
        write(g, old)
        g.set_s64(EXEC, np.ascontiguousarray(new))
        g.scc = new != 0

    return step


@op("s_andn1_wrexec_b64", "s_andn2_wrexec_b64")
def s_wrexec(instruction):
    combine = SAVEEXEC[instruction.name.split("_")[1]]
    write, source = write_scalar(instruction.operands[0], "u64"), scalar(instruction.operands[1], "u64")

    def step(g):
        old = g.s64(EXEC)
        new = np.ascontiguousarray(combine(np.broadcast_to(source(g), old.shape), old))
        write(g, new)
        g.set_s64(EXEC, new)
        g.scc = new != 0

    return step


def _quads(a) -> np.ndarray:
    """Whether any bit of each group of four is set: [n, groups]."""
    bits = _bits(a)
    return np.any(bits.reshape(len(bits), -1, 4), axis=2)


def _packed(bits: np.ndarray, dtype) -> np.ndarray:
    out = np.zeros((len(bits), 8 * dtype().itemsize), bool)
    out[:, : bits.shape[1]] = bits
    return np.packbits(out, axis=1, bitorder="little").view(dtype)[:, 0]


for bits in (32, 64):
    u, dtype = f"u{bits}", TYPES[f"u{bits}"]
    salu(f"s_wqm_b{bits}", f"{u} = {u}", lambda a, dtype=dtype: _packed(_quads(a).repeat(4, axis=1), dtype), "nz")
    salu(f"s_quadmask_b{bits}", f"{u} = {u}", lambda a, dtype=dtype: _packed(_quads(a), dtype), "nz")
salu("s_bitreplicate_b64_b32", "u64 = u32", lambda a: _packed(_bits(a).repeat(2, axis=1), U64))


@op("s_movrels_b32", "s_movrels_b64", "s_movreld_b32", "s_movreld_b64")
def s_movrel(instruction):
    target, source = instruction.operands
    type_ = "u64" if instruction.name.endswith("b64") else "u32"
    reads = instruction.name.startswith("s_movrels")

    def step(g):
        offsets = np.unique(g.s(M0))
        if len(offsets) != 1:
            raise IllegalInstruction(f"{instruction.text}: M0 differs between waves that run together")
        at = (source if reads else target).index + int(offsets[0])
        moved = type(source)("s", at, 2 if type_ in WIDE else 1)
        read = scalar(moved if reads else source, type_)
        write = write_scalar(target if reads else moved, type_)
        write(g, read(g))

    return step
