"""Division: the compiler's whole sequence gives correctly rounded quotients, and its steps what the ISA guide says."""

from __future__ import annotations

import random

import pytest

from tests.softgpu.exec import ieee
from tests.softgpu.exec.steps import SPECIAL, VCC, WAVES, State, check_vector, execute, make_waves

# numerator in v0 (v[0:1]), denominator in v2, quotient in v4; as LLVM expands fdiv
SEQUENCE = {
    32: """
        v_div_scale_f32 v6, s[0:1], v2, v2, v0
        v_div_scale_f32 v8, vcc, v0, v2, v0
        v_rcp_f32_e32 v10, v6
        v_fma_f32 v12, -v6, v10, 1.0
        v_fmac_f32_e32 v10, v12, v10
        v_mul_f32_e32 v12, v8, v10
        v_fma_f32 v14, -v6, v12, v8
        v_fmac_f32_e32 v12, v14, v10
        v_fma_f32 v6, -v6, v12, v8
        v_div_fmas_f32 v6, v6, v10, v12
        v_div_fixup_f32 v4, v6, v2, v0""",
    64: """
        v_div_scale_f64 v[6:7], s[0:1], v[2:3], v[2:3], v[0:1]
        v_rcp_f64_e32 v[8:9], v[6:7]
        v_fma_f64 v[10:11], -v[6:7], v[8:9], 1.0
        v_fmac_f64_e32 v[8:9], v[8:9], v[10:11]
        v_fma_f64 v[10:11], -v[6:7], v[8:9], 1.0
        v_fmac_f64_e32 v[8:9], v[8:9], v[10:11]
        v_div_scale_f64 v[10:11], vcc, v[0:1], v[2:3], v[0:1]
        v_mul_f64 v[12:13], v[10:11], v[8:9]
        v_fma_f64 v[6:7], -v[6:7], v[12:13], v[10:11]
        v_div_fmas_f64 v[6:7], v[6:7], v[8:9], v[12:13]
        v_div_fixup_f64 v[4:5], v[6:7], v[2:3], v[0:1]""",
}


def _pairs(size):
    special = SPECIAL[size]
    yield from ((a, b) for a in special for b in special)
    rng = random.Random(size)
    for _ in range(1500):  # any exponents: quotients overflow, underflow, become denormal
        yield rng.getrandbits(size), rng.getrandbits(size)
    one = ieee.bits_of(1.0, size)
    for _ in range(500):
        yield one ^ rng.getrandbits(ieee.FIELDS[size][1]), one ^ rng.getrandbits(ieee.FIELDS[size][1])
    for _ in range(500):  # denormal quotients that lie near the middle of two
        top = rng.getrandbits(ieee.FIELDS[size][1] - 1) | 1
        yield top, ieee.bits_of(2.0, size)
        yield rng.getrandbits(12) + (1 << ieee.FIELDS[size][1]), one | rng.getrandbits(ieee.FIELDS[size][1])


@pytest.mark.parametrize("size", [32, 64])
def test_quotients_are_correctly_rounded(size):
    pairs = list(_pairs(size))
    for start in range(0, len(pairs), WAVES * 64):
        part = pairs[start : start + WAVES * 64]
        w = make_waves()
        for number, (a, b) in enumerate(part):
            wave, lane = divmod(number, 64)
            for r, bits in ((0, a), (2, b)):
                w.vgpr[r, wave, lane] = bits & 0xFFFFFFFF
                if size == 64:
                    w.vgpr[r + 1, wave, lane] = bits >> 32
        for line in SEQUENCE[size].strip().splitlines():
            execute(line.strip(), w)
        after = State(w)
        for number, (a, b) in enumerate(part):
            wave, lane = divmod(number, 64)
            got = after.pair(4, wave, lane) if size == 64 else after.v[4][wave][lane]
            want = ieee.divide(a, b, size)
            assert got == want or (isinstance(want, set) and got in want), f"{a:#x} / {b:#x} = {got:#x}, not {want}"


def _lanes(w, register):
    return [int(x) for x in w.vgpr[register, 0]]


@pytest.mark.parametrize(
    "numerator, denominator, scaled_numerator, scaled_denominator, flag",
    [
        (0x40400000, 0x40000000, 0x40400000, 0x40000000, 0),  # 3 / 2: nothing to do
        (0x7F7FFFFF, 0x3F800000, 0x7F7FFFFF, 0x5F800000, 1),  # a large quotient: the denominator is scaled up
        (0x3F800000, 0x00000001, 0x3F800000, 0x15000000, 1),  # ...also if it is denormal
        (0x02000000, 0x00000001, 0x22000000, 0x15000000, 0),  # a denormal denominator: both up
        (0x50000000, 0x7F000000, 0x30000000, 0x5F000000, 0),  # its reciprocal is denormal: both down
        (0x50000000, 0x7F7FFFFF, 0x30000000, 0x5F7FFFFF, 0),
        (0x02000000, 0x7F000000, 0x02000000, 0x5F000000, 1),  # and the quotient is tiny: the denominator down
        (0x10000000, 0x41000000, 0x30000000, 0x41000000, 1),  # a tiny quotient: the numerator up
        (0x05000000, 0x0A000000, 0x25000000, 0x2A000000, 0),  # a tiny numerator: both up
        (0x00000000, 0x3F800000, 0xFFC00000, 0xFFC00000, 1),
        (0x3F800000, 0x80000000, 0xFFC00000, 0xFFC00000, 1),
    ],
)
def test_scale(numerator, denominator, scaled_numerator, scaled_denominator, flag):
    w = make_waves()
    w.vgpr[0], w.vgpr[2] = numerator, denominator
    execute("v_div_scale_f32 v6, s[0:1], v2, v2, v0", w)
    execute("v_div_scale_f32 v8, vcc, v0, v2, v0", w)
    assert (hex(w.vgpr[8, 0, 0]), hex(w.vgpr[6, 0, 0])) == (hex(scaled_numerator), hex(scaled_denominator))
    assert w.sgpr[0].tolist() == w.sgpr[VCC].tolist() == [0xFFFFFFFF * flag] * WAVES


def test_scale_writes_active_lanes_only():
    w = make_waves(exec_=[5] * WAVES)
    w.vgpr[0], w.vgpr[2], w.vgpr[6] = 0x7F7FFFFF, 0x3F800000, 99
    execute("v_div_scale_f32 v6, vcc, v2, v2, v0", w)
    assert w.sgpr[VCC].tolist() == [5] * WAVES
    assert _lanes(w, 6)[:4] == [0x5F800000, 99, 0x5F800000, 99]


def test_fmas_scales_back_by_the_addend():
    w = make_waves()
    w.sgpr[VCC], w.sgpr[VCC + 1] = 0b0110, 0
    w.vgpr[2] = w.vgpr[3] = 0x3F800000
    w.vgpr[4, :, 0::2] = 0x40000000  # 2.0: up
    w.vgpr[4, :, 1::2] = 0x3F800000  # 1.0: down
    execute("v_div_fmas_f32 v1, v2, v3, v4", w)
    assert _lanes(w, 1)[:4] == [0x40400000, 0x20000000, 0x60400000, 0x40000000]


def test_fmas_takes_denormals_whatever_mode_says():
    w = make_waves(mode=0x3C0)
    w.sgpr[VCC] = w.sgpr[VCC + 1] = 0
    w.vgpr[2], w.vgpr[3], w.vgpr[4] = 0x00400000, 0x7F000000, 0
    execute("v_div_fmas_f32 v1, v2, v3, v4", w)
    assert _lanes(w, 1)[0] == 0x3F800000


@pytest.mark.parametrize("size", [16, 32, 64])
def test_fixup(size):
    limit = {16: -100, 32: -150, 64: -1075}[size]

    def oracle(q, d, n):
        sign = (d ^ n) & ieee.sign_bit(size)
        if ieee.is_nan(n, size):
            return ieee.quiet(n, size)
        if ieee.is_nan(d, size):
            return ieee.quiet(d, size)
        both = [f(d, size) and f(n, size) for f in (ieee.is_zero, ieee.is_inf)]
        if any(both):
            return ieee.default_nan(size)
        if ieee.is_zero(d, size) or ieee.is_inf(n, size):
            return sign | ieee.inf(size)
        if ieee.is_inf(d, size) or ieee.is_zero(n, size):
            return sign
        if ieee.exponent_field(n, size) - ieee.exponent_field(d, size) < limit:
            return sign
        if ieee.is_nan(q, size) and size != 16:
            return sign | ieee.inf(size)
        return sign | ieee.magnitude(q, size)

    if size == 64:
        check_vector("v_div_fixup_f64 v[0:1], v[2:3], v[4:5], v[6:7]", [64] * 3, 64, oracle)
    else:
        check_vector(f"v_div_fixup_f{size} v1, v2, v3, v4", [size] * 3, 32, oracle, keep=size == 16)
