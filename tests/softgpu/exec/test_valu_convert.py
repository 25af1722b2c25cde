"""Conversions between formats, against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.softgpu.exec import ieee
from tests.softgpu.exec.steps import check_vector, execute, make_waves

M16, M32 = (1 << 16) - 1, (1 << 32) - 1


def signed(x, bits=32):
    return x - (1 << bits) if x >> bits - 1 else x


RANGES = {"i32": (-(1 << 31), (1 << 31) - 1), "u32": (0, M32), "i16": (-(1 << 15), (1 << 15) - 1), "u16": (0, M16)}


@pytest.mark.parametrize("out", ["i32", "u32"])
@pytest.mark.parametrize("size", [32, 64])
def test_to_integers_saturates(out, size):
    source = "v[2:3]" if size == 64 else "v2"

    def oracle(a):
        return ieee.to_integer(a, size, *RANGES[out]) & M32

    check_vector(f"v_cvt_{out}_f{size}_e32 v1, {source}", [size], 32, oracle)
    check_vector(f"v_cvt_{out}_f{size}_e64 v1, -|{source}|", [size], 32, oracle)
    check_vector(f"v_cvt_{out}_f{size}_e64 v1, {source} clamp", [size], 32, oracle)  # only enables an exception


@pytest.mark.parametrize("out", ["i16", "u16"])
def test_to_short_integers(out):
    check_vector(f"v_cvt_{out}_f16_e32 v1, v2", [16], 32, lambda a: ieee.to_integer(a, 16, *RANGES[out]) & M16)


def test_from_integers():
    for source in ("v2", "s3", "0x4f7fffff", "-16"):
        check_vector(f"v_cvt_f32_u32_e32 v1, {source}", [32], 32, lambda a: ieee.encode(Fraction(a), 32))
        check_vector(f"v_cvt_f32_i32_e32 v1, {source}", [32], 32, lambda a: ieee.encode(Fraction(signed(a)), 32))
        check_vector(f"v_cvt_f64_u32_e32 v[0:1], {source}", [32], 64, lambda a: ieee.encode(Fraction(a), 64))
        check_vector(f"v_cvt_f64_i32_e32 v[0:1], {source}", [32], 64, lambda a: ieee.encode(Fraction(signed(a)), 64))
    check_vector("v_cvt_f16_u16_e32 v1, v2", [16], 32, lambda a: ieee.encode(Fraction(a), 16))
    check_vector("v_cvt_f16_i16_e32 v1, v2", [16], 32, lambda a: ieee.encode(Fraction(signed(a, 16)), 16))


def test_ties_of_integers_to_even():
    values = [0x01000001, 0x01000003, 0xFFFFFF7F, 0xFFFFFF80, 0xFFFFFFFF, 0x80000040, 0x800000C0, 0x7FFFFFC0]
    w = make_waves()
    w.vgpr[2, 0, : len(values)] = values
    execute("v_cvt_f32_u32_e32 v1, v2", w)
    assert w.vgpr[1, 0, : len(values)].tolist() == [ieee.encode(Fraction(v), 32) for v in values]


def under(mode, oracle, size_in, size_out):
    bits = {32: 4, 16: 6, 64: 6}

    def flushed(a):
        a = a if mode >> bits[size_in] & 1 else ieee.flush(a, size_in)
        result = oracle(a)
        return result if mode >> bits[size_out] + 1 & 1 else ieee.flush(result, size_out)

    return flushed


@pytest.mark.parametrize("mode", [0x3F0, 0x300, 0x330, 0x3C0])
def test_between_floats(mode):
    for size_in, size_out in ((32, 16), (16, 32), (64, 32), (32, 64)):
        source, target = "v[2:3]" if size_in == 64 else "v2", "v[0:1]" if size_out == 64 else "v1"
        oracle = under(mode, lambda a, f=size_in, t=size_out: ieee.convert(a, f, t), size_in, size_out)
        check_vector(
            f"v_cvt_f{size_out}_f{size_in}_e32 {target}, {source}", [size_in], max(size_out, 32), oracle, mode=mode
        )


def test_every_half_there_and_back():
    w = make_waves()
    for start in range(0, 1 << 16, 256):
        halves = np.arange(start, start + 256, dtype=np.uint32).reshape(4, 64)
        w.vgpr[2] = halves
        execute("v_cvt_f32_f16_e32 v1, v2", w)
        execute("v_cvt_f16_f32_e32 v3, v1", w)
        nan = (halves & 0x7FFF) > 0x7C00
        assert (w.vgpr[3] == np.where(nan, halves | 0x200, halves)).all()


def test_f16_ties_and_overflow():
    rows = {
        0x477FEFFF: 0x7BFF, 0x477FF000: 0x7C00, 0x38800000: 0x0400, 0x387FC000: 0x03FF, 0x387FE000: 0x0400,
        0x33000000: 0x0000, 0x33000001: 0x0001, 0x33C00000: 0x0002, 0xB3000001: 0x8001, 0x3F801000: 0x3C00,
        0x3F803000: 0x3C02, 0x3F801001: 0x3C01,
    }  # fmt: skip
    w = make_waves()
    w.vgpr[2, 0, : len(rows)] = list(rows)
    execute("v_cvt_f16_f32_e32 v1, v2", w)
    assert [hex(x) for x in w.vgpr[1, 0, : len(rows)]] == [hex(x) for x in rows.values()]


def test_towards_zero():
    def half(a):
        if ieee.is_nan(a, 32) or ieee.is_inf(a, 32):
            return ieee.convert(a, 32, 16)
        near = ieee.convert(a, 32, 16)
        too_large = ieee.is_inf(near, 16) or abs(ieee.exact(near, 16)) > abs(ieee.exact(a, 32))
        return near - 1 if too_large else near

    def oracle(a, b):
        return half(a) | half(b) << 16

    for operands in ("v2, v3", "v2, s3", "-v2, |v3|", "1.0, v3"):
        check_vector(f"v_cvt_pkrtz_f16_f32 v1, {operands}", [32, 32], 32, oracle)
    check_vector("v_cvt_pkrtz_f16_f32 v1, v2, v3", [32, 32], 32, lambda a, b: oracle(a, b), mode=0x3FF)
    flushed = lambda a, b: ieee.flush(half(a), 16) | ieee.flush(half(b), 16) << 16  # noqa: E731
    check_vector("v_cvt_pkrtz_f16_f32 v1, v2, v3", [32, 32], 32, flushed, mode=0x330)


def test_floor_and_nearest_have_their_own_rounding():
    def by(round_):
        def oracle(a):
            if ieee.is_nan(a, 32):
                return 0x80000000 if ieee.negative(a, 32) else 0x7FFFFFFF
            return ieee.to_integer(a, 32, *RANGES["i32"], round_) & M32

        return oracle

    check_vector("v_cvt_flr_i32_f32_e32 v1, v2", [32], 32, by(math.floor), mode=0x3F3)
    check_vector("v_cvt_rpi_i32_f32_e32 v1, v2", [32], 32, by(lambda x: math.floor(x + Fraction(1, 2))), mode=0x3F3)
    w = make_waves()
    w.vgpr[2, 0, :4] = [0x3EFFFFFF, 0x3F000000, 0xBF000000, 0xBF000001]  # a sum in float32 would round the first up
    execute("v_cvt_rpi_i32_f32_e32 v1, v2", w)
    assert w.vgpr[1, 0, :4].tolist() == [0, 1, 0, M32]


def test_bytes():
    for i in range(4):
        check_vector(
            f"v_cvt_f32_ubyte{i}_e32 v1, v2", [32], 32, lambda a, i=i: ieee.bits_of(float(a >> 8 * i & 0xFF), 32)
        )
    check_vector("v_cvt_off_f32_i4_e32 v1, v2", [32], 32, lambda a: ieee.bits_of(signed(a & 15, 4) / 16, 32))

    def into(a, which, old):
        shift = 8 * (which & 3)
        return old & ~(0xFF << shift) | ieee.to_integer(a, 32, 0, 255, round) << shift

    check_vector("v_cvt_pk_u8_f32 v1, v2, v3, v4", [32] * 3, 32, into)
    check_vector("v_cvt_pk_u8_f32 v1, v2, 2, v1", [32] * 3, 32, into)
    check_vector("v_cvt_pkaccum_u8_f32 v1, v2, v3", [32] * 2, 32, into, accumulate=True)

    def saturated(a):
        return sum(max(0, min(255, signed(a >> 16 * i & M16, 16))) << 8 * i for i in range(2))

    check_vector("v_sat_pk_u8_i16_e32 v1, v2", [32], 32, saturated)


def test_packing_integers():
    check_vector("v_cvt_pk_u16_u32 v1, v2, v3", [32] * 2, 32, lambda a, b: min(a, M16) | min(b, M16) << 16)

    def short(a):
        return max(-(1 << 15), min((1 << 15) - 1, signed(a))) & M16

    check_vector("v_cvt_pk_i16_i32 v1, v2, s3", [32] * 2, 32, lambda a, b: short(a) | short(b) << 16)


def norm(a, size, largest, low):
    if ieee.is_nan(a, size):
        return 0
    if ieee.is_inf(a, size):
        return low if ieee.negative(a, size) else largest
    return max(low, min(largest, round(ieee.exact(a, size) * largest)))


@pytest.mark.parametrize("type_, largest, low", [("i16", 32767, -32767), ("u16", 65535, 0)])
def test_normalized(type_, largest, low):
    for size in (16, 32):

        def oracle(a, b, size=size):
            return norm(a, size, largest, low) & M16 | (norm(b, size, largest, low) & M16) << 16

        check_vector(f"v_cvt_pknorm_{type_}_f{size} v1, v2, v3", [size] * 2, 32, oracle)
    check_vector(f"v_cvt_norm_{type_}_f16_e32 v1, v2", [16], 32, lambda a: norm(a, 16, largest, low) & M16)


# -- floats of 8 bits --------------------------------------------------------------------------------------------------


def small(code, fraction_bits, bias):
    """Value of an 8-bit float of gfx940; None is NaN."""
    if code == 0x80:
        return None
    field, fraction = (code & 0x7F) >> fraction_bits, code & (1 << fraction_bits) - 1
    unit = Fraction(2) ** ((field or 1) - bias - fraction_bits)
    value = (fraction + ((1 << fraction_bits) if field else 0)) * unit
    return -value if code & 0x80 else value


FP8 = {"fp8": (3, 8), "bf8": (2, 16)}


@pytest.mark.parametrize("name", FP8)
def test_from_8_bits(name):
    def oracle(code):
        value = small(code & 0xFF, *FP8[name])
        return ieee.default_nan(32) if value is None else ieee.encode(value, 32)

    check_vector(f"v_cvt_f32_{name}_e32 v1, v2", [32], 32, oracle)
    w = make_waves()
    w.vgpr[2] = np.arange(256).reshape(4, 64) << 16
    execute(f"v_cvt_f32_{name}_sdwa v1, v2 src0_sel:BYTE_2", w)
    assert w.vgpr[1].reshape(-1).tolist() == [oracle(code) for code in range(256)]
    check_vector(f"v_cvt_pk_f32_{name}_e32 v[0:1], v2", [32], 64, lambda a: oracle(a) | oracle(a >> 8) << 32)


def test_the_largest_8_bit_floats():
    assert small(0x7F, 3, 8) == 240 and small(0x7F, 2, 16) == 57344


@pytest.mark.parametrize("name", FP8)
def test_to_8_bits(name):
    values = {code: small(code, *FP8[name]) for code in range(256) if code != 0x80}
    magnitudes = sorted((value, code) for code, value in values.items() if code < 0x80)
    largest = magnitudes[-1][0]
    beyond = largest + (largest - magnitudes[-2][0])  # the next number, if there were one

    def code_of(a):
        if ieee.is_nan(a, 32) or ieee.is_inf(a, 32):
            return 0x80
        size = abs(ieee.exact(a, 32))
        best = (
            min([*magnitudes, (beyond, 0x80)], key=lambda m: (abs(m[0] - size), m[1] & 1))[1]
            if size <= beyond
            else 0x80
        )
        return best if best in (0, 0x80) else best | 0x80 * ieee.negative(a, 32)

    check_vector(f"v_cvt_pk_{name}_f32 v1, v2, v3", [32] * 2, 32, lambda a, b: code_of(a) | code_of(b) << 8, keep=True)
    w = make_waves()
    exact = [ieee.encode(value, 32) for value, _ in magnitudes]
    half_way = [ieee.encode((a[0] + b[0]) / 2, 32) for a, b in zip(magnitudes, magnitudes[1:])]
    for part in (exact, half_way):
        w.vgpr[2].reshape(-1)[: len(part)] = part
        w.vgpr[1] = 0xABCD1234
        execute(f"v_cvt_pk_{name}_f32 v1, v2, v2 op_sel:[0,0,1]", w)
        got = w.vgpr[1].reshape(-1)[: len(part)].tolist()
        assert got == [0x1234 | code_of(a) << 16 | code_of(a) << 24 for a in part]
