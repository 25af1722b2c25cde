"""float32 and float64 instructions of the vector unit (ISA guide, "VOP1", "VOP2", "VOP3", "VOPC").

The hardware's functions (reciprocal, roots, exponential, logarithm, sine) are right to about one unit in the last
place; here they are rounded correctly, or as nearly so as evaluation in double precision gives.
"""

from __future__ import annotations

import numpy as np

from . import floats
from .floats import F32, FMA, flush
from .vector_float import ALWAYS, RESULT, float_compare, float_valu

ARITHMETIC = {
    "add": np.add,
    "sub": np.subtract,
    "subrev": lambda a, b: b - a,
    "mul": np.multiply,
}
for _name, _function in ARITHMETIC.items():
    float_valu(f"v_{_name}_f32", "f32 = f32 f32", _function)
for _name in ("add", "mul"):
    float_valu(f"v_{_name}_f64", "f64 = f64 f64", ARITHMETIC[_name])

for _type in ("f32", "f64"):
    float_valu(f"v_fma_{_type}", f"{_type} = {_type} {_type} {_type}", FMA[_type])
    float_valu(f"v_fmac_{_type}", f"{_type} = {_type} {_type}", FMA[_type], accumulate=True)
float_valu("v_fmaak_f32", "f32 = f32 f32 f32", FMA["f32"])
float_valu("v_fmamk_f32", "f32 = f32 f32 f32", FMA["f32"])


def mad(a, b, c):
    """Product and sum, each rounded; denormals are flushed on the way too."""
    return flush(a * b) + c


def _no_zero(a, b):
    """Zero times anything is zero."""
    return np.where((a == 0) | (b == 0), F32(0), a * b)


float_valu("v_mad_f32", "f32 = f32 f32 f32", mad, denormals=ALWAYS)
float_valu("v_mac_f32", "f32 = f32 f32", mad, accumulate=True, denormals=ALWAYS)
float_valu("v_madak_f32", "f32 = f32 f32 f32", mad, denormals=ALWAYS)
float_valu("v_madmk_f32", "f32 = f32 f32 f32", mad, denormals=ALWAYS)
float_valu("v_mad_legacy_f32", "f32 = f32 f32 f32", lambda a, b, c: flush(_no_zero(a, b)) + c, denormals=ALWAYS)
float_valu("v_mul_legacy_f32", "f32 = f32 f32", _no_zero)

for _type in ("f32", "f64"):
    float_valu(f"v_min_{_type}", f"{_type} = {_type} {_type}", floats.minimum, rounds=None, ieee=True)
    float_valu(f"v_max_{_type}", f"{_type} = {_type} {_type}", floats.maximum, rounds=None, ieee=True)
float_valu("v_min3_f32", "f32 = f32 f32 f32", floats.minimum3, rounds=None, ieee=True)
float_valu("v_max3_f32", "f32 = f32 f32 f32", floats.maximum3, rounds=None, ieee=True)
float_valu("v_med3_f32", "f32 = f32 f32 f32", floats.median3, rounds=None, ieee=True)

# -- parts and functions of one number ---------------------------------------------------------------------------------

TO_INTEGER = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rndne": np.rint}
for _type in ("f32", "f64"):
    for _name, _function in TO_INTEGER.items():
        float_valu(f"v_{_name}_{_type}", f"{_type} = {_type}", _function, rounds=None)
    float_valu(f"v_fract_{_type}", f"{_type} = {_type}", floats.fraction)
    float_valu(f"v_frexp_mant_{_type}", f"{_type} = {_type}", floats.mantissa, rounds=None)
    float_valu(f"v_frexp_exp_i32_{_type}", f"i32 = {_type}", floats.frexp_exponent)
    float_valu(f"v_ldexp_{_type}", f"{_type} = {_type} i32", floats.scale)

for _name, _function in {
    "rcp": floats.reciprocal,
    "rcp_iflag": floats.reciprocal,
    "rsq": floats.reciprocal_root,
    "sqrt": floats.square_root,
    "exp": floats.power_of_two,
    "exp_legacy": floats.power_of_two,
    "log": floats.logarithm,
    "log_legacy": floats.logarithm,
}.items():
    float_valu(f"v_{_name}_f32", "f32 = f32", _function, denormals=ALWAYS)
float_valu("v_sin_f32", "f32 = f32", floats.sine)
float_valu("v_cos_f32", "f32 = f32", floats.cosine)
for _name, _function in {
    "rcp": floats.reciprocal,
    "rsq": floats.reciprocal_root,
    "sqrt": floats.square_root,
}.items():
    float_valu(f"v_{_name}_f64", "f64 = f64", _function)


def _two_over_pi(bits: int) -> int:
    """The first bits of 2/pi's binary fraction (Machin's formula)."""
    one = 1 << bits + 64

    def arctan_of_inverse(n: int) -> int:
        total = term = one // n
        k, sign = 1, 1
        while term:
            term //= n * n
            k, sign = k + 2, -sign
            total += sign * (term // k)
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return (2 * one << bits) // pi


_SEGMENT, _FRACTION = 53, 1201
_DIGITS = _two_over_pi(_FRACTION)


def _trig_preop(x, segment):
    """A 53-bit segment of 2/pi, chosen by ``segment`` and x's size."""
    exponent = floats.exponent(x)
    shift = (segment & np.uint32(31)).astype(np.int32) * _SEGMENT + np.maximum(exponent - 1077, 0)
    shift, exponent = np.broadcast_arrays(shift, exponent)
    result = np.empty(shift.shape)
    for value in np.unique(shift):
        digits = (_DIGITS << int(value) & (1 << _FRACTION) - 1) >> _FRACTION - _SEGMENT
        result[shift == value] = digits
    return np.ldexp(result, np.where(exponent >= 1968, 128, 0) - _SEGMENT - shift)


float_valu("v_trig_preop_f64", "f64 = f64 u32", _trig_preop)

# -- comparisons -------------------------------------------------------------------------------------------------------


def _less_or_greater(a, b):
    return (a < b) | (a > b)


def _ordered(a, b):
    return ~(np.isnan(a) | np.isnan(b))


RELATIONS = {
    "f": lambda a, b: np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b)), bool),
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "lg": _less_or_greater,
    "ge": np.greater_equal,
    "o": _ordered,
}
OPPOSITE = {"f": "tru", "lt": "nlt", "eq": "neq", "le": "nle", "gt": "ngt", "lg": "nlg", "ge": "nge", "o": "u"}
for _type in ("f32", "f64", "f16"):
    for _relation, _function in RELATIONS.items():
        float_compare(f"v_cmp_{_relation}_{_type}", f"{_type} {_type}", _function)
        float_compare(f"v_cmp_{OPPOSITE[_relation]}_{_type}", f"{_type} {_type}", lambda a, b, f=_function: ~f(a, b))
for _type, _bits in (("f32", "u32"), ("f64", "u32"), ("f16", "u16")):
    float_compare(f"v_cmp_class_{_type}", f"{_type} {_bits}", lambda x, which: floats.classes(x) & which != 0, RESULT)
