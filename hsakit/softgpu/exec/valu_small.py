"""Integer instructions on 16 bits and on bytes (ISA guide, "VOP2" and "VOP3").

Results of VOP2 instructions zero the upper half of their register; those that came with GFX9's OP_SEL keep the other
half.
"""

from __future__ import annotations

import numpy as np

from .vector import valu

U8, U16, U32, U64 = np.uint8, np.uint16, np.uint32, np.uint64
I16, I32, I64 = np.int16, np.int32, np.int64

valu("v_add_u16", "u16 = u16 u16", np.add, saturate=True)
valu("v_sub_u16", "u16 = u16 u16", np.subtract, saturate=True)
valu("v_subrev_u16", "u16 = u16 u16", lambda a, b: b - a, saturate=True)
valu("v_mul_lo_u16", "u16 = u16 u16", np.multiply, saturate=True)
valu("v_lshlrev_b16", "u16 = u16 u16", lambda a, b: b << (a & U16(15)))
valu("v_lshrrev_b16", "u16 = u16 u16", lambda a, b: b >> (a & U16(15)))
valu("v_ashrrev_i16", "i16 = u16 i16", lambda a, b: b >> (a & U16(15)).astype(I16))
valu("v_add_i16", "i16 = i16 i16", np.add, saturate=True, keep=True)
valu("v_sub_i16", "i16 = i16 i16", np.subtract, saturate=True, keep=True)


def _mad(a, b, c):
    return a * b + c


def _med3(a, b, c):
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


for _t in ("u16", "i16"):
    valu(f"v_min_{_t}", f"{_t} = {_t} {_t}", np.minimum)
    valu(f"v_max_{_t}", f"{_t} = {_t} {_t}", np.maximum)
    valu(f"v_mad_{_t}", f"{_t} = {_t} {_t} {_t}", _mad, saturate=True, keep=True)
    valu(f"v_mad_legacy_{_t}", f"{_t} = {_t} {_t} {_t}", _mad, saturate=True)
    valu(f"v_min3_{_t}", f"{_t} = {_t} {_t} {_t}", lambda a, b, c: np.minimum(np.minimum(a, b), c), keep=True)
    valu(f"v_max3_{_t}", f"{_t} = {_t} {_t} {_t}", lambda a, b, c: np.maximum(np.maximum(a, b), c), keep=True)
    valu(f"v_med3_{_t}", f"{_t} = {_t} {_t} {_t}", _med3, keep=True)
for _out, _in, _dtype in (("u32", "u16", U32), ("i32", "i16", I32)):
    valu(
        f"v_mad_{_out}_{_in}", f"{_out} = {_in} {_in} {_out}",
        lambda a, b, c, d=_dtype: np.asarray(a).astype(np.result_type(d, c)) * b + c, saturate=True,
    )  # fmt: skip

# -- bytes -------------------------------------------------------------------------------------------------------------


def _difference(a, b, bits: int, skip_zero: bool = False):
    """Sum of the absolute differences of the fields of ``bits`` bits, as int64."""
    a, b, mask = np.asarray(a).astype(I64), np.asarray(b).astype(I64), I64((1 << bits) - 1)
    total = I64(0)
    for shift in range(0, 32, bits):
        x, y = a >> I64(shift) & mask, b >> I64(shift) & mask
        total = total + (np.where(y == 0, I64(0), np.abs(x - y)) if skip_zero else np.abs(x - y))
    return total


valu("v_sad_u8", "u32 = u32 u32 u32", lambda a, b, c: _difference(a, b, 8) + c, saturate=True)
valu("v_sad_hi_u8", "u32 = u32 u32 u32", lambda a, b, c: (_difference(a, b, 8) << I64(16)) + c, saturate=True)
valu("v_sad_u16", "u32 = u32 u32 u32", lambda a, b, c: _difference(a, b, 16) + c, saturate=True)
valu("v_sad_u32", "u32 = u32 u32 u32", lambda a, b, c: _difference(a, b, 32) + c, saturate=True)
valu("v_msad_u8", "u32 = u32 u32 u32", lambda a, b, c: _difference(a, b, 8, skip_zero=True) + c, saturate=True)


def _four(skip_zero: bool):
    """Differences with ``a`` taken from each of its first four bytes on; sums of 16 bits."""

    def differences(a, b, c):
        out = U64(0)
        for i in range(4):
            window = np.asarray(a) >> U64(8 * i) & U64(0xFFFFFFFF)
            total = _difference(window, b, 8, skip_zero).astype(U64) + (c >> U64(16 * i) & U64(0xFFFF))
            out = out | (total & U64(0xFFFF)) << U64(16 * i)
        return out

    return differences


valu("v_qsad_pk_u16_u8", "u64 = u64 u32 u64", _four(False))
valu("v_mqsad_pk_u16_u8", "u64 = u64 u32 u64", _four(True))


def _lerp(a, b, c):
    """Average of each byte; ``c``'s lowest bit of the byte rounds up."""
    out = U32(0)
    for shift in (0, 8, 16, 24):
        x, y = (v >> U32(shift) & U32(0xFF) for v in (a, b))
        out = out | (x + y + (c >> U32(shift) & U32(1)) >> U32(1)) << U32(shift)
    return out


valu("v_lerp_u8", "u32 = u32 u32 u32", _lerp)
