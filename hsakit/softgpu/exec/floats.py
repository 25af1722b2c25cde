"""IEEE 754 arithmetic on arrays, to the last bit: what numpy leaves out or leaves to the host.

Arrays are float16, float32 or float64; results round to nearest even.  Signs and payloads of NaNs are the hardware's
where the ISA guide gives them: a NaN that an operation makes is negative and quiet.
"""

from __future__ import annotations

import threading
from fractions import Fraction
from typing import NamedTuple

import numpy as np

F16, F32, F64 = np.float16, np.float32, np.float64
U16, U32, U64 = np.uint16, np.uint32, np.uint64


class Format(NamedTuple):
    bits: type
    """unsigned integer type of the same size"""
    sign: np.unsignedinteger
    exponent: np.unsignedinteger
    """mask of the exponent field"""
    fraction_bits: int
    bias: int
    quiet: np.unsignedinteger
    """the bit that tells a quiet NaN from a signaling one"""
    nan: np.floating
    """the NaN that operations make"""


def _format(dtype, bits, exponent_bits: int, fraction_bits: int) -> Format:
    exponent = (1 << exponent_bits) - 1 << fraction_bits
    sign, quiet = 1 << exponent_bits + fraction_bits, 1 << fraction_bits - 1
    nan = np.array([sign | exponent | quiet], bits).view(dtype)[0]
    return Format(bits, bits(sign), bits(exponent), fraction_bits, (1 << exponent_bits - 1) - 1, bits(quiet), nan)


FORMATS = {
    np.dtype(F16): _format(F16, U16, 5, 10),
    np.dtype(F32): _format(F32, U32, 8, 23),
    np.dtype(F64): _format(F64, U64, 11, 52),
}


def bits_of(x) -> np.ndarray:
    x = np.asarray(x)
    return x.view(FORMATS[x.dtype].bits)


def exponent(x) -> np.ndarray:
    """The biased exponent field, as int32."""
    f = FORMATS[x.dtype]
    return ((bits_of(x) & f.exponent) >> f.bits(f.fraction_bits)).astype(np.int32)


def is_denormal(x) -> np.ndarray:
    return (bits_of(x) & FORMATS[x.dtype].exponent == 0) & (x != 0)


def flush(x) -> np.ndarray:
    """Denormals become zeros of their sign."""
    f, bits = FORMATS[x.dtype], bits_of(x)
    return np.where(bits & f.exponent == 0, bits & f.sign, bits).view(x.dtype)


def quiet(x) -> np.ndarray:
    """Signaling NaNs become quiet ones."""
    nan = np.isnan(x)
    if not nan.any():
        return x
    f, bits = FORMATS[x.dtype], bits_of(x)
    return np.where(nan, bits | f.quiet, bits).view(x.dtype)


def is_signaling(x) -> np.ndarray:
    return np.isnan(x) & (bits_of(x) & FORMATS[x.dtype].quiet == 0)


def invalid(result, *arguments) -> np.ndarray:
    """``result`` with NaNs that did not come from an argument as the hardware makes them (libraries differ)."""
    made = np.isnan(result)
    if not made.any():
        return result
    for a in arguments:
        made = made & ~np.isnan(a)
    return np.where(made, FORMATS[result.dtype].nan, result)


# -- float16, which numpy converts slowly ------------------------------------------------------------------------------


def widen(x) -> np.ndarray:
    """float16 to float32; NaNs become quiet."""
    bits = np.asarray(x).view(U16).astype(U32)
    size = bits & U32(0x7FFF)
    result = ((size << U32(13)).view(F32) * F32(2.0**112)).view(U32)  # exact, denormals too
    special = size >= U32(0x7C00)
    if special.any():
        result = np.where(special, size << U32(13) | U32(0x7F800000), result)
        result = np.where(size > U32(0x7C00), result | U32(0x00400000), result)
    return (result | (bits & U32(0x8000)) << U32(16)).view(F32)


def narrow(x) -> np.ndarray:
    """float32 to float16, to nearest even."""
    size = bits_of(x) & U32(0x7FFFFFFF)
    # half of the last place less one, and one more if the last bit kept is set
    normal = size + (U32(0xFFF) - U32(112 << 23)) + (size >> U32(13) & U32(1)) >> U32(13)
    # adding 0.5 brings a smaller number's bits to where those of a denormal stand, and rounds them
    small = (size.view(F32) + F32(0.5)).view(U32) - U32(0x3F000000)
    return _assemble(x, size, normal, small, U32(0x477FF000), 0x7C00)


def narrow_toward_zero(x) -> np.ndarray:
    """float32 to float16."""
    size = bits_of(x) & U32(0x7FFFFFFF)
    normal = size - U32(112 << 23) >> U32(13)
    small = (np.minimum(size.view(F32), F32(1)) * F32(1 << 24)).astype(U32)
    return _assemble(x, size, normal, small, U32(0x47800000), 0x7BFF)


def _assemble(x, size, normal, small, too_large, largest: int) -> np.ndarray:
    """A float16 from a float32's ``size`` (its bits without sign) and what that is as a normal and a denormal one."""
    result = np.where(size < U32(0x38800000), small, normal)
    special = size >= too_large
    if special.any():
        nan = U32(0x7E00) | size >> U32(13) & U32(0x1FF)
        infinite, is_nan = size == U32(0x7F800000), size > U32(0x7F800000)
        result = np.where(special, np.where(infinite, U32(0x7C00), np.where(is_nan, nan, U32(largest))), result)
    return (result | bits_of(x) >> U32(16) & U32(0x8000)).astype(U16).view(F16)


# -- fused multiply-add ------------------------------------------------------------------------------------------------


def _add_to_odd(p, c) -> np.ndarray:
    """p + c, of which the last bit is 1 where it is not exact: rounding it once more, to a type with at least two bits
    less, gives the rounded exact sum (S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums")."""
    s = p + c
    b = s - p
    error = (p - (s - b)) + (c - b)  # exactly p + c - s (Knuth's TwoSum)
    f = FORMATS[s.dtype]
    inexact = (error != 0) & np.isfinite(s) & (bits_of(s) & f.bits(1) == 0)
    away = (error > 0) == (s > 0)
    # one place up or down; in bytes, as choosing by unpredictable conditions is slow
    step = (away.view(np.int8) * np.int8(2) - np.int8(1)) * inexact.view(np.int8)
    return (bits_of(s) + step.astype(f.bits)).view(s.dtype)


_TINY = U32(2 * 0x00800000 - 1)
_TIE = np.int64(-1 << 63)
_scratch = threading.local()


def _buffers(shape) -> list[np.ndarray]:
    """Three arrays of float64 and one of uint32, kept: allocating such large ones costs more than the arithmetic."""
    kept = getattr(_scratch, "buffers", None)
    if kept is None or kept[0].shape != shape:
        kept = _scratch.buffers = [np.empty(shape, t) for t in (F64, F64, F64, U32)]
    return kept


def fma32(a, b, c, out=None) -> np.ndarray:
    """float32: a * b + c with one rounding, into ``out`` (which may be one of the arguments) or a new array."""
    shape = np.broadcast(a, b, c).shape
    p, c64, s, size = _buffers(shape)
    np.copyto(p, a)
    np.copyto(c64, b)
    np.multiply(p, c64, out=p)  # exact
    np.copyto(c64, c)
    np.add(p, c64, out=s)  # rounded to 53 bits
    result = np.empty(shape, F32) if out is None else out
    np.copyto(result, s, casting="unsafe")
    # Rounding twice goes wrong only where the first result lies half-way between two floats.  Of normal floats: its
    # last 29 bits are then 1000...; denormal ones are told from their size alone.
    tie = s.view(U64)
    np.left_shift(tie, U64(35), out=tie)
    np.left_shift(result.view(U32), U32(1), out=size)
    np.subtract(size, U32(1), out=size)  # of a zero: the largest
    if tie.view(np.int64).min() == _TIE or size.min() < _TINY:
        again = (tie == U64(1 << 63)) | (size < _TINY)
        result[again] = _add_to_odd(p[again], c64[again]).astype(F32)
    return result


def fma16(a, b, c) -> np.ndarray:
    """float16: a * b + c with one rounding."""
    return narrow(_add_to_odd(widen(a) * widen(b), widen(c)))


def fma64(a, b, c) -> np.ndarray:
    """float64: a * b + c with one rounding."""
    product = a * b
    plain = product + c
    a, b, c, product = np.broadcast_arrays(a, b, c, product)
    # error-free transformations, where no intermediate overflows or loses bits to underflow
    safe = _between(a, 1e-270, 1e270) & _between(b, 1e-270, 1e270) & _between(c, 1e-270, 1e300)
    safe &= _between(product, 1e-270, 1e300)
    result = _fma64(a, b, c)
    if safe.all():
        return result
    finite, zero = np.isfinite(a) & np.isfinite(b), (a == 0) | (b == 0)
    plain = np.where(finite & np.isinf(c), c, plain)
    plain = np.where(~zero & (c == 0), product, plain)  # a product that underflows keeps its sign
    result = np.where(safe, result, plain)
    for at in zip(*np.nonzero(finite & np.isfinite(c) & ~zero & (c != 0) & ~safe)):
        result[at] = _fma64_exact(float(a[at]), float(b[at]), float(c[at]))
    return result


def _between(x, low, high):
    size = np.abs(x)
    return (size > low) & (size < high)


def _split(x):
    """x as the sum of two floats of 26 bits (Veltkamp)."""
    t = x * F64((1 << 27) + 1)
    high = t - (t - x)
    return high, x - high


def _fma64(a, b, c):
    p = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    e = ((ah * bh - p) + ah * bl + al * bh) + al * bl  # exactly a * b - p (Dekker)
    u = c + e
    t = u - c
    ul = (c - (u - t)) + (e - t)  # u + ul == c + e
    v = p + u
    t = v - p
    vl = (p - (v - t)) + (u - t)  # v + vl == p + u
    return v + _add_to_odd(ul, vl)


def _fma64_exact(a: float, b: float, c: float, power: int = 0) -> float:
    exact = (Fraction(a) * Fraction(b) + Fraction(c)) * Fraction(2) ** power
    if not exact:
        return 0.0
    try:
        return exact.numerator / exact.denominator  # Python rounds this correctly, denormal results too
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def fma_scaled(a, b, c, power) -> np.ndarray:
    """(a * b + c) * 2**power with one rounding, of float32 or float64."""
    if c.dtype == F32:
        exact_enough = _add_to_odd(np.multiply(a, b, dtype=F64), c.astype(F64))
        return np.ldexp(exact_enough, power).astype(F32)
    a, b, c, power = np.broadcast_arrays(a, b, c, power)
    sum_ = fma64(a, b, c)
    result = np.ldexp(sum_, power)
    for at in zip(*np.nonzero((np.abs(result) < np.finfo(F64).tiny) & (sum_ != 0) & (power < 0))):
        result[at] = _fma64_exact(float(a[at]), float(b[at]), float(c[at]), int(power[at]))
    return result


FMA = {"f16": fma16, "f32": fma32, "f64": fma64}


# -- the smaller and the larger ----------------------------------------------------------------------------------------


def _with_nans(result, a, b, ieee: bool) -> np.ndarray:
    """A number wins over a NaN, except a signaling one in IEEE mode."""
    if not np.isnan(result).any():  # numpy hands on NaNs
        return result
    result = np.where(np.isnan(a), b, np.where(np.isnan(b), a, result))
    if ieee:
        result = np.where(is_signaling(a), quiet(a), np.where(is_signaling(b), quiet(b), result))
    return result


def minimum(a, b, ieee: bool) -> np.ndarray:
    """-0 is less than +0."""
    result = np.minimum(a, b)
    if not result.all():
        result = np.where((a == 0) & (b == 0), (bits_of(a) | bits_of(b)).view(result.dtype), result)
    return _with_nans(result, a, b, ieee)


def maximum(a, b, ieee: bool) -> np.ndarray:
    result = np.maximum(a, b)
    if not result.all():
        result = np.where((a == 0) & (b == 0), (bits_of(a) & bits_of(b)).view(result.dtype), result)
    return _with_nans(result, a, b, ieee)


def minimum3(a, b, c, ieee: bool) -> np.ndarray:
    return minimum(minimum(a, b, ieee), c, ieee)


def maximum3(a, b, c, ieee: bool) -> np.ndarray:
    return maximum(maximum(a, b, ieee), c, ieee)


def median3(a, b, c, ieee: bool) -> np.ndarray:
    top = maximum3(a, b, c, ieee)
    rest = np.where(top == b, maximum(a, c, ieee), maximum(a, b, ieee))
    result = np.where(top == a, maximum(b, c, ieee), rest)
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(nan, minimum3(a, b, c, ieee), result) if nan.any() else result


# -- parts of a number -------------------------------------------------------------------------------------------------


def fraction(x) -> np.ndarray:
    """x - floor(x), less than 1."""
    below_one = (np.array(1, x.dtype).view(FORMATS[x.dtype].bits) - FORMATS[x.dtype].bits(1)).view(x.dtype)
    result = x - np.floor(x)
    return np.where(result >= 1, below_one, result)


def mantissa(x) -> np.ndarray:
    """In [0.5, 1), with x's sign; infinities and NaNs as they are."""
    return np.where(np.isfinite(x), np.frexp(np.where(np.isfinite(x), x, x.dtype.type(0)))[0], quiet(x))


def frexp_exponent(x) -> np.ndarray:
    """int32: x == mantissa(x) * 2**frexp_exponent(x); 0 of zeros, infinities and NaNs."""
    return np.frexp(np.where(np.isfinite(x), x, x.dtype.type(0)))[1].astype(np.int32)


def scale(x, power) -> np.ndarray:
    """x * 2**power with one rounding."""
    if x.dtype == F64:
        return np.ldexp(x, np.clip(power, -4200, 4200).astype(np.int32))
    if x.dtype == F16:  # exact in float32, where it matters
        return narrow(np.ldexp(widen(x), np.clip(power, -80, 80).astype(np.int32)))
    return np.ldexp(x.astype(F64), np.clip(power, -400, 400).astype(np.int32)).astype(x.dtype)


def classes(x) -> np.ndarray:
    """uint32 with one bit set, as V_CMP_CLASS numbers the kinds of numbers."""
    bits = bits_of(x)
    f = FORMATS[x.dtype]
    field, negative = bits & f.exponent, np.signbit(x)
    normal = np.where(negative, 3, 8)
    small = np.where(x == 0, np.where(negative, 5, 6), np.where(negative, 4, 7))
    special = np.where(np.isinf(x), np.where(negative, 2, 9), np.where(bits & f.quiet == 0, 0, 1))
    kind = np.where(field == 0, small, np.where(field == f.exponent, special, normal))
    return U32(1) << kind.astype(U32)


# -- functions ---------------------------------------------------------------------------------------------------------


def _turns(x):
    """x revolutions as (quarter turn 0..3, sine, cosine of the rest, which is at most an eighth), in float64."""
    x = x.astype(F64)
    x = x - np.rint(x)
    quarter = np.rint(4 * x)
    rest = 2 * np.pi * (x - quarter / 4)
    return quarter.astype(np.int64) & 3, np.sin(rest), np.cos(rest)


def sine(x) -> np.ndarray:
    """sin(2 pi x); exact at quarter turns, where zeros are positive except of -0."""
    finite = np.isfinite(x)
    quarter, s, c = _turns(np.where(finite, x, x.dtype.type(0)))
    result = np.choose(quarter, [s, c, -s, -c]).astype(x.dtype) + x.dtype.type(0)
    result = np.where(x == 0, x, result)
    return np.where(finite, result, np.where(np.isnan(x), quiet(x), FORMATS[x.dtype].nan))


def cosine(x) -> np.ndarray:
    """cos(2 pi x)."""
    finite = np.isfinite(x)
    quarter, s, c = _turns(np.where(finite, x, x.dtype.type(0)))
    result = np.choose(quarter, [c, -s, -c, s]).astype(x.dtype) + x.dtype.type(0)
    return np.where(finite, result, np.where(np.isnan(x), quiet(x), FORMATS[x.dtype].nan))


def in_double(function):
    """A function evaluated in float64 and rounded once to the argument's type."""

    def evaluate(x):
        return invalid(quiet(function(x.astype(F64)).astype(x.dtype)), x)

    return evaluate


reciprocal = in_double(lambda x: 1 / x)
square_root = in_double(np.sqrt)
reciprocal_root = in_double(lambda x: 1 / np.sqrt(x))
power_of_two = in_double(np.exp2)
logarithm = in_double(np.log2)
