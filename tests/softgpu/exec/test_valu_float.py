"""float32 and float64 instructions against exact arithmetic, under every kind of group and MODE."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hsakit.softgpu.exec.decode import parse
from hsakit.softgpu.exec.program import REGISTRY, IllegalInstruction
from hsakit.softgpu.exec.state import Group
from tests.softgpu.exec import ieee
from tests.softgpu.exec.steps import (
    MODE,
    WAVES,
    check_mask,
    check_vector,
    execute,
    make_waves,
)

DENORM_MODES = [0x3F0, 0x3C0, 0x3D0, 0x3E0]  # of float32: all, none, inputs only, results only
DENORM_MODES_64 = [0x3F0, 0x330, 0x370, 0x3B0]


def under_mode(oracle, size, mode, result_only=False, always=False):
    """The oracle with denormals as MODE has them."""
    shift = 4 if size == 32 else 6
    inputs, outputs = (mode >> shift & 1, mode >> shift + 1 & 1) if not always else (0, 0)

    def flushed(*args):
        if not inputs and not result_only:
            args = [ieee.flush(a, size) for a in args]
        result = oracle(*args)
        if outputs:
            return result
        return {ieee.flush(x, size) for x in result} if isinstance(result, set) else ieee.flush(result, size)

    return flushed


def two(f, size):
    return lambda a, b: f(a, b, size)


ARITHMETIC = {
    "add": ieee.add,
    "sub": ieee.sub,
    "subrev": lambda a, b, size: ieee.sub(b, a, size),
    "mul": ieee.mul,
    "min": ieee.minimum,
    "max": ieee.maximum,
}


@pytest.mark.parametrize("mode", DENORM_MODES)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_f32(name, mode):
    oracle = under_mode(two(ARITHMETIC[name], 32), 32, mode)
    check_vector(f"v_{name}_f32_e32 v1, v2, v3", [32, 32], 32, oracle, mode=mode)


@pytest.mark.parametrize("name", ["add", "mul", "min", "max"])
@pytest.mark.parametrize("mode", DENORM_MODES_64)
def test_arithmetic_f64(name, mode):
    oracle = under_mode(two(ARITHMETIC[name], 64), 64, mode)
    check_vector(f"v_{name}_f64 v[0:1], v[2:3], v[4:5]", [64, 64], 64, oracle, mode=mode)


@pytest.mark.parametrize(
    "text",
    [
        "v_add_f32_e32 v1, s7, v3",
        "v_add_f32_e32 v1, 0x40490fdb, v3",
        "v_add_f32_e32 v1, -4.0, v3",
        "v_add_f32_e32 v1, 64, v3",  # an integer constant is bits: a denormal
        "v_add_f32_e32 v1, v1, v1",
        "v_add_f32_e64 v1, -v2, |v3|",
        "v_add_f32_e64 v1, -|v2|, s4",
        "v_add_f32_e64 v1, vcc_lo, v3",
        "v_add_f32_e64 v1, s3, s3",
        "v_add_f32_e64 v1, 1.0, 0.5",
    ],
)
def test_operands(text):
    check_vector(text, [32, 32], 32, two(ieee.add, 32))


def test_one_over_two_pi_is_exact_in_each_type():
    for size, bits, text in (
        (32, 0x3E22F983, "v_mul_f32_e32 v1, 0.15915494, v2"),
        (64, 0x3FC45F306DC9C882, "v_mul_f64 v[0:1], 0.15915494309189532, v[2:3]"),
        (16, 0x3118, "v_mul_f16_e32 v1, 0.15915494, v2"),
    ):
        w = make_waves(exec_=[1] * WAVES)
        w.vgpr[2], w.vgpr[3] = 0x3C00 if size == 16 else 0x3F800000 if size == 32 else 0, 0x3FF00000
        execute(text, w)
        got = int(w.vgpr[0, 0, 0]) | int(w.vgpr[1, 0, 0]) << 32 if size == 64 else int(w.vgpr[1, 0, 0])
        assert got == bits


def test_a_literal_is_the_high_half_of_a_double():
    check_vector(
        "v_rcp_f64_e32 v[0:1], 0x40240000", [], 64, lambda: ieee.bits_of(1 / 10.0, 64)
    )  # fmt: skip


# -- fused -------------------------------------------------------------------------------------------------------------

FUSED = {
    "v_fma_f32 v1, v2, v3, v4": False,
    "v_fma_f32 v1, -v2, |v3|, s4": False,
    "v_fma_f32 v1, v1, v1, v1": False,
    "v_fmaak_f32 v1, v2, v3, 0x3f99999a": False,
    "v_fmac_f32_e32 v1, v2, v3": True,
}


@pytest.mark.parametrize("mode", DENORM_MODES)
@pytest.mark.parametrize("text", FUSED)
def test_fma_f32(text, mode):
    oracle = under_mode(lambda a, b, c: ieee.fma(a, b, c, 32), 32, mode)
    sizes = [32, 32] if FUSED[text] else [32, 32, 32]
    check_vector(text, sizes, 32, oracle, mode=mode, accumulate=FUSED[text])


def test_fmamk_f32():
    check_vector("v_fmamk_f32 v1, v2, 0x3f99999a, v3", [32, 32, 32], 32, lambda a, k, b: ieee.fma(a, k, b, 32))


@pytest.mark.parametrize("mode", DENORM_MODES_64)
def test_fma_f64(mode):
    oracle = under_mode(lambda a, b, c: ieee.fma(a, b, c, 64), 64, mode)
    check_vector("v_fma_f64 v[0:1], v[2:3], v[4:5], v[6:7]", [64] * 3, 64, oracle, mode=mode)
    check_vector("v_fmac_f64_e32 v[0:1], v[2:3], v[4:5]", [64] * 2, 64, oracle, mode=mode, accumulate=True)


HARD_F32 = [
    # the sum in double precision lies half-way between two floats, and is itself rounded
    (0x3F800001, 0x3F800001, 0x33800000),
    (0x3F800001, 0x3F800001, 0xB3800000),
    (0x3FFFFFFF, 0x3F800001, 0xA0000001),
    (0x4B800001, 0x3F800000, 0x3EFFFFFF),
    (0x4B800001, 0x3F800000, 0x3F000001),
    (0x1F800001, 0x1F800001, 0x00000001),  # near 2**-128, with a denormal
    (0x1F800001, 0x9F800001, 0x00800000),
    (0x20000000, 0x1F7FFFFF, 0x80000001),
    (0x00000001, 0x00000001, 0x00000001),
    (0x7F7FFFFF, 0x3F800000, 0x73000000),  # at the largest number
    (0x7F7FFFFF, 0x40000000, 0xFF7FFFFF),
    (0x7F7FFFFF, 0x3F800000, 0x72FFFFFF),
]


def _place(w, registers, rows, size):
    """Row after row of arguments into lanes of the registers."""
    for number, row in enumerate(rows):
        wave, lane = divmod(number, 64)
        for r, bits in zip(registers, row):
            w.vgpr[r, wave, lane] = bits & 0xFFFFFFFF
            if size == 64:
                w.vgpr[r + 1, wave, lane] = bits >> 32


def _ties_f32():
    """a * b + c just beside the middle of two floats: c is far below the product's last bit or far above."""
    rng = np.random.default_rng(5)
    for _ in range(120):
        a = 0x3F800000 | int(rng.integers(1 << 12)) << 11  # 12 bits: the product has 24
        b = 0x3F800000 | int(rng.integers(1 << 12)) << 11 | 0x400
        yield a, b, int(rng.integers(1, 0x20000000)) | int(rng.integers(2)) << 31
    for sign in (0, 1 << 31):  # a denormal and just less than half of its last place, to either side
        for _ in range(20):
            yield 0x1A000008, 0x19FFFFF0 | sign, int(rng.integers(1 << 21, 1 << 22)) << 1 | 1


def test_fma_f32_does_not_round_twice():
    rows = HARD_F32 + list(_ties_f32())
    w = make_waves()
    _place(w, (2, 3, 4), rows, 32)
    execute("v_fma_f32 v1, v2, v3, v4", w)
    for number, row in enumerate(rows):
        got = int(w.vgpr[1, number // 64, number % 64])
        assert got == ieee.fma(*row, 32), f"{[hex(x) for x in row]} -> {got:#x}"


def _hard_f64():
    one, ulp = 0x3FF0000000000000, 1
    yield one | ulp, one | ulp, 0x3CA0000000000000
    yield one | ulp, one | ulp, 0xBCA0000000000000
    yield 0x4340000000000001, one, 0x3FDFFFFFFFFFFFFF
    for c in (1, 2, 3):  # one, some places, and just less than half of one: (1 + 2**-30) * (1 - 2**-30) * 2**-53
        yield 0x3FF0000000400000, 0x3C9FFFFFFF800000, one | c
        yield 0x3FF0000000400000, 0xBC9FFFFFFF800000, one | c
    yield 0x7FEFFFFFFFFFFFFF, 0x4000000000000000, 0xFFEFFFFFFFFFFFFF
    yield 0x7FEFFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF, 0xFFF0000000000000
    yield 0x0010000000000001, 0x3FE0000000000001, 0x8000000000000001
    yield 0x1FF0000000000001, 0x1FF0000000000001, 0x8000000000000001
    yield 0x0000000000000001, 0x3FE0000000000000, 0x0000000000000000
    yield 0x8000000000000001, 0x3FE0000000000000, 0x0000000000000000
    rng = np.random.default_rng(6)
    for _ in range(200):
        a, b = (int(x) for x in rng.integers(0, 1 << 63, 2))
        yield a, b, int(rng.integers(0, 1 << 63))  # any exponents
    for _ in range(40):  # the product nearly cancels
        a, b = (one | int(x) for x in rng.integers(0, 1 << 52, 2))
        product = Fraction(ieee.to_float(a, 64)) * Fraction(ieee.to_float(b, 64))
        yield a, b, ieee.negate(ieee.encode(product, 64), 64)


def test_fma_f64_is_exact():
    rows = list(_hard_f64())
    w = make_waves()
    _place(w, (2, 4, 6), rows, 64)
    execute("v_fma_f64 v[0:1], v[2:3], v[4:5], v[6:7]", w)
    for number, row in enumerate(rows):
        wave, lane = divmod(number, 64)
        got = int(w.vgpr[0, wave, lane]) | int(w.vgpr[1, wave, lane]) << 32
        want = ieee.fma(*row, 64)
        assert got == want or (isinstance(want, set) and got in want), f"{[hex(x) for x in row]} -> {got:#x}"


def _mad(a, b, c):
    """Rounded twice, denormals flushed everywhere."""
    a, b, c = (ieee.flush(x, 32) for x in (a, b, c))
    product = ieee.mul(a, b, 32)
    if isinstance(product, set):
        return product | (ieee.first_nan(32, c) or set())
    product = ieee.flush(product, 32)
    total = ieee.add(product, c, 32)
    return total if isinstance(total, set) else ieee.flush(total, 32)


def test_mad_f32_rounds_twice():
    check_vector("v_mad_f32 v1, v2, -v3, v4", [32, 32, 32], 32, _mad)
    check_vector("v_mac_f32_e32 v1, v2, v3", [32, 32], 32, _mad, accumulate=True)
    check_vector("v_madak_f32 v1, v2, v3, 0x3f99999a", [32, 32, 32], 32, _mad)
    check_vector("v_madmk_f32 v1, v2, 0x3f99999a, v3", [32, 32, 32], 32, _mad)


def test_legacy_multiplication_has_zero_times_anything():
    def oracle(a, b):
        return 0 if ieee.is_zero(a, 32) or ieee.is_zero(b, 32) else ieee.mul(a, b, 32)

    check_vector("v_mul_legacy_f32 v1, v2, v3", [32, 32], 32, oracle)


# -- min and max -------------------------------------------------------------------------------------------------------


def _three(pick, ieee_mode):
    return lambda a, b, c: pick(pick(a, b, 32, ieee_mode), c, 32, ieee_mode)


def _median(a, b, c, ieee_mode):
    low, high = _three(ieee.minimum, ieee_mode), _three(ieee.maximum, ieee_mode)
    if any(ieee.is_nan(x, 32) for x in (a, b, c)):
        return low(a, b, c)
    top = ieee.to_float(high(a, b, c), 32)
    if top == ieee.to_float(a, 32):
        return ieee.maximum(b, c, 32, ieee_mode)
    if top == ieee.to_float(b, 32):
        return ieee.maximum(a, c, 32, ieee_mode)
    return ieee.maximum(a, b, 32, ieee_mode)


@pytest.mark.parametrize("mode", [MODE, MODE & ~0x200])
def test_min_max_of_three(mode):
    is_ieee = bool(mode & 0x200)
    check_vector("v_min3_f32 v1, v2, v3, v4", [32] * 3, 32, _three(ieee.minimum, is_ieee), mode=mode)
    check_vector("v_max3_f32 v1, v2, v3, v4", [32] * 3, 32, _three(ieee.maximum, is_ieee), mode=mode)
    check_vector("v_med3_f32 v1, v2, v3, v4", [32] * 3, 32, lambda *x: _median(*x, is_ieee), mode=mode)
    check_vector("v_min_f32_e32 v1, v2, v3", [32] * 2, 32, lambda a, b: ieee.minimum(a, b, 32, is_ieee), mode=mode)
    check_vector("v_max_f32_e32 v1, v2, v3", [32] * 2, 32, lambda a, b: ieee.maximum(a, b, 32, is_ieee), mode=mode)


# -- of one number -----------------------------------------------------------------------------------------------------


def _rounded(function, size):
    def oracle(a):
        if ieee.is_nan(a, size):
            return ieee.quiet(a, size)
        if ieee.is_inf(a, size) or ieee.is_zero(a, size):
            return a
        value = function(ieee.exact(a, size))
        return ieee.encode(Fraction(value), size, ieee.negative(a, size))

    return oracle


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize(
    "name, function", [("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc), ("rndne", round)]
)
def test_to_integral(name, function, size):
    operands = "v[0:1], v[2:3]" if size == 64 else "v1, v2"
    check_vector(f"v_{name}_f{size}_e32 {operands}", [size], size, _rounded(function, size))


@pytest.mark.parametrize("size", [32, 64])
def test_fract_stays_below_one(size):
    below_one = ieee.bits_of(1.0, size) - 1

    def oracle(a):
        if ieee.is_nan(a, size):
            return ieee.quiet(a, size)
        if ieee.is_inf(a, size):
            return ieee.default_nan(size)
        x = ieee.exact(a, size)
        return min(ieee.encode(x - math.floor(x), size), below_one)

    operands = "v[0:1], v[2:3]" if size == 64 else "v1, v2"
    check_vector(f"v_fract_f{size}_e32 {operands}", [size], size, oracle)


@pytest.mark.parametrize("size", [32, 64])
def test_frexp_and_ldexp(size):
    def parts(a):
        if ieee.is_nan(a, size) or ieee.is_inf(a, size):
            return ieee.quiet(a, size), 0
        m, e = math.frexp(ieee.to_float(a, size))
        return ieee.bits_of(m, size), e & 0xFFFFFFFF

    source = "v[2:3]" if size == 64 else "v2"
    target = "v[0:1]" if size == 64 else "v1"
    check_vector(f"v_frexp_mant_f{size}_e32 {target}, {source}", [size], size, lambda a: parts(a)[0])
    check_vector(f"v_frexp_exp_i32_f{size}_e32 v1, {source}", [size], 32, lambda a: parts(a)[1])

    def scaled(a, n):
        if ieee.is_nan(a, size):
            return ieee.quiet(a, size)
        if ieee.is_inf(a, size):
            return a
        n = max(-5000, min(5000, n - (1 << 32) if n >> 31 else n))
        return ieee.encode(ieee.exact(a, size) * Fraction(2) ** n, size) | a & ieee.sign_bit(size)

    for power in ("v6", "-3", "64", "0xffffff80", "0xfffffbd0"):
        check_vector(f"v_ldexp_f{size} {target}, {source}, {power}", [size, 32], size, scaled)


def _within_one_place(function, size=32):
    """Correctly rounded, but for a result whose double-precision value lies beside the middle of two floats."""

    def oracle(a):
        a = ieee.flush(a, 32) if size == 32 else a
        if ieee.is_nan(a, size):
            return ieee.quiet(a, size)
        special = function(a)
        if not isinstance(special, float):
            return special
        places = {ieee.encode(Fraction(special) * (1 + Fraction(k, 1 << 51)), size) for k in (-1, 0, 1)}
        return {ieee.flush(x, size) for x in places} if size == 32 else places

    return oracle


def _rcp(a, size=32):
    sign = a & ieee.sign_bit(size)
    if ieee.is_zero(a, size):
        return sign | ieee.inf(size)
    return sign if ieee.is_inf(a, size) else ieee.divide(ieee.bits_of(1.0, size), a, size)


def _root(a, inverse):
    if ieee.is_zero(a, 32):
        return a | 0x7F800000 if inverse else a
    if ieee.negative(a, 32):
        return ieee.default_nan(32)
    if ieee.is_inf(a, 32):
        return 0 if inverse else a
    root = math.sqrt(ieee.to_float(a, 32))
    return 1 / root if inverse else root


def _exp(a):
    if ieee.is_inf(a, 32):
        return 0 if ieee.negative(a, 32) else a
    x = ieee.to_float(a, 32)
    return 0x7F800000 if x >= 128 else 0 if x < -200 else 2.0**x


def _log(a):
    if ieee.is_zero(a, 32):
        return 0xFF800000
    if ieee.negative(a, 32):
        return ieee.default_nan(32)
    return a if ieee.is_inf(a, 32) else math.log2(ieee.to_float(a, 32)) or 0


def test_functions_f32():
    rcp = lambda a: ieee.flush(_rcp(ieee.flush(a, 32)), 32) if not ieee.is_nan(a, 32) else ieee.quiet(a, 32)  # noqa: E731
    check_vector("v_rcp_f32_e32 v1, v2", [32], 32, rcp)
    check_vector("v_rcp_iflag_f32_e32 v1, v2", [32], 32, rcp)
    check_vector("v_sqrt_f32_e32 v1, v2", [32], 32, _within_one_place(lambda a: _root(a, False)))
    check_vector("v_rsq_f32_e32 v1, v2", [32], 32, _within_one_place(lambda a: _root(a, True)))
    check_vector("v_exp_f32_e32 v1, v2", [32], 32, _within_one_place(_exp))
    check_vector("v_log_f32_e32 v1, v2", [32], 32, _within_one_place(_log))


def test_functions_f64():
    check_vector("v_rcp_f64_e32 v[0:1], v[2:3]", [64], 64, lambda a: ieee.first_nan(64, a) or _rcp(a, 64))

    def root(a, inverse):
        if ieee.is_nan(a, 64):
            return ieee.quiet(a, 64)
        if ieee.is_zero(a, 64):
            return a | ieee.inf(64) if inverse else a
        if ieee.negative(a, 64):
            return ieee.default_nan(64)
        if ieee.is_inf(a, 64):
            return 0 if inverse else a
        value = math.sqrt(ieee.to_float(a, 64))
        return ieee.bits_of(1 / value if inverse else value, 64)

    check_vector("v_sqrt_f64_e32 v[0:1], v[2:3]", [64], 64, lambda a: root(a, False))
    check_vector("v_rsq_f64_e32 v[0:1], v[2:3]", [64], 64, lambda a: root(a, True))


# rows of the ISA guide, "functional examples"
EXAMPLES = {
    "v_sin_f32_e32": [(0xFF800000, 0xFFC00000), (0xFF7FFFFF, 0), (0x80000000, 0x80000000), (0x3E800000, 0x3F800000),
                      (0x7F800000, 0xFFC00000), (0x3F000000, 0), (0xBE800000, 0xBF800000), (1, 1 * 6)],
    "v_cos_f32_e32": [(0xFF800000, 0xFFC00000), (0xFF7FFFFF, 0x3F800000), (0x80000000, 0x3F800000), (0x3E800000, 0),
                      (0x3F000000, 0xBF800000), (0x3F400000, 0)],
    "v_exp_f32_e32": [(0xFF800000, 0), (0x80000000, 0x3F800000), (0x7F800000, 0x7F800000), (0xC2FE0000, 0),
                      (0xC2FC0000, 0x00800000)],
    "v_log_f32_e32": [(0xFF800000, 0xFFC00000), (0xBF800000, 0xFFC00000), (0x80000000, 0xFF800000), (0, 0xFF800000),
                      (0x3F800000, 0), (0x7F800000, 0x7F800000), (0x00400000, 0xFF800000)],
    "v_rcp_f32_e32": [(0xFF800000, 0x80000000), (0xC0000000, 0xBF000000), (0x80000000, 0xFF800000), (0, 0x7F800000),
                      (0x7F800000, 0)],
    "v_rsq_f32_e32": [(0xFF800000, 0xFFC00000), (0x80000000, 0xFF800000), (0, 0x7F800000), (0x40800000, 0x3F000000),
                      (0x7F800000, 0)],
    "v_sqrt_f32_e32": [(0xFF800000, 0xFFC00000), (0x80000000, 0x80000000), (0, 0), (0x40800000, 0x40000000),
                       (0x7F800000, 0x7F800000)],
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_the_isa_guide(name):
    w = make_waves()
    _place(w, (2,), [(a,) for a, _ in EXAMPLES[name]], 32)
    execute(f"{name} v1, v2", w)
    assert [hex(x) for x in w.vgpr[1, 0, : len(EXAMPLES[name])]] == [hex(r) for _, r in EXAMPLES[name]]


def test_sine_and_cosine_of_revolutions():
    def near(function):
        def oracle(a):
            if ieee.is_nan(a, 32) or ieee.is_inf(a, 32):
                return ieee.quiet(a, 32) if ieee.is_nan(a, 32) else ieee.default_nan(32)
            x = ieee.exact(a, 32)
            x -= round(x)
            value = function(2 * math.pi * float(x))
            close = ieee.encode(Fraction(value), 32)
            exact = {0x3F800000, 0xBF800000, 0, 0x80000000} if (4 * x).denominator == 1 else set()
            return exact | {close, close + 1, max(close - 1, 0)}

        return oracle

    check_vector("v_sin_f32_e32 v1, v2", [32], 32, near(math.sin))
    check_vector("v_cos_f32_e32 v1, v2", [32], 32, near(math.cos))


def test_trig_preop_gives_segments_of_two_over_pi():
    pi = ("3.141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117067982148"
          "0865132823066470938446095505822317253594081284811174502841027019385211055596446229489549303819")  # fmt: skip
    two_over_pi = 2 / Fraction(pi)
    w = make_waves()
    for lane in range(4):
        w.vgpr[2, 0, lane], w.vgpr[3, 0, lane], w.vgpr[4, 0, lane] = 0, 0x3FF00000, lane
    execute("v_trig_preop_f64 v[0:1], v[2:3], v4", w)
    got = [ieee.exact(int(w.vgpr[0, 0, i]) | int(w.vgpr[1, 0, i]) << 32, 64) for i in range(4)]
    assert 0 <= two_over_pi - sum(got) < Fraction(1, 1 << 4 * 53)
    assert got[0] == Fraction(math.floor(two_over_pi * (1 << 53)), 1 << 53)
    # a large argument begins further to the right, and the largest ones are scaled
    w.vgpr[3] = 0x7FE00000
    w.vgpr[2] = 0
    w.vgpr[4] = 0
    execute("v_trig_preop_f64 v[0:1], v[2:3], v4", w)
    value = int(w.vgpr[0, 0, 0]) | int(w.vgpr[1, 0, 0]) << 32
    assert ieee.exact(value, 64) * Fraction(2) ** (2046 - 1077 - 128) < 1


# -- comparisons -------------------------------------------------------------------------------------------------------


def _relation(name, size):
    def holds(a, b):
        if ieee.is_nan(a, size) or ieee.is_nan(b, size):
            return {"f": False, "tru": True, "o": False, "u": True}.get(name, name.startswith("n"))
        x, y = ieee.to_float(a, size), ieee.to_float(b, size)
        base = {"lt": x < y, "eq": x == y, "le": x <= y, "gt": x > y, "lg": x != y, "ge": x >= y}
        base |= {"o": True, "u": False, "f": False, "tru": True}
        return base[name] if name in base else not base[name[1:]]

    return holds


RELATIONS = ("f lt eq le gt lg ge o u nge nlg ngt nle neq nlt tru").split()


@pytest.mark.parametrize("name", RELATIONS)
def test_comparisons(name):
    check_mask(f"v_cmp_{name}_f32_e32 vcc, v2, v3", [32, 32], _relation(name, 32))
    check_mask(f"v_cmp_{name}_f32_e64 s[10:11], |v2|, -v3", [32, 32], _relation(name, 32))
    check_mask(f"v_cmp_{name}_f32_e64 s[10:11], s3, v3", [32, 32], _relation(name, 32), seed=1)
    check_mask(f"v_cmpx_{name}_f32_e32 vcc, v2, v3", [32, 32], _relation(name, 32))
    check_mask(f"v_cmp_{name}_f64_e64 s[10:11], v[2:3], v[4:5]", [64, 64], _relation(name, 64))
    check_mask(f"v_cmp_{name}_f16_e32 vcc, v2, v3", [16, 16], _relation(name, 16))


def test_comparison_flushes_what_mode_does_not_allow():
    def oracle(a, b):
        return _relation("gt", 32)(ieee.flush(a, 32), ieee.flush(b, 32))

    check_mask("v_cmp_gt_f32_e32 vcc, v2, v3", [32, 32], oracle, mode=0x3C0)


@pytest.mark.parametrize("size", [16, 32, 64])
def test_class(size):
    def oracle(a, which):
        if ieee.is_nan(a, size):
            kind = 0 if ieee.is_signaling(a, size) else 1
        elif ieee.is_inf(a, size):
            kind = 2 if ieee.negative(a, size) else 9
        elif ieee.is_zero(a, size):
            kind = 5 if ieee.negative(a, size) else 6
        elif ieee.is_denormal(a, size):
            kind = 4 if ieee.negative(a, size) else 7
        else:
            kind = 3 if ieee.negative(a, size) else 8
        return which >> kind & 1

    first = "v[2:3]" if size == 64 else "v2"
    which = 16 if size == 16 else 32
    for kind in range(10):
        check_mask(f"v_cmp_class_f{size}_e64 s[10:11], {first}, {1 << kind:#x}", [size, which], oracle, mode=0x300)
    check_mask(f"v_cmpx_class_f{size}_e32 vcc, {first}, v6", [size, which], oracle)


# -- the MODE register -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, refused, accepted",
    [
        ("v_add_f32_e32 v1, v2, v3", 0x3F1, 0x3FC),
        ("v_fma_f32 v1, v2, v3, v4", 0x3F3, 0x3F4),
        ("v_add_f64 v[0:1], v[2:3], v[4:5]", 0x3F8, 0x3F3),
        ("v_cvt_f16_f32_e32 v1, v2", 0x3F4, 0x3F1),
        ("v_rcp_f32_e32 v1, v2", 0x3F2, 0x3F8),
        ("v_add_f16_e32 v1, v2, v3", 0x3F0 | 1 << 23, 0x3F3),
    ],
)
def test_other_rounding_modes_are_refused_where_they_matter(text, refused, accepted):
    with pytest.raises(IllegalInstruction, match="MODE"):
        execute(text, make_waves(mode=refused))
    execute(text, make_waves(mode=accepted))


@pytest.mark.parametrize("text", ["v_floor_f32_e32 v1, v2", "v_max_f32_e32 v1, v2, v3", "v_cvt_i32_f32_e32 v1, v2"])
def test_what_does_not_round_runs_in_every_rounding_mode(text):
    execute(text, make_waves(mode=0x3FF))


def test_waves_of_different_modes_run_together():
    w = make_waves()
    w.mode[1] = w.mode[3] = 0x3C0  # these flush
    w.vgpr[2], w.vgpr[3] = 0x00400000, 0x00000001
    execute("v_add_f32_e32 v1, v2, v3", w)
    assert w.vgpr[1, :, 0].tolist() == [0x00400001, 0, 0x00400001, 0]
    g = Group(w, slice(0, WAVES))
    for text in ("v_cmpx_gt_f32_e32 vcc, v2, v3", "v_mov_b32_e32 v1, 7"):
        parsed = parse(text)
        REGISTRY[parsed.name](parsed)(g)
    assert w.sgpr[126].tolist() == [0xFFFFFFFF, 0, 0xFFFFFFFF, 0]
    assert w.vgpr[1, :, 0].tolist() == [7, 0, 7, 0]


def test_mode_changes_take_effect_within_a_group():
    """As in a division: denormals are switched on, and off again."""
    w = make_waves(mode=0x3C0)
    w.vgpr[2], w.vgpr[3] = 0x00400000, 0x00000001
    g = Group(w, slice(0, WAVES))
    for text, want in (("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3", 0x00400001),
                       ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0", 0)):  # fmt: skip
        for instruction in (text, "v_add_f32_e32 v1, v2, v3"):
            parsed = parse(instruction)
            REGISTRY[parsed.name](parsed)(g)
        assert (w.vgpr[1] == want).all()
