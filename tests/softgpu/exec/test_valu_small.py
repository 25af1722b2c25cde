"""Integer instructions on 16 bits and bytes."""

from __future__ import annotations

import pytest

from tests.softgpu.exec.steps import WAVES, State, check_vector, execute, make_waves

M16, M32, M64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1


def signed(x, bits=16):
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> bits - 1 else x


def by_sign(f):
    return lambda *args: f(*map(signed, args)) & M16


def limited(f, low, high, mask=M16):
    return lambda *args: max(low, min(high, f(*args))) & mask


def median(a, b, c):
    return sorted((a, b, c))[1]


TWO = {
    "v_add_u16": lambda a, b: a + b & M16,
    "v_sub_u16": lambda a, b: a - b & M16,
    "v_subrev_u16": lambda a, b: b - a & M16,
    "v_mul_lo_u16": lambda a, b: a * b & M16,
    "v_lshlrev_b16": lambda a, b: b << (a & 15) & M16,
    "v_lshrrev_b16": lambda a, b: b >> (a & 15),
    "v_ashrrev_i16": lambda a, b: signed(b) >> (a & 15) & M16,
    "v_min_u16": min,
    "v_max_u16": max,
    "v_min_i16": by_sign(min),
    "v_max_i16": by_sign(max),
}
THREE = {
    "v_mad_u16": lambda a, b, c: a * b + c & M16,
    "v_mad_i16": lambda a, b, c: a * b + c & M16,
    "v_min3_u16": min,
    "v_max3_u16": max,
    "v_med3_u16": median,
    "v_min3_i16": by_sign(min),
    "v_max3_i16": by_sign(max),
    "v_med3_i16": by_sign(median),
}


@pytest.mark.parametrize("name", TWO)
def test_of_two_zero_the_upper_half(name):
    for a in ("v2", "s3", "-3", "0x7fff"):
        check_vector(f"{name}_e32 v1, {a}, v3", [16, 16], 32, TWO[name])


@pytest.mark.parametrize("name", ["v_add_i16", "v_sub_i16"])
def test_signed_keep_the_upper_half(name):
    f = {"v_add_i16": lambda a, b: signed(a) + signed(b), "v_sub_i16": lambda a, b: signed(a) - signed(b)}[name]
    check_vector(f"{name} v1, v2, v3", [16, 16], 32, lambda a, b: f(a, b) & M16, keep=True)
    check_vector(f"{name} v1, v2, v3 clamp", [16, 16], 32, limited(f, -(1 << 15), (1 << 15) - 1), keep=True)


@pytest.mark.parametrize("name", THREE)
def test_of_three_keep_the_upper_half(name):
    check_vector(f"{name} v1, v2, v3, v4", [16] * 3, 32, THREE[name], keep=True)
    check_vector(f"{name} v1, v2, 5, s4", [16] * 3, 32, THREE[name], keep=True)


def test_legacy_zeroes_the_upper_half():
    check_vector("v_mad_legacy_u16 v1, v2, v3, v4", [16] * 3, 32, THREE["v_mad_u16"])
    check_vector("v_mad_legacy_i16 v1, v2, v3, v4", [16] * 3, 32, THREE["v_mad_i16"])


def test_clamp():
    check_vector("v_add_u16_e64 v1, v2, v3 clamp", [16] * 2, 32, limited(lambda a, b: a + b, 0, M16))
    check_vector("v_sub_u16_e64 v1, v2, v3 clamp", [16] * 2, 32, limited(lambda a, b: a - b, 0, M16))
    check_vector("v_mul_lo_u16_e64 v1, v2, v3 clamp", [16] * 2, 32, limited(lambda a, b: a * b, 0, M16))
    check_vector("v_mad_u16 v1, v2, v3, v4 clamp", [16] * 3, 32, limited(lambda a, b, c: a * b + c, 0, M16), keep=True)
    check_vector("v_mad_i16 v1, v2, v3, v4 clamp", [16] * 3, 32, limited(
        lambda a, b, c: signed(a) * signed(b) + signed(c), -(1 << 15), (1 << 15) - 1), keep=True)  # fmt: skip


def test_wide_addends():
    check_vector("v_mad_u32_u16 v1, v2, v3, v4", [16, 16, 32], 32, lambda a, b, c: a * b + c & M32)
    check_vector("v_mad_i32_i16 v1, v2, v3, v4", [16, 16, 32], 32, lambda a, b, c: signed(a) * signed(b) + c & M32)
    check_vector("v_mad_u32_u16 v1, v2, 7, s4 clamp", [16, 16, 32], 32, limited(lambda a, b, c: a * b + c, 0, M32, M32))


def half(x, high):
    return x >> 16 * high & M16


@pytest.mark.parametrize("op_sel", ["0,0,0,0", "1,0,0,0", "0,1,1,0", "1,1,1,1", "0,0,0,1"])
def test_op_sel_chooses_halves(op_sel):
    a_high, b_high, c_high, to_high = map(int, op_sel.split(","))
    w = make_waves(exec_=[M64, 0xFF, 0, M64])
    before = State(w)
    execute(f"v_mad_u16 v1, v2, s3, v4 op_sel:[{op_sel}]", w)
    after = State(w)
    for wave in range(WAVES):
        for lane in range(64):
            old = before.v[1][wave][lane]
            product = half(before.v[2][wave][lane], a_high) * half(before.s[3][wave], b_high)
            value = product + half(before.v[4][wave][lane], c_high) & M16
            want = old & M16 | value << 16 if to_high else old & ~M16 | value
            assert after.v[1][wave][lane] == (want if before.active(wave, lane) else old)


# -- bytes -------------------------------------------------------------------------------------------------------------


def fields(x, bits, count):
    return [x >> bits * i & (1 << bits) - 1 for i in range(count)]


def sad(a, b, bits=8):
    return sum(abs(x - y) for x, y in zip(fields(a, bits, 32 // bits), fields(b, bits, 32 // bits)))


def masked(a, b):
    return sum(abs(x - y) for x, y in zip(fields(a, 8, 4), fields(b, 8, 4)) if y)


def four(f):
    return lambda a, b, c: sum((f(a >> 8 * i & M32, b) + (c >> 16 * i & M16) & M16) << 16 * i for i in range(4))


def lerp(a, b, c):
    return sum(
        (x + y + (z & 1) >> 1) << 8 * i for i, (x, y, z) in enumerate(zip(*(fields(v, 8, 4) for v in (a, b, c))))
    )


BYTES = {
    "v_sad_u8": lambda a, b, c: sad(a, b) + c & M32,
    "v_sad_hi_u8": lambda a, b, c: (sad(a, b) << 16) + c & M32,
    "v_sad_u16": lambda a, b, c: sad(a, b, 16) + c & M32,
    "v_sad_u32": lambda a, b, c: abs(a - b) + c & M32,
    "v_msad_u8": lambda a, b, c: masked(a, b) + c & M32,
    "v_lerp_u8": lerp,
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name):
    check_vector(f"{name} v1, v2, v3, v4", [32] * 3, 32, BYTES[name])
    check_vector(f"{name} v1, v2, s3, 0", [32] * 3, 32, BYTES[name])


def test_four_differences_at_once():
    check_vector("v_qsad_pk_u16_u8 v[0:1], v[2:3], v4, v[6:7]", [64, 32, 64], 64, four(sad))
    check_vector("v_mqsad_pk_u16_u8 v[0:1], v[2:3], v4, v[6:7]", [64, 32, 64], 64, four(masked))
