"""Integer and bit instructions of the vector unit against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.softgpu.exec.steps import VCC, WAVES, State, check_mask, check_vector, execute, make_waves, sources

M24, M32, M64 = (1 << 24) - 1, (1 << 32) - 1, (1 << 64) - 1


def signed(x, bits=32):
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> bits - 1 else x


def bfe(a, b, c, is_signed):
    offset, width = b & 31, c & 31
    field = (signed(a) if is_signed else a) >> offset & (1 << width) - 1
    return (signed(field, width) if is_signed and width else field) & M32


def perm(a, b, c):
    data, out = a << 32 | b, 0
    for i in range(4):
        select = c >> 8 * i & 0xFF
        if select >= 13:
            byte = 0xFF
        elif select == 12:
            byte = 0
        elif select >= 8:
            byte = 0xFF * (data >> 16 * (select - 8) + 15 & 1)
        else:
            byte = data >> 8 * select & 0xFF
        out |= byte << 8 * i
    return out


def leading_zeros(a):
    return 32 - a.bit_length() if a else M32


def median(a, b, c):
    return sorted((a, b, c))[1]


def by_sign(f):
    return lambda *args: f(*map(signed, args)) & M32


ONE = {
    "v_mov_b32": lambda a: a,
    "v_not_b32": lambda a: ~a & M32,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbl_b32": lambda a: (a & -a).bit_length() - 1 if a else M32,
    "v_ffbh_u32": leading_zeros,
    "v_ffbh_i32": lambda a: leading_zeros(a ^ (M32 if a >> 31 else 0)),
}
TWO = {
    "v_add_u32": lambda a, b: a + b & M32,
    "v_sub_u32": lambda a, b: a - b & M32,
    "v_subrev_u32": lambda a, b: b - a & M32,
    "v_mul_u32_u24": lambda a, b: (a & M24) * (b & M24) & M32,
    "v_mul_hi_u32_u24": lambda a, b: (a & M24) * (b & M24) >> 32,
    "v_mul_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24) & M32,
    "v_mul_hi_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24) >> 32 & M32,
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b) & M32,
    "v_lshlrev_b32": lambda a, b: b << (a & 31) & M32,
    "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32": lambda a, b: signed(b) >> (a & 31) & M32,
    "v_min_u32": min,
    "v_max_u32": max,
    "v_min_i32": by_sign(min),
    "v_max_i32": by_sign(max),
}
TWO_LONG = {  # only in the long encoding
    "v_add_i32": lambda a, b: a + b & M32,
    "v_sub_i32": lambda a, b: a - b & M32,
    "v_mul_lo_u32": lambda a, b: a * b & M32,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: signed(a) * signed(b) >> 32 & M32,
    "v_bfm_b32": lambda a, b: (1 << (a & 31)) - 1 << (b & 31) & M32,
    "v_bcnt_u32_b32": lambda a, b: bin(a).count("1") + b & M32,
}
THREE = {
    "v_mad_u32_u24": lambda a, b, c: (a & M24) * (b & M24) + c & M32,
    "v_mad_i32_i24": lambda a, b, c: signed(a, 24) * signed(b, 24) + c & M32,
    "v_min3_u32": min,
    "v_max3_u32": max,
    "v_med3_u32": median,
    "v_min3_i32": by_sign(min),
    "v_max3_i32": by_sign(max),
    "v_med3_i32": by_sign(median),
    "v_add3_u32": lambda a, b, c: a + b + c & M32,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c & M32,
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c & M32,
    "v_add_lshl_u32": lambda a, b, c: a + b << (c & 31) & M32,
    "v_lshl_or_b32": lambda a, b, c: a << (b & 31) & M32 | c,
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
    "v_bfe_u32": lambda a, b, c: bfe(a, b, c, False),
    "v_bfe_i32": lambda a, b, c: bfe(a, b, c, True),
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c & 31) & M32,
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3) & M32,
    "v_perm_b32": perm,
}


@pytest.mark.parametrize("name", ONE)
def test_of_one(name):
    for source in ("v2", "v1", "s3", "0", "-16", "0x80000001"):
        check_vector(f"{name}_e32 v1, {source}", [32], 32, ONE[name])


@pytest.mark.parametrize("name", TWO)
def test_of_two(name):
    for a in ("v2", "v1", "s3", "17", "0x10000003"):
        check_vector(f"{name}_e32 v1, {a}, v3", [32, 32], 32, TWO[name])
    check_vector(f"{name}_e64 v1, v2, s3", [32, 32], 32, TWO[name])


@pytest.mark.parametrize("name", TWO_LONG)
def test_of_two_in_the_long_encoding(name):
    for a, b in (("v2", "v3"), ("v1", "v1"), ("s3", "v3"), ("v2", "-5"), ("s3", "s3")):
        check_vector(f"{name} v1, {a}, {b}", [32, 32], 32, TWO_LONG[name])


@pytest.mark.parametrize("name", THREE)
def test_of_three(name):
    for operands in ("v2, v3, v4", "v1, v1, v1", "s3, v3, 7", "v2, 9, v4", "v2, 16, 1", "v2, 31, 31", "v2, v3, s5"):
        check_vector(f"{name} v1, {operands}", [32, 32, 32], 32, THREE[name])


def test_selectors_of_perm():
    for selector in (0x03020100, 0x07060504, 0x0B0A0908, 0xFF0D0C00, 0x07030602):
        w = make_waves()
        w.vgpr[4] = selector
        before = State(w)
        execute("v_perm_b32 v1, v2, v3, v4", w)
        after = State(w)
        assert after.v[1][0] == [perm(before.v[2][0][i], before.v[3][0][i], selector) for i in range(64)]


def test_mov_of_a_float_takes_its_sign():
    check_vector("v_mov_b32_e64 v1, -v2", [32], 32, lambda a: a)
    check_vector("v_mov_b32_e64 v1, |v2|", [32], 32, lambda a: a)


# -- saturation --------------------------------------------------------------------------------------------------------


def limited(f, low, high):
    return lambda *args: max(low, min(high, f(*args))) & M32


SATURATING = {
    "v_add_u32_e64 v1, v2, v3": limited(lambda a, b: a + b, 0, M32),
    "v_sub_u32_e64 v1, v2, v3": limited(lambda a, b: a - b, 0, M32),
    "v_subrev_u32_e64 v1, v2, v3": limited(lambda a, b: b - a, 0, M32),
    "v_add_i32 v1, v2, v3": limited(lambda a, b: signed(a) + signed(b), -(1 << 31), (1 << 31) - 1),
    "v_sub_i32 v1, v2, v3": limited(lambda a, b: signed(a) - signed(b), -(1 << 31), (1 << 31) - 1),
    "v_mad_u32_u24 v1, v2, v3, v4": limited(lambda a, b, c: (a & M24) * (b & M24) + c, 0, M32),
    "v_mad_i32_i24 v1, v2, v3, v4": limited(
        lambda a, b, c: signed(a, 24) * signed(b, 24) + signed(c), -(1 << 31), (1 << 31) - 1
    ),
}


@pytest.mark.parametrize("text", SATURATING)
def test_clamp_saturates(text):
    check_vector(f"{text} clamp", [32] * text.count(", "), 32, SATURATING[text])


# -- 64 bits -----------------------------------------------------------------------------------------------------------


def test_64_bits():
    check_vector("v_mov_b64_e32 v[0:1], v[2:3]", [64], 64, lambda a: a)
    check_vector("v_mov_b64_e32 v[0:1], s[2:3]", [64], 64, lambda a: a)
    check_vector("v_mov_b64_e32 v[0:1], 0x80000001", [64], 64, lambda a: 0x80000001)
    check_vector("v_mov_b64_e32 v[0:1], -3", [64], 64, lambda a: M64 - 2)
    check_vector("v_lshlrev_b64 v[0:1], v2, v[4:5]", [32, 64], 64, lambda a, b: b << (a & 63) & M64)
    check_vector("v_lshrrev_b64 v[0:1], v2, v[4:5]", [32, 64], 64, lambda a, b: b >> (a & 63))
    check_vector("v_ashrrev_i64 v[0:1], v2, v[4:5]", [32, 64], 64, lambda a, b: signed(b, 64) >> (a & 63) & M64)
    check_vector("v_lshlrev_b64 v[0:1], 33, s[4:5]", [32, 64], 64, lambda a, b: b << 33 & M64)


@pytest.mark.parametrize("shift", range(8))
def test_lshl_add_u64_shifts_by_up_to_four(shift):
    by = shift if shift <= 4 else 0  # the guide: others are a shift of zero
    check_vector(
        f"v_lshl_add_u64 v[0:1], v[2:3], {shift}, v[4:5]", [64, 32, 64], 64, lambda a, _, c: (a << by) + c & M64
    )


def test_lshl_add_u64_takes_scalars():
    check_vector("v_lshl_add_u64 v[0:1], v[0:1], 0, s[4:5]", [64, 32, 64], 64, lambda a, _, c: a + c & M64)


# -- carries -----------------------------------------------------------------------------------------------------------


def carry(name, carry_in):
    def total(a, b, c):
        if "subrev" in name or "subbrev" in name:
            a, b = b, a
        return a - b - c if "sub" in name else a + b + c

    return (lambda a, b, c: total(a, b, c)) if carry_in else (lambda a, b: total(a, b, 0))


@pytest.mark.parametrize("name", ["v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32"])
@pytest.mark.parametrize("clamp", ["", " clamp"])
def test_carry_out(name, clamp):
    f = carry(name, False)
    limit = (lambda x: max(0, min(M32, x))) if clamp else (lambda x: x & M32)
    forms = [f"{name}_e64 v1, s[10:11], v2, v3", f"{name}_e64 v1, vcc, v2, s20", f"{name}_e64 v1, s[10:11], s20, 3"]
    if not clamp:
        forms += [f"{name}_e32 v1, vcc, v2, v3", f"{name}_e32 v1, vcc, 0x80000000, v3"]
    for text in forms:
        check_mask_and_value(text + clamp, [32, 32], lambda a, b: (limit(f(a, b)), not 0 <= f(a, b) <= M32))


@pytest.mark.parametrize("name", ["v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32"])
def test_carry_in(name):
    f = carry(name, True)

    def oracle(a, b, c):
        return f(a, b, c) & M32, not 0 <= f(a, b, c) <= M32

    for text, mask in (
        (f"{name}_e32 v1, vcc, v2, v3, vcc", "vcc"),
        (f"{name}_e64 v1, s[10:11], v2, v3, s[20:21]", "s20"),
        (f"{name}_e64 v1, s[10:11], s2, v3, s[10:11]", "s10"),
        (f"{name}_e64 v1, vcc, v3, 0, vcc", "vcc"),
    ):
        check_mask_and_value(text, [32, 32], oracle, carry_in=VCC if mask == "vcc" else int(mask[1:]))


def check_mask_and_value(text, sizes, oracle, carry_in=None, out=32):
    to = int(text.split("s[")[1].split(":")[0]) if "s[" in text.split(",")[1] else VCC
    for sel in (slice(0, WAVES), np.array([3, 0])):
        w = make_waves(exec_=[M64, 0xF0F0, 1, 0x8000_0000_0000_0000])
        before = State(w)
        execute(text, w, sel)
        after = State(w)
        operands = text.rsplit(",", 1)[0] if carry_in else text
        reads = sources(operands, sizes)
        for wave in np.arange(WAVES)[sel].tolist():
            mask = 0
            for lane in range(64):
                old = before.pair(1, wave, lane) if out == 64 else before.v[1][wave][lane]
                got = after.pair(1, wave, lane) if out == 64 else after.v[1][wave][lane]
                if not before.active(wave, lane):
                    assert got == old
                    continue
                args = [read(before, wave, lane) for read in reads]
                if carry_in:
                    args.append(before.scalar_pair(carry_in, wave) >> lane & 1)
                value, flag = oracle(*args)
                assert got == value, f"{text}: {[hex(a) for a in args]} -> {got:#x}"
                mask |= int(flag) << lane
            assert after.scalar_pair(to, wave) == mask, text


def test_mad_64():
    check_mask_and_value("v_mad_u64_u32 v[1:2], s[10:11], v3, v4, v[6:7]", [32, 32, 64],
                         lambda a, b, c: (a * b + c & M64, a * b + c > M64), out=64)  # fmt: skip
    check_mask_and_value("v_mad_u64_u32 v[1:2], s[10:11], v3, s20, 0", [32, 32, 64],
                         lambda a, b, c: (a * b & M64, False), out=64)  # fmt: skip

    def signed_oracle(a, b, c):
        total = signed(a) * signed(b) + signed(c, 64)
        return total & M64, not -(1 << 63) <= total < 1 << 63

    check_mask_and_value("v_mad_i64_i32 v[1:2], vcc, v3, v4, v[6:7]", [32, 32, 64], signed_oracle, out=64)


# -- comparisons -------------------------------------------------------------------------------------------------------

RELATIONS = {
    "f": lambda a, b: False,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ne": lambda a, b: a != b,
    "ge": lambda a, b: a >= b,
    "t": lambda a, b: True,
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("type_", ["u32", "i32", "u64", "i64", "u16", "i16"])
def test_comparisons(relation, type_):
    size, holds = int(type_[1:]), RELATIONS[relation]

    def oracle(a, b):
        return holds(signed(a, size), signed(b, size)) if type_[0] == "i" else holds(a, b)

    a, b, s = ("v[2:3]", "v[4:5]", "s[6:7]") if size == 64 else ("v2", "v3", "s6")
    for text in (
        f"v_cmp_{relation}_{type_}_e32 vcc, {a}, {b}",
        f"v_cmp_{relation}_{type_}_e64 s[10:11], {s}, {b}",
        f"v_cmp_{relation}_{type_}_e64 vcc, {a}, -1",
        f"v_cmp_{relation}_{type_}_e32 vcc, {a}, {a}",
        f"v_cmpx_{relation}_{type_}_e32 vcc, {a}, {b}",
        f"v_cmp_{relation}_{type_}_e64 s[10:11], {s}, 3",
    ):
        check_mask(text, [size, size], oracle)


# -- between lanes and scalars -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, mask", [("v_cndmask_b32_e32 v1, v2, v3, vcc", VCC), ("v_cndmask_b32_e64 v1, 0, v3, s[20:21]", 20),
                   ("v_cndmask_b32_e64 v1, -v2, |v3|, s[20:21]", 20), ("v_cndmask_b32_e64 v1, 1.0, s4, vcc", VCC)]
)  # fmt: skip
def test_cndmask(text, mask):
    w = make_waves(exec_=[M64, 0xFFFF, 0, M64])
    before = State(w)
    execute(text, w)
    after = State(w)
    if_clear, if_set = sources(text.rsplit(",", 1)[0], [32, 32])
    for wave in range(WAVES):
        for lane in range(64):
            chosen = if_set if before.scalar_pair(mask, wave) >> lane & 1 else if_clear
            want = chosen(before, wave, lane) if before.active(wave, lane) else before.v[1][wave][lane]
            assert after.v[1][wave][lane] == want


def test_counting_lanes_below():
    w = make_waves()
    masks = [State(w).scalar_pair(20, i) for i in range(WAVES)]
    w.vgpr[2] = 5
    execute("v_mbcnt_lo_u32_b32 v1, s20, v2", w)
    execute("v_mbcnt_hi_u32_b32 v1, s21, v1", w)
    for wave, mask in enumerate(masks):
        assert w.vgpr[1, wave].tolist() == [5 + bin(mask & (1 << lane) - 1).count("1") for lane in range(64)]
    execute("v_mbcnt_lo_u32_b32 v1, -1, 0", w)
    execute("v_mbcnt_hi_u32_b32 v1, -1, v1", w)
    assert (w.vgpr[1] == np.arange(64)).all()


def test_reading_lanes():
    w = make_waves(exec_=[M64, 0xF0, 1 << 63, 0])
    before = w.vgpr.copy()
    execute("v_readfirstlane_b32 s4, v2", w)
    assert w.sgpr[4].tolist() == [int(before[2, wave, lane]) for wave, lane in enumerate((0, 4, 63, 0))]
    execute("v_readlane_b32 s5, v2, 41", w)
    assert (w.sgpr[5] == before[2, :, 41]).all()
    w.sgpr[6] = [0, 1, 63, 64 + 7]  # the low six bits count
    execute("v_readlane_b32 s5, v2, s6", w)
    assert w.sgpr[5].tolist() == [int(before[2, wave, lane]) for wave, lane in enumerate((0, 1, 63, 7))]
    assert (w.vgpr == before).all()


def test_writing_lanes_whatever_exec_says():
    w = make_waves(exec_=[0] * WAVES)
    before = w.vgpr.copy()
    w.sgpr[6] = [0, 1, 63, 64 + 7]
    execute("v_writelane_b32 v1, s4, s6", w, np.array([2, 3]))
    before[1, 2, 63], before[1, 3, 7] = w.sgpr[4, 2], w.sgpr[4, 3]
    assert (w.vgpr == before).all()
    execute("v_writelane_b32 v1, -7, 5", w)
    before[1, :, 5] = M32 - 6
    assert (w.vgpr == before).all()


def test_swap():
    w = make_waves(exec_=[M64, 0xF0, 1, 0])
    before = w.vgpr.copy()
    execute("v_swap_b32 v1, v2", w)
    assert (w.vgpr[1] == np.where(w.lanes, before[2], before[1])).all()
    assert (w.vgpr[2] == np.where(w.lanes, before[1], before[2])).all()


def test_accumulators():
    w = make_waves(exec_=[M64, 0xF0, 1, 0])
    w.acc[:] = 9
    execute("v_accvgpr_write_b32 a1, v2", w)
    assert (w.acc[1] == np.where(w.lanes, w.vgpr[2], 9)).all()
    execute("v_accvgpr_write_b32 a2, 17", w)
    execute("v_accvgpr_mov_b32 a3, a1", w)
    old = w.vgpr[5].copy()
    execute("v_accvgpr_read_b32 v5, a3", w)
    assert (w.vgpr[5] == np.where(w.lanes, w.vgpr[2], old)).all()
    assert (w.acc[2] == np.where(w.lanes, 17, 9)).all()
