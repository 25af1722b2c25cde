"""float16 instructions and mixed multiply-adds, against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from tests.softgpu.exec import ieee
from tests.softgpu.exec.steps import (
    MODE,
    VCC,
    WAVES,
    State,
    check_vector,
    execute,
    make_waves,
    source,
)

M16 = 0xFFFF


def two(f):
    return lambda a, b: f(a, b, 16)


ARITHMETIC = {
    "add": ieee.add,
    "sub": ieee.sub,
    "subrev": lambda a, b, size: ieee.sub(b, a, size),
    "mul": ieee.mul,
    "min": ieee.minimum,
    "max": ieee.maximum,
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_zeroes_the_upper_half(name):
    for a in ("v2", "s3", "1.0", "0x3555"):
        check_vector(f"v_{name}_f16_e32 v1, {a}, v3", [16, 16], 32, two(ARITHMETIC[name]))
    check_vector(f"v_{name}_f16_e64 v1, -|v2|, -s3", [16, 16], 32, two(ARITHMETIC[name]))


@pytest.mark.parametrize("name", ["add", "mul"])
def test_denormals_as_mode_says(name):
    for mode, inputs, outputs in ((0x330, 0, 0), (0x370, 1, 0), (0x3B0, 0, 1)):

        def oracle(a, b, inputs=inputs, outputs=outputs):
            a, b = (x if inputs else ieee.flush(x, 16) for x in (a, b))
            result = ARITHMETIC[name](a, b, 16)
            if outputs or isinstance(result, set):
                return result
            return ieee.flush(result, 16)

        check_vector(f"v_{name}_f16_e32 v1, v2, v3", [16, 16], 32, oracle, mode=mode)


def test_fma_keeps_the_upper_half():
    for text in ("v2, v3, v4", "-v2, |v3|, s4", "v2, 0.5, v4", "v1, v1, v1"):
        check_vector(f"v_fma_f16 v1, {text}", [16] * 3, 32, lambda a, b, c: ieee.fma(a, b, c, 16), keep=True)
    check_vector("v_fma_legacy_f16 v1, v2, v3, v4", [16] * 3, 32, lambda a, b, c: ieee.fma(a, b, c, 16))


def test_fma_does_not_round_twice():
    """A number and just less than half of its last place: (1 + 2**-10) * (1 - 2**-10) * 2**-11."""
    w = make_waves()
    rows = [(0x3C01, b, 0x3C00 | c) for b in (0x0FFE, 0x8FFE) for c in range(1, 6)]
    for lane, row in enumerate(rows):
        w.vgpr[2:5, 0, lane] = row
    execute("v_fma_f16 v1, v2, v3, v4", w)
    assert [int(x) & M16 for x in w.vgpr[1, 0, : len(rows)]] == [ieee.fma(*row, 16) for row in rows]


def mad(a, b, c):
    """Rounded twice, denormals flushed everywhere."""
    a, b, c = (ieee.flush(x, 16) for x in (a, b, c))
    product = ieee.mul(a, b, 16)
    if isinstance(product, set):
        return product | (ieee.first_nan(16, c) or set())
    total = ieee.add(ieee.flush(product, 16), c, 16)
    return total if isinstance(total, set) else ieee.flush(total, 16)


def test_mad():
    check_vector("v_mad_f16 v1, v2, v3, v4", [16] * 3, 32, mad, keep=True)
    check_vector("v_mad_legacy_f16 v1, v2, v3, v4", [16] * 3, 32, mad)
    check_vector("v_mac_f16_e32 v1, v2, v3", [16] * 2, 32, lambda a, b, c: mad(a, b, c & M16), accumulate=True)
    check_vector("v_madak_f16 v1, v2, v3, 0x3555", [16] * 3, 32, mad)
    check_vector("v_madmk_f16 v1, v2, 0x3555, v3", [16] * 3, 32, mad)


@pytest.mark.parametrize("mode", [MODE, MODE & ~0x200])
def test_of_three(mode):
    is_ieee = bool(mode & 0x200)

    def three(f):
        return lambda a, b, c: f(f(a, b, 16, is_ieee), c, 16, is_ieee)

    def median(a, b, c):
        if any(ieee.is_nan(x, 16) for x in (a, b, c)):
            return three(ieee.minimum)(a, b, c)
        top = ieee.to_float(three(ieee.maximum)(a, b, c), 16)
        rest = (b, c) if top == ieee.to_float(a, 16) else (a, c) if top == ieee.to_float(b, 16) else (a, b)
        return ieee.maximum(*rest, 16, is_ieee)

    check_vector("v_min3_f16 v1, v2, v3, v4", [16] * 3, 32, three(ieee.minimum), keep=True, mode=mode)
    check_vector("v_max3_f16 v1, v2, v3, v4", [16] * 3, 32, three(ieee.maximum), keep=True, mode=mode)
    check_vector("v_med3_f16 v1, v2, v3, v4", [16] * 3, 32, median, keep=True, mode=mode)


@pytest.mark.parametrize(
    "name, function", [("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc), ("rndne", round)]
)
def test_to_integral(name, function):
    def oracle(a):
        if ieee.is_nan(a, 16):
            return ieee.quiet(a, 16)
        if ieee.is_inf(a, 16) or ieee.is_zero(a, 16):
            return a
        return ieee.encode(Fraction(function(ieee.exact(a, 16))), 16, ieee.negative(a, 16))

    check_vector(f"v_{name}_f16_e32 v1, v2", [16], 32, oracle)


def test_parts():
    def parts(a):
        if ieee.is_nan(a, 16) or ieee.is_inf(a, 16):
            return ieee.quiet(a, 16), 0
        m, e = math.frexp(ieee.to_float(a, 16))
        return ieee.bits_of(m, 16), e & M16

    check_vector("v_frexp_mant_f16_e32 v1, v2", [16], 32, lambda a: parts(a)[0])
    check_vector("v_frexp_exp_i16_f16_e32 v1, v2", [16], 32, lambda a: parts(a)[1])

    def scaled(a, n):
        if ieee.is_nan(a, 16) or ieee.is_inf(a, 16):
            return ieee.quiet(a, 16)
        n = n - (1 << 16) if n >> 15 else n
        return ieee.encode(ieee.exact(a, 16) * Fraction(2) ** n, 16) | a & 0x8000

    for power in ("v3", "-3", "9"):
        check_vector(f"v_ldexp_f16_e64 v1, v2, {power}", [16, 16], 32, scaled)

    def fract(a):
        if ieee.is_nan(a, 16) or ieee.is_inf(a, 16):
            return ieee.quiet(a, 16) if ieee.is_nan(a, 16) else ieee.default_nan(16)
        x = ieee.exact(a, 16)
        return min(ieee.encode(x - math.floor(x), 16), 0x3BFF)

    check_vector("v_fract_f16_e32 v1, v2", [16], 32, fract)


# rows of the ISA guide, "functional examples"
EXAMPLES = {
    "v_rcp_f16": [(0xFC00, 0x8000), (0xC000, 0xB800), (0x8000, 0xFC00), (0, 0x7C00), (0x7C00, 0), (0x7800, 0x0200)],
    "v_sqrt_f16": [(0xFC00, 0xFE00), (0x8000, 0x8000), (0, 0), (0x4400, 0x4000), (0x7C00, 0x7C00)],
    "v_rsq_f16": [(0xFC00, 0xFE00), (0x8000, 0xFC00), (0, 0x7C00), (0x4400, 0x3800), (0x7C00, 0)],
    "v_log_f16": [(0xFC00, 0xFE00), (0xBC00, 0xFE00), (0x8000, 0xFC00), (0, 0xFC00), (0x3C00, 0), (0x7C00, 0x7C00),
                  (0x0001, 0xCE00)],
    "v_exp_f16": [(0xFC00, 0), (0x8000, 0x3C00), (0x7C00, 0x7C00), (0xCE00, 0x0001)],
    "v_sin_f16": [(0xFC00, 0xFE00), (0xFBFF, 0), (0x8000, 0x8000), (0x3400, 0x3C00), (0x7BFF, 0), (0x7C00, 0xFE00)],
    "v_cos_f16": [(0xFC00, 0xFE00), (0xFBFF, 0x3C00), (0x8000, 0x3C00), (0x3400, 0), (0x7BFF, 0x3C00),
                  (0x7C00, 0xFE00)],
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_the_isa_guide(name):
    w = make_waves()
    w.vgpr[2, 0, : len(EXAMPLES[name])] = [a for a, _ in EXAMPLES[name]]
    execute(f"{name}_e32 v1, v2", w)
    assert [hex(x) for x in w.vgpr[1, 0, : len(EXAMPLES[name])]] == [hex(r) for _, r in EXAMPLES[name]]


def test_functions_are_correctly_rounded():
    def of(function):
        def oracle(a):
            if ieee.is_nan(a, 16):
                return ieee.quiet(a, 16)
            if ieee.negative(a, 16) and not ieee.is_zero(a, 16) and function is not _reciprocal:
                return ieee.default_nan(16)
            return function(a)

        return oracle

    check_vector("v_rcp_f16_e32 v1, v2", [16], 32, of(_reciprocal))
    check_vector("v_sqrt_f16_e32 v1, v2", [16], 32, of(_root))
    check_vector("v_rsq_f16_e32 v1, v2", [16], 32, of(_reciprocal_root))


def _reciprocal(a):
    return ieee.divide(0x3C00, a, 16)


def _root(a):
    return (
        a if ieee.is_zero(a, 16) or ieee.is_inf(a, 16) else ieee.encode(Fraction(math.sqrt(ieee.to_float(a, 16))), 16)
    )


def _reciprocal_root(a):
    if ieee.is_zero(a, 16) or ieee.is_inf(a, 16):
        return ieee.divide(0x3C00, a, 16)
    return ieee.encode(Fraction(1 / math.sqrt(ieee.to_float(a, 16))), 16)


def test_pack():
    def oracle(a, b):
        return ieee.quiet(a, 16) | ieee.quiet(b, 16) << 16

    check_vector("v_pack_b32_f16 v1, v2, -v3", [16, 16], 32, oracle)
    check_vector("v_pack_b32_f16 v1, s2, 1.0", [16, 16], 32, oracle)
    w = make_waves()
    w.vgpr[2], w.vgpr[3] = 0x11112222, 0x33334444
    execute("v_pack_b32_f16 v1, v2, v3 op_sel:[1,0,0]", w)
    assert (w.vgpr[1] == 0x44441111).all()


# -- mixed -------------------------------------------------------------------------------------------------------------


def _mixed(operand, half, high):
    plain = operand.strip("-|")
    whole = source(plain, 32)

    def read(st, wave, lane):
        if half:
            constant = "." in plain
            bits = (
                source(plain, 16)(st, wave, lane) if constant and not high else 0 if constant else whole(st, wave, lane)
            )
            value = ieee.convert((bits >> 16 if high and not constant else bits) & M16, 16, 32)
        else:
            value = whole(st, wave, lane)
        value = value & 0x7FFFFFFF if "|" in operand else value
        return value ^ 1 << 31 if operand.startswith("-") else value

    return read


@pytest.mark.parametrize(
    "name, rounds", [("v_fma_mix_f32", "f32"), ("v_fma_mixlo_f16", "low"), ("v_fma_mixhi_f16", "high")]
)
@pytest.mark.parametrize("op_sel, op_sel_hi", [("0,0,0", "0,0,0"), ("0,0,0", "1,1,1"), ("1,0,1", "1,1,1"),
                                               ("1,1,0", "1,0,0"), ("0,1,1", "0,1,1")])  # fmt: skip
@pytest.mark.parametrize("operands", ["v2, v3, v4", "-v2, |v3|, s4", "v2, 1.0, -v4"])
def test_mixed(name, rounds, op_sel, op_sel_hi, operands):
    high, half = ([int(x) for x in text.split(",")] for text in (op_sel, op_sel_hi))
    reads = [_mixed(o.strip(), half[i], high[i]) for i, o in enumerate(operands.split(","))]
    w = make_waves(sizes={r: 16 for i, r in enumerate((2, 3, 4)) if half[i]}, exec_=[(1 << 64) - 1, 0xFF, 0, 0xF0F0])
    before = State(w)
    execute(f"{name} v1, {operands} op_sel:[{op_sel}] op_sel_hi:[{op_sel_hi}]", w)
    after = State(w)
    for wave in range(WAVES):
        for lane in range(64):
            old, got = before.v[1][wave][lane], after.v[1][wave][lane]
            if not before.active(wave, lane):
                assert got == old
                continue
            exact = ieee.fma(*[read(before, wave, lane) for read in reads], 32)
            exact = exact if isinstance(exact, set) else {exact}
            if rounds == "f32":
                want = exact
            elif rounds == "low":
                want = {ieee.convert(x, 32, 16) | old & ~M16 for x in exact}
            else:
                want = {ieee.convert(x, 32, 16) << 16 | old & M16 for x in exact}
            assert got in want


def test_masks_and_vcc_are_untouched():
    w = make_waves()
    before = w.sgpr[VCC].copy()
    execute("v_add_f16_e32 v1, v2, v3", w)
    assert (w.sgpr[VCC] == before).all()
