"""The oracle's arithmetic: IEEE 754 on bit patterns with Python's integers and fractions, no numpy.

Numbers are bits; ``size`` is 16, 32 or 64.  Where several results are right (which of two NaNs is handed on), a
function returns a set of bit patterns.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

FIELDS = {16: (5, 10), 32: (8, 23), 64: (11, 52)}
_CODES = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}


def sign_bit(size):
    return 1 << size - 1


def inf(size):
    e, f = FIELDS[size]
    return (1 << e) - 1 << f


def quiet_bit(size):
    return 1 << FIELDS[size][1] - 1


def default_nan(size):
    return sign_bit(size) | inf(size) | quiet_bit(size)


def magnitude(bits, size):
    return bits & ~sign_bit(size)


def is_nan(bits, size):
    return magnitude(bits, size) > inf(size)


def is_signaling(bits, size):
    return is_nan(bits, size) and not bits & quiet_bit(size)


def is_inf(bits, size):
    return magnitude(bits, size) == inf(size)


def is_zero(bits, size):
    return magnitude(bits, size) == 0


def is_denormal(bits, size):
    return 0 < magnitude(bits, size) < 1 << FIELDS[size][1]


def negative(bits, size):
    return bool(bits & sign_bit(size))


def exponent_field(bits, size):
    return magnitude(bits, size) >> FIELDS[size][1]


def quiet(bits, size):
    return bits | quiet_bit(size) if is_nan(bits, size) else bits


def flush(bits, size):
    return bits & sign_bit(size) if is_denormal(bits, size) else bits


def to_float(bits, size):
    """The same number as a Python float."""
    value, integer = _CODES[size]
    return struct.unpack(value, struct.pack(integer, bits))[0]


def exact(bits, size) -> Fraction:
    return Fraction(to_float(bits, size))


def bits_of(value: float, size) -> int:
    """A float that the format has."""
    code, integer = _CODES[size]
    return struct.unpack(integer, struct.pack(code, value))[0]


def encode(value: Fraction, size, minus_zero=False) -> int:
    """Round to nearest even."""
    e_bits, f_bits = FIELDS[size]
    bias = (1 << e_bits - 1) - 1
    if value == 0:
        return sign_bit(size) if minus_zero else 0
    sign, value = (sign_bit(size), -value) if value < 0 else (0, value)
    power = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** power > value:
        power -= 1
    power = max(power, 1 - bias) - f_bits  # of the last place
    scaled = value / Fraction(2) ** power
    units = round(scaled)  # Python rounds halves to even
    code = units + (power - (1 - bias - f_bits) << f_bits)
    if units < 1 << f_bits:
        code = units
    return sign | min(code, inf(size))


def first_nan(size, *args):
    """Any of the NaN arguments, quiet; None if there is none."""
    nans = {quiet(a, size) for a in args if is_nan(a, size)}
    return nans or None


def add(a, b, size):
    nan = first_nan(size, a, b)
    if nan:
        return nan
    if is_inf(a, size) or is_inf(b, size):
        if is_inf(a, size) and is_inf(b, size):
            return a if a == b else default_nan(size)
        return a if is_inf(a, size) else b
    return encode(exact(a, size) + exact(b, size), size, negative(a, size) and negative(b, size))


def negate(a, size):
    return a ^ sign_bit(size)


def sub(a, b, size):
    return first_nan(size, a, b) or add(a, negate(b, size), size)


def mul(a, b, size):
    nan = first_nan(size, a, b)
    if nan:
        return nan
    sign = (a ^ b) & sign_bit(size)
    if is_inf(a, size) or is_inf(b, size):
        return default_nan(size) if is_zero(a, size) or is_zero(b, size) else sign | inf(size)
    return encode(exact(a, size) * exact(b, size), size, bool(sign)) | sign


def fma(a, b, c, size, power=0):
    """(a * b + c) * 2**power"""
    nan = first_nan(size, a, b, c)
    if is_inf(a, size) and is_zero(b, size) or is_zero(a, size) and is_inf(b, size):
        return (nan or set()) | {default_nan(size)}
    if nan:
        return nan
    sign = (a ^ b) & sign_bit(size)
    if is_inf(a, size) or is_inf(b, size):
        product = sign | inf(size)
        return default_nan(size) if is_inf(c, size) and c != product else product
    if is_inf(c, size):
        return c
    total = exact(a, size) * exact(b, size) + exact(c, size)
    both_negative = bool(sign) and negative(c, size)
    zeros = is_zero(c, size) and (is_zero(a, size) or is_zero(b, size))
    return encode(total * Fraction(2) ** power, size, both_negative and zeros)


def divide(a, b, size):
    nan = first_nan(size, a, b)
    if nan:
        return nan
    sign = (a ^ b) & sign_bit(size)
    if is_inf(a, size):
        return default_nan(size) if is_inf(b, size) else sign | inf(size)
    if is_inf(b, size):
        return sign
    if is_zero(b, size):
        return default_nan(size) if is_zero(a, size) else sign | inf(size)
    return encode(exact(a, size) / exact(b, size), size) | sign


def convert(bits, from_size, to_size):
    if is_nan(bits, from_size):
        shift = FIELDS[to_size][1] - FIELDS[from_size][1]
        payload = bits & (1 << FIELDS[from_size][1]) - 1
        payload = payload << shift if shift > 0 else payload >> -shift
        sign = sign_bit(to_size) if negative(bits, from_size) else 0
        return sign | inf(to_size) | quiet_bit(to_size) | payload
    sign = sign_bit(to_size) if negative(bits, from_size) else 0
    if is_inf(bits, from_size):
        return sign | inf(to_size)
    return encode(exact(bits, from_size), to_size) | sign


def less(a, b, size):
    return not (is_nan(a, size) or is_nan(b, size)) and to_float(a, size) < to_float(b, size)


def minimum(a, b, size, ieee=True):
    """As the ISA guide has it."""
    if ieee and is_signaling(a, size):
        return quiet(a, size)
    if ieee and is_signaling(b, size):
        return quiet(b, size)
    if is_nan(a, size):
        return b
    if is_nan(b, size):
        return a
    if is_zero(a, size) and is_zero(b, size):
        return a if negative(a, size) else b
    return a if less(a, b, size) else b


def maximum(a, b, size, ieee=True):
    if ieee and is_signaling(a, size):
        return quiet(a, size)
    if ieee and is_signaling(b, size):
        return quiet(b, size)
    if is_nan(a, size):
        return b
    if is_nan(b, size):
        return a
    if is_zero(a, size) and is_zero(b, size):
        return b if negative(a, size) else a
    return a if less(b, a, size) or a == b else b


def to_integer(bits, size, low, high, round_=math.trunc):
    """Saturating; NaN to 0."""
    if is_nan(bits, size):
        return 0
    if is_inf(bits, size):
        return low if negative(bits, size) else high
    return max(low, min(high, round_(exact(bits, size))))
