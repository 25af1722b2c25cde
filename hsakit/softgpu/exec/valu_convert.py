"""Conversions between formats (ISA guide, "VOP1" and "VOP3", V_CVT_*, and the packing of narrow results).

Floats become integers by truncation and saturate; a NaN becomes 0.
"""

from __future__ import annotations

import numpy as np

from . import floats
from .decode import Instruction
from .floats import F32, F64, U16, U32
from .operands import TYPES
from .program import only, op
from .vector import DPP, SDWA, result_writer, sources, valu
from .vector_float import Governed, by_mode, float_valu

I16, I32 = np.int16, np.int32


def saturated(x, dtype) -> np.ndarray:
    """Floats without a fraction to an integer type; a NaN to 0."""
    limits = np.iinfo(dtype)
    x = np.where(np.isnan(x), 0, x.astype(F64))
    return np.clip(x, limits.min, limits.max).astype(np.int64).astype(dtype)


def _to_integer(type_: str):
    dtype = TYPES[type_]
    return lambda x: saturated(np.trunc(x), dtype)


def _to_float(type_: str):
    dtype = TYPES[type_]
    return lambda x: floats.quiet(np.asarray(x).astype(dtype))


for _out, _in in (("i32", "f32"), ("u32", "f32"), ("i32", "f64"), ("u32", "f64"), ("i16", "f16"), ("u16", "f16")):
    float_valu(f"v_cvt_{_out}_{_in}", f"{_out} = {_in}", _to_integer(_out))
for _out, _in in (("f32", "i32"), ("f32", "u32"), ("f16", "i16"), ("f16", "u16")):
    float_valu(f"v_cvt_{_out}_{_in}", f"{_out} = {_in}", _to_float(_out))
for _in in ("i32", "u32"):
    float_valu(f"v_cvt_f64_{_in}", f"f64 = {_in}", _to_float("f64"), rounds=None)
float_valu("v_cvt_f32_f64", "f32 = f64", _to_float("f32"))
float_valu("v_cvt_f64_f32", "f64 = f32", _to_float("f64"), rounds=None)
float_valu("v_cvt_f16_f32", "f16 = f32", floats.narrow)
float_valu("v_cvt_f32_f16", "f32 = f16", floats.widen, rounds=None)


def _floor_or_nearest(round_):
    """To i32 with a rounding of its own; a NaN becomes the largest number of its sign, other than elsewhere."""

    def convert(x):
        result = saturated(round_(x.astype(F64)), I32)
        return np.where(np.isnan(x), np.where(np.signbit(x), I32(-1 << 31), I32((1 << 31) - 1)), result)

    return convert


float_valu("v_cvt_flr_i32_f32", "i32 = f32", _floor_or_nearest(np.floor))
float_valu("v_cvt_rpi_i32_f32", "i32 = f32", _floor_or_nearest(lambda x: np.floor(x + 0.5)))
for _i in range(4):
    _shift = U32(8 * _i)
    float_valu(f"v_cvt_f32_ubyte{_i}", "f32 = u32", lambda a, n=_shift: (a >> n & U32(0xFF)).astype(F32), rounds=None)
float_valu(
    "v_cvt_off_f32_i4", "f32 = u32",
    lambda a: (((a & U32(15)) ^ U32(8)).astype(I32) - I32(8)).astype(F32) / F32(16), rounds=None,
)  # fmt: skip

# -- packed results ----------------------------------------------------------------------------------------------------


def _pack(low, high) -> np.ndarray:
    """Two values of 16 bits as one register."""
    return low.view(U16).astype(U32) | high.view(U16).astype(U32) << U32(16)


def _norm(x, dtype) -> np.ndarray:
    """[-1, 1] or [0, 1] as an integer's whole range."""
    return saturated(np.rint(x.astype(F64) * np.iinfo(dtype).max).clip(-32767, None), dtype)


@op("v_cvt_pkrtz_f16_f32")
def v_cvt_pkrtz(instruction: Instruction):
    only(instruction, *SDWA, *DPP)
    reads, write = sources(instruction, instruction.operands[1:], ["f32", "f32"]), result_writer(instruction, "b32")
    half = Governed(floats.narrow_toward_zero, "f16", ["f32"], rounds=None)
    return by_mode(lambda g: write(g, _pack(*(half(g.mode, read(g)) for read in reads))))


for _type, _dtype in (("i16", I16), ("u16", U16)):
    for _in in ("f32", "f16"):
        float_valu(
            f"v_cvt_pknorm_{_type}_{_in}", f"b32 = {_in} {_in}",
            lambda a, b, d=_dtype: _pack(_norm(a, d), _norm(b, d)), rounds=_in,
        )  # fmt: skip
    float_valu(f"v_cvt_norm_{_type}_f16", f"{_type} = f16", lambda a, d=_dtype: _norm(a, d), rounds="f16")
valu("v_cvt_pk_u16_u32", "u32 = u32 u32", lambda a, b: _pack(*(np.minimum(x, U32(0xFFFF)).astype(U16) for x in (a, b))))
valu("v_cvt_pk_i16_i32", "u32 = i32 i32", lambda a, b: _pack(*(np.clip(x, -32768, 32767).astype(I16) for x in (a, b))))


def _into_byte(x, which, old):
    """A float, rounded, into one byte of a register."""
    value = saturated(np.rint(x), np.uint8).astype(U32)
    shift = (which & U32(3)) * U32(8)
    return old & ~(U32(0xFF) << shift) | value << shift


float_valu("v_cvt_pk_u8_f32", "b32 = f32 u32 u32", _into_byte, rounds="f32")
float_valu("v_cvt_pkaccum_u8_f32", "b32 = f32 u32", _into_byte, accumulate=True, rounds="f32")


def _saturate_bytes(a):
    low, high = (np.clip(half.view(I16), 0, 255).astype(U32) for half in (a.astype(U16), (a >> U32(16)).astype(U16)))
    return low | high << U32(8)


valu("v_sat_pk_u8_i16", "u32 = u32", _saturate_bytes)

# -- 8-bit floats of gfx940: no infinities, no -0, whose place the only NaN takes --------------------------------------


def _fp8_values(fraction_bits: int, bias: int) -> np.ndarray:
    """The 256 numbers, as float32."""
    code = np.arange(256)
    magnitude, fraction = code & 0x7F, code & (1 << fraction_bits) - 1
    field = magnitude >> fraction_bits
    value = np.where(
        field == 0,
        np.ldexp(fraction.astype(F64), 1 - bias - fraction_bits),
        np.ldexp(fraction + float(1 << fraction_bits), field - bias - fraction_bits),
    )
    value = np.where(code & 0x80, -value, value)
    value[0x80] = floats.FORMATS[np.dtype(F32)].nan
    return value.astype(F32)


FP8 = {"fp8": (_fp8_values(3, 8), 3, 8), "bf8": (_fp8_values(2, 16), 2, 16)}


def to_fp8(x, format_: str) -> np.ndarray:
    """float32 to the code of an 8-bit float, to nearest even; what is out of range becomes NaN."""
    values, fraction_bits, bias = FP8[format_]
    size = np.abs(np.where(np.isfinite(x), x, F32(0))).astype(F64)
    step = np.maximum(np.frexp(size)[1] - 1, 1 - bias) - fraction_bits  # the last place's power of two
    units = np.rint(np.ldexp(size, -step)).astype(np.int64)
    # the fraction's carry into the exponent is just what adding does
    code = np.where(units == 0, 0, units + (step - (1 - bias - fraction_bits) << fraction_bits))
    nan = ~np.isfinite(x) | (code > 0x7F)
    return np.where(nan, 0x80, np.where(code == 0, 0, code | np.where(np.signbit(x), 0x80, 0))).astype(U32)


for _name, (_values, _, _) in FP8.items():
    valu(f"v_cvt_f32_{_name}", "f32 = u32", lambda a, v=_values: v[a & U32(0xFF)])
    valu(
        f"v_cvt_pk_f32_{_name}", "u64 = u32",
        lambda a, v=_values: v[a & U32(0xFF)].view(U32).astype(np.uint64)
        | v[a >> U32(8) & U32(0xFF)].view(U32).astype(np.uint64) << np.uint64(32),
    )  # fmt: skip
    float_valu(
        f"v_cvt_pk_{_name}_f32", "u16 = f32 f32",
        lambda a, b, n=_name: (to_fp8(a, n) | to_fp8(b, n) << U32(8)).astype(U16), keep=True,
    )  # fmt: skip
