"""Division as compilers build it: V_DIV_SCALE moves operands out of the way of denormals, Newton-Raphson steps follow,
V_DIV_FMAS is the last of them and takes the scale back, V_DIV_FIXUP puts the special cases right.

Where the ISA guide's text contradicts itself (a denominator near the largest number scaled *up*; a fixed 2**32 to take
any scale back; a quotient that is NaN because the steps overflowed), this is what parts were seen to do and what makes
the compiler's sequence come out right.
"""

from __future__ import annotations

import numpy as np

from . import floats
from .decode import VCC, Instruction
from .floats import FORMATS
from .program import only, op
from .vector import OUTPUT, result_writer, sources
from .vector_float import RESULT, Governed, by_mode, float_valu

# the power of 2 that operands are scaled by; the quotient's exponent from which on they are; the largest exponent field
# of a tiny numerator
SCALES = {"f32": (64, 96, 23), "f64": (128, 768, 53)}
# quotients with a smaller exponent are zero (of f16, none is)
UNDERFLOW = {np.dtype(np.float32): -150, np.dtype(np.float64): -1075}


def _scale(type_: str, value, denominator, numerator):
    """(the value, scaled if it must be; whether the quotient must be scaled back)."""
    power, far, tiny = SCALES[type_]
    f = FORMATS[value.dtype]
    below, above = floats.exponent(denominator), floats.exponent(numerator)
    quotient = above - below
    none = (denominator == 0) | (numerator == 0)
    large, small = quotient >= far, quotient <= -far
    denormal, reciprocal_denormal = below == 0, below >= 2 * f.bias - 1
    is_denominator, is_numerator = value == denominator, value == numerator
    move = np.select(
        [large, denormal, small & reciprocal_denormal, reciprocal_denormal, small, above <= tiny],
        [is_denominator * power, power, is_denominator * -power, -power, is_numerator * power, power],
    )
    result = np.where(none, f.nan, np.where(move == 0, value, floats.scale(value, move)))
    return result, none | large | small & ~denormal


@op("v_div_scale_f32", "v_div_scale_f64")
def v_div_scale(instruction: Instruction):
    only(instruction)
    target, flags, *operands = instruction.operands
    type_ = instruction.name[-3:]
    reads, write = sources(instruction, tuple(operands), [type_] * 3), result_writer(instruction, type_)
    scaled = Governed(lambda *args: _scale(type_, *args)[0], type_, [type_] * 3, rounds=type_)
    flag = Governed(lambda *args: _scale(type_, *args)[1], "mask", [type_] * 3, rounds=type_)

    @by_mode
    def step(g):
        args = [read(g) for read in reads]
        must, value = flag(g.mode, *args), scaled(g.mode, *args)
        g.set_mask(flags.index, must & g.lanes)
        write(g, value)

    return step


@op("v_div_fmas_f32", "v_div_fmas_f64")
def v_div_fmas(instruction: Instruction):
    only(instruction, *OUTPUT)
    type_ = instruction.name[-3:]
    power = SCALES[type_][0]
    reads, write = sources(instruction, instruction.operands[1:], [type_] * 3), result_writer(instruction, type_)

    def function(a, b, c, scaled):
        back = np.where(floats.exponent(c) > FORMATS[c.dtype].bias, power, -power)
        return floats.fma_scaled(a, b, c, np.where(scaled, back, 0))

    governed = Governed(function, type_, [type_] * 3 + ["mask"], denormals=RESULT, rounds=type_)

    @by_mode
    def step(g):
        write(g, governed(g.mode, *[read(g) for read in reads], g.mask(VCC)))

    return step


def _fixup(quotient, denominator, numerator):
    dtype = quotient.dtype.type
    f = FORMATS[quotient.dtype]
    sign = np.where(np.signbit(denominator) ^ np.signbit(numerator), dtype(-1), dtype(1))
    below, above = np.abs(denominator), np.abs(numerator)
    size = np.abs(quotient)
    if quotient.dtype in UNDERFLOW:
        zero = floats.exponent(numerator) - floats.exponent(denominator) < UNDERFLOW[quotient.dtype]
        size = np.where(zero, dtype(0), np.where(np.isnan(size), dtype(np.inf), size))  # the steps overflowed
    result = np.copysign(size, sign)
    result = np.where((below == np.inf) | (above == 0), np.copysign(dtype(0), sign), result)
    result = np.where((below == 0) | (above == np.inf), np.copysign(dtype(np.inf), sign), result)
    result = np.where((below == 0) & (above == 0) | (below == np.inf) & (above == np.inf), f.nan, result)
    result = np.where(np.isnan(denominator), floats.quiet(denominator), result)
    return np.where(np.isnan(numerator), floats.quiet(numerator), result)


for _type in SCALES:
    float_valu(f"v_div_fixup_{_type}", f"{_type} = {_type} {_type} {_type}", _fixup)
float_valu("v_div_fixup_f16", "f16 = f16 f16 f16", _fixup, keep=True)
float_valu("v_div_fixup_legacy_f16", "f16 = f16 f16 f16", _fixup)
