"""Integer and bit instructions of the vector unit (ISA guide, "VOP1", "VOP2", "VOP3", "VOPC")."""

from __future__ import annotations

import numpy as np

from .decode import Instruction
from .operands import pair, read_mask, scalar, vector, write_scalar, write_vector
from .program import only, op
from .state import LANES
from .vector import DPP, SDWA, compare, result_writer, sources, valu

U8, U32, U64 = np.uint8, np.uint32, np.uint64
I32, I64 = np.int32, np.int64


def wide(value) -> np.ndarray:
    return np.asarray(value).astype(U64)


# -- 32-bit ------------------------------------------------------------------------------------------------------------

valu("v_mov_b32", "b32 = b32", np.positive)
valu("v_add_u32", "u32 = u32 u32", np.add, saturate=True)
valu("v_sub_u32", "u32 = u32 u32", np.subtract, saturate=True)
valu("v_subrev_u32", "u32 = u32 u32", lambda a, b: b - a, saturate=True)
valu("v_add_i32", "i32 = i32 i32", np.add, saturate=True)
valu("v_sub_i32", "i32 = i32 i32", np.subtract, saturate=True)
valu("v_mul_lo_u32", "u32 = u32 u32", np.multiply)
valu("v_mul_hi_u32", "u32 = u32 u32", lambda a, b: wide(a) * wide(b) >> U64(32))
valu("v_mul_hi_i32", "i32 = i32 i32", lambda a, b: np.asarray(a).astype(I64) * b >> I64(32))


def _u24(a):
    return a & U32(0xFFFFFF)


def _i24(a):
    return ((a & I32(0xFFFFFF)) ^ I32(0x800000)) - I32(0x800000)


valu("v_mul_u32_u24", "u32 = u32 u32", lambda a, b: _u24(a) * _u24(b))
valu("v_mul_hi_u32_u24", "u32 = u32 u32", lambda a, b: wide(_u24(a)) * wide(_u24(b)) >> U64(32))
valu("v_mad_u32_u24", "u32 = u32 u32 u32", lambda a, b, c: _u24(a) * _u24(b) + c, saturate=True)
valu("v_mul_i32_i24", "i32 = i32 i32", lambda a, b: _i24(a) * _i24(b))
valu("v_mul_hi_i32_i24", "i32 = i32 i32", lambda a, b: np.asarray(_i24(a)).astype(I64) * _i24(b) >> I64(32))
valu("v_mad_i32_i24", "i32 = i32 i32 i32", lambda a, b, c: _i24(a) * _i24(b) + c, saturate=True)
valu("v_and_b32", "u32 = u32 u32", np.bitwise_and)
valu("v_or_b32", "u32 = u32 u32", np.bitwise_or)
valu("v_xor_b32", "u32 = u32 u32", np.bitwise_xor)
valu("v_xnor_b32", "u32 = u32 u32", lambda a, b: ~(a ^ b))
valu("v_not_b32", "u32 = u32", np.invert)
valu("v_lshlrev_b32", "u32 = u32 u32", lambda a, b: b << (a & U32(31)))
valu("v_lshrrev_b32", "u32 = u32 u32", lambda a, b: b >> (a & U32(31)))
valu("v_ashrrev_i32", "i32 = u32 i32", lambda a, b: b >> (a & U32(31)).astype(I32))
valu("v_min_u32", "u32 = u32 u32", np.minimum)
valu("v_max_u32", "u32 = u32 u32", np.maximum)
valu("v_min_i32", "i32 = i32 i32", np.minimum)
valu("v_max_i32", "i32 = i32 i32", np.maximum)
valu("v_min3_u32", "u32 = u32 u32 u32", lambda a, b, c: np.minimum(np.minimum(a, b), c))
valu("v_max3_u32", "u32 = u32 u32 u32", lambda a, b, c: np.maximum(np.maximum(a, b), c))
valu("v_min3_i32", "i32 = i32 i32 i32", lambda a, b, c: np.minimum(np.minimum(a, b), c))
valu("v_max3_i32", "i32 = i32 i32 i32", lambda a, b, c: np.maximum(np.maximum(a, b), c))


def _med3(a, b, c):
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


valu("v_med3_u32", "u32 = u32 u32 u32", _med3)
valu("v_med3_i32", "i32 = i32 i32 i32", _med3)
valu("v_add3_u32", "u32 = u32 u32 u32", lambda a, b, c: a + b + c)
valu("v_or3_b32", "u32 = u32 u32 u32", lambda a, b, c: a | b | c)
valu("v_and_or_b32", "u32 = u32 u32 u32", lambda a, b, c: a & b | c)
valu("v_xad_u32", "u32 = u32 u32 u32", lambda a, b, c: (a ^ b) + c)
valu("v_lshl_add_u32", "u32 = u32 u32 u32", lambda a, b, c: (a << (b & U32(31))) + c)
valu("v_add_lshl_u32", "u32 = u32 u32 u32", lambda a, b, c: a + b << (c & U32(31)))
valu("v_lshl_or_b32", "u32 = u32 u32 u32", lambda a, b, c: a << (b & U32(31)) | c)
valu("v_bfi_b32", "u32 = u32 u32 u32", lambda a, b, c: a & b | ~a & c)


def _bfe_u32(a, b, c):
    offset, width = b & U32(31), c & U32(31)
    return a >> offset & (U32(1) << width) - U32(1)


def _bfe_i32(a, b, c):
    offset, width = b & U32(31), c & U32(31)
    field = _bfe_u32(np.asarray(a).view(U32), b, c)
    top = np.where(width == 0, U32(0), U32(1) << (width - U32(1) & U32(31)))
    # a field that reaches past bit 31 is filled with the sign by the arithmetic shift
    short = np.asarray(a).view(I32) >> offset.astype(I32)
    return np.where(offset + width < 32, ((field ^ top) - top).view(I32), np.where(width == 0, I32(0), short))


valu("v_bfe_u32", "u32 = u32 u32 u32", _bfe_u32)
valu("v_bfe_i32", "i32 = i32 u32 u32", _bfe_i32)
valu("v_bfm_b32", "u32 = u32 u32", lambda a, b: ((U32(1) << (a & U32(31))) - U32(1)) << (b & U32(31)))
valu("v_alignbit_b32", "u32 = u32 u32 u32", lambda a, b, c: (wide(a) << U64(32) | wide(b)) >> wide(c & U32(31)))
valu(
    "v_alignbyte_b32", "u32 = u32 u32 u32",
    lambda a, b, c: (wide(a) << U64(32) | wide(b)) >> wide((c & U32(3)) * U32(8)),
)  # fmt: skip


def _perm(a, b, c):
    """Each byte of ``c`` selects a byte of {a, b} (b holds bytes 0-3), a sign, 0x00 or 0xff."""
    choices = np.unique(c)
    if len(choices) == 1:
        return _perm_bytes(a, b, int(choices[0]))
    a, b, c = np.broadcast_arrays(a, b, c)
    out = np.empty(c.shape, U32)
    for choice in choices.tolist():
        at = c == choice
        out[at] = _perm_bytes(a[at], b[at], choice)
    return out


def _perm_bytes(a, b, selector: int):
    out = U32(0)
    for i in range(4):
        select = selector >> 8 * i & 0xFF
        if select <= 7:
            byte = (a if select >= 4 else b) >> U32(8 * (select & 3)) & U32(0xFF)
        elif select <= 11:
            byte = ((a if select >= 10 else b) >> U32(16 * (select & 1) + 15) & U32(1)) * U32(0xFF)
        else:
            byte = U32(0 if select == 12 else 0xFF)
        out = out | byte << U32(8 * i)
    return out


valu("v_perm_b32", "u32 = u32 u32 u32", _perm)


def _bits(a) -> np.ndarray:
    """[..., 32], lowest first."""
    a = np.ascontiguousarray(a, dtype=U32)
    return np.unpackbits(a.view(U8).reshape(*a.shape, 4), axis=-1, bitorder="little").view(bool)


def _first(bits):
    return np.where(bits.any(axis=-1), bits.argmax(axis=-1), -1).astype(I32)


def _reversed(a):
    return np.packbits(_bits(a)[..., ::-1], axis=-1, bitorder="little").view(U32)[..., 0]


valu("v_bfrev_b32", "u32 = u32", _reversed)
valu("v_ffbl_b32", "i32 = u32", lambda a: _first(_bits(a)))
valu("v_ffbh_u32", "i32 = u32", lambda a: _first(_bits(a)[..., ::-1]))


def _ffbh_i32(a):
    bits = _bits(a)[..., ::-1]
    return _first(bits != bits[..., :1])


valu("v_ffbh_i32", "i32 = u32", _ffbh_i32)
valu("v_bcnt_u32_b32", "u32 = u32 u32", lambda a, b: _bits(a).sum(axis=-1).astype(U32) + b)


def _below(half: int):
    lane = np.arange(LANES)
    bits = [(1 << min(max(int(n) - 32 * half, 0), 32)) - 1 for n in lane]
    mask = np.array(bits, dtype=U64).astype(U32)
    return lambda a, b: _bits(a & mask[None, :]).sum(axis=-1).astype(U32) + b


valu("v_mbcnt_lo_u32_b32", "u32 = u32 u32", _below(0))
valu("v_mbcnt_hi_u32_b32", "u32 = u32 u32", _below(1))

# -- 64-bit ------------------------------------------------------------------------------------------------------------

valu("v_mov_b64", "u64 = u64", np.positive)
valu("v_lshlrev_b64", "u64 = u32 u64", lambda a, b: b << wide(a & U32(63)))
valu("v_lshrrev_b64", "u64 = u32 u64", lambda a, b: b >> wide(a & U32(63)))
valu("v_ashrrev_i64", "i64 = u32 i64", lambda a, b: b >> (a & U32(63)).astype(I64))


@op("v_lshl_add_u64")
def v_lshl_add_u64(instruction: Instruction):
    """Every address on gfx940 and later is made by it: worked out on halves, without joining and splitting pairs."""
    only(instruction)
    target, a, b, c = instruction.operands
    (low, high), (add_low, add_high), count = pair(a), pair(c), vector(b, "u32")
    constant = b.kind == "int" and not 1 <= b.value <= 4

    def step(g):
        x, y = low(g), high(g)
        if not constant:
            shift = count(g) & U32(7)
            shift = np.where(shift > 4, U32(0), shift)  # the guide: unsupported counts are a shift of zero
            y = y << shift | x >> U32(1) >> (U32(31) - shift)
            x = x << shift
        total = x + add_low(g)
        upper = y + add_high(g)
        carry = total < x
        if carry.any():  # of addresses, hardly ever
            upper = upper + carry
        g.set_v(target.index, total, target.kind)
        g.set_v(target.index + 1, upper, target.kind)

    return step


# -- comparisons -------------------------------------------------------------------------------------------------------

RELATIONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "f": lambda a, b: np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b)), bool),
    "t": lambda a, b: np.ones(np.broadcast_shapes(np.shape(a), np.shape(b)), bool),
}
for _type in ("u32", "i32", "u64", "i64", "u16", "i16"):
    for _relation, _function in RELATIONS.items():
        compare(f"v_cmp_{_relation}_{_type}", f"{_type} {_type}", _function)

# -- carries -----------------------------------------------------------------------------------------------------------

ZERO = U32(0)


@op("v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32", "v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32")
def v_add_co(instruction: Instruction):
    only(instruction, *SDWA, *DPP, "clamp")
    name = instruction.name
    _, carry_out, a, b, *carry_in = instruction.operands
    first, second = sources(instruction, (a, b), ["u32", "u32"])
    if name.startswith(("v_subrev", "v_subbrev")):
        first, second = second, first
    carry = read_mask(carry_in[0]) if carry_in else None
    write = result_writer(instruction, "u32")
    subtract, clamp = "sub" in name, "clamp" in instruction.modifiers
    limit = U32(0 if subtract else 0xFFFFFFFF)

    def step(g):
        x, y = first(g), second(g)
        total = x - y if subtract else x + y
        out = y > x if subtract else total < y
        if carry and (c := carry(g)).any():
            c = c.astype(U32)
            out = out | (total < c if subtract else total + c < total)
            total = total - c if subtract else total + c
        if out.any():
            g.set_mask(carry_out.index, out & g.lanes)
        else:  # of addresses, as a rule
            g.set_s(carry_out.index, ZERO)
            g.set_s(carry_out.index + 1, ZERO)
        write(g, np.where(out, limit, total) if clamp else total)

    return step


@op("v_mad_u64_u32", "v_mad_i64_i32")
def v_mad_64(instruction: Instruction):
    only(instruction)
    target, carry_out, *ins = instruction.operands
    signed = instruction.name.endswith("i32")
    a, b = (vector(o, "i32" if signed else "u32") for o in ins[:2])
    c, write = vector(ins[2], "i64" if signed else "u64"), write_vector(target, "u64")
    dtype = I64 if signed else U64

    def step(g):
        product = np.asarray(a(g)).astype(dtype) * np.asarray(b(g)).astype(dtype)
        addend = c(g)
        total = np.broadcast_to(product + addend, (g.n, LANES))
        overflow = (total < addend) != (product < 0) if signed else total < product
        g.set_mask(carry_out.index, overflow & g.lanes)
        write(g, total)

    return step


# -- between lanes and scalars -----------------------------------------------------------------------------------------


@op("v_cndmask_b32")
def v_cndmask(instruction: Instruction):
    only(instruction, *SDWA, *DPP)
    _, a, b, mask = instruction.operands
    if_clear, if_set = sources(instruction, (a, b), ["b32", "b32"])
    chosen, write = read_mask(mask), result_writer(instruction, "b32")
    return lambda g: write(g, np.where(chosen(g), if_set(g), if_clear(g)))


def _first_lane(g) -> np.ndarray:
    """The lowest active lane of each wave; lane 0 where none is."""
    return g.lanes.argmax(axis=1)


@op("v_readfirstlane_b32")
def v_readfirstlane(instruction: Instruction):
    write, source = write_scalar(instruction.operands[0], "u32"), vector(instruction.operands[1], "u32")

    def step(g):
        value = np.broadcast_to(source(g), (g.n, LANES))
        write(g, value[np.arange(g.n), _first_lane(g)])

    return step


@op("v_readlane_b32")
def v_readlane(instruction: Instruction):
    write = write_scalar(instruction.operands[0], "u32")
    source, lane = vector(instruction.operands[1], "u32"), scalar(instruction.operands[2], "u32")

    def step(g):
        value = np.broadcast_to(source(g), (g.n, LANES))
        write(g, value[np.arange(g.n), np.broadcast_to(lane(g) & U32(63), (g.n,))])

    return step


@op("v_writelane_b32")
def v_writelane(instruction: Instruction):
    target = instruction.operands[0]
    value, lane = scalar(instruction.operands[1], "u32"), scalar(instruction.operands[2], "u32")
    file = target.kind

    def step(g):
        register = (g.w.vgpr if file == "v" else g.w.acc)[target.index]
        waves = np.arange(g.w.n)[g.sel]
        register[waves, np.broadcast_to(lane(g) & U32(63), (g.n,))] = value(g)  # whatever EXEC says

    return step


@op("v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32", "v_accvgpr_read", "v_accvgpr_write")
def v_accvgpr(instruction: Instruction):
    source, write = vector(instruction.operands[1], "u32"), write_vector(instruction.operands[0], "u32")
    return lambda g: write(g, np.asarray(source(g)))


@op("v_swap_b32")
def v_swap(instruction: Instruction):
    a, b = instruction.operands

    def step(g):
        old_a, old_b = g.v(a.index).copy(), g.v(b.index).copy()
        g.set_v(a.index, old_b)
        g.set_v(b.index, old_a)

    return step


@op("v_nop")
def v_nop(_instruction):
    return lambda g: None
