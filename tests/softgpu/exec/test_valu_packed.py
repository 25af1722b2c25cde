"""Packed instructions and dot products, element by element."""

from __future__ import annotations

import itertools
import random

import pytest

from hsakit.softgpu.exec.program import IllegalInstruction
from tests.softgpu.exec import ieee
from tests.softgpu.exec.steps import WAVES, State, check_vector, execute, make_waves, source

M16, M32, M64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1
EXECS = [M64, 0xFF, 0, 0xF0F0_0000_0000_0001]


def signed(x, bits=16):
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> bits - 1 else x


def by_sign(f):
    return lambda *args: f(*map(signed, args)) & M16


FLOATS = {
    "v_pk_add_f16": (2, lambda a, b: ieee.add(a, b, 16)),
    "v_pk_mul_f16": (2, lambda a, b: ieee.mul(a, b, 16)),
    "v_pk_min_f16": (2, lambda a, b: ieee.minimum(a, b, 16)),
    "v_pk_max_f16": (2, lambda a, b: ieee.maximum(a, b, 16)),
    "v_pk_fma_f16": (3, lambda a, b, c: ieee.fma(a, b, c, 16)),
}
INTEGERS = {
    "v_pk_add_u16": (2, lambda a, b: a + b & M16),
    "v_pk_add_i16": (2, lambda a, b: a + b & M16),
    "v_pk_sub_u16": (2, lambda a, b: a - b & M16),
    "v_pk_sub_i16": (2, lambda a, b: a - b & M16),
    "v_pk_mad_u16": (3, lambda a, b, c: a * b + c & M16),
    "v_pk_mad_i16": (3, lambda a, b, c: a * b + c & M16),
    "v_pk_mul_lo_u16": (2, lambda a, b: a * b & M16),
    "v_pk_min_u16": (2, min),
    "v_pk_max_u16": (2, max),
    "v_pk_min_i16": (2, by_sign(min)),
    "v_pk_max_i16": (2, by_sign(max)),
    "v_pk_lshlrev_b16": (2, lambda a, b: b << (a & 15) & M16),
    "v_pk_lshrrev_b16": (2, lambda a, b: b >> (a & 15)),
    "v_pk_ashrrev_i16": (2, lambda a, b: signed(b) >> (a & 15) & M16),
}


def as_set(x):
    return x if isinstance(x, set) else {x}


def check_packed(name, operands, oracle, op_sel=None, op_sel_hi=None, neg_lo=None, neg_hi=None, suffix=""):
    count = len(operands)
    fields = {"op_sel": op_sel, "op_sel_hi": op_sel_hi, "neg_lo": neg_lo, "neg_hi": neg_hi}
    text = f"{name} v1, {', '.join(operands)}"
    for key, value in fields.items():
        if value:
            text += f" {key}:[{','.join(map(str, value))}]"
    defaults = {"op_sel": [0] * count, "op_sel_hi": [1] * count, "neg_lo": [0] * count, "neg_hi": [0] * count}
    fields = {key: value or defaults[key] for key, value in fields.items()}
    w = make_waves(sizes=dict.fromkeys((2, 3, 4), 16), exec_=EXECS)
    before = State(w)
    execute(text + suffix, w)
    after = State(w)

    def raw(o):
        if "." in o:  # a float constant stands in the low half
            return lambda st, wave, lane: source(o, 16)(st, wave, lane)
        return source(o, 32)

    reads = [raw(o) for o in operands]
    for wave in range(WAVES):
        for lane in range(64):
            if not before.active(wave, lane):
                assert after.v[1][wave][lane] == before.v[1][wave][lane]
                continue
            for half, sel, neg in ((0, "op_sel", "neg_lo"), (1, "op_sel_hi", "neg_hi")):
                args = []
                for i, read in enumerate(reads):
                    element = read(before, wave, lane) >> 16 * fields[sel][i] & M16
                    args.append(element ^ 0x8000 * fields[neg][i])
                got = after.v[1][wave][lane] >> 16 * half & M16
                assert got in as_set(oracle(*args)), f"{text}: {[hex(a) for a in args]} -> {got:#x}"


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
def test_halves(name):
    count, oracle = (FLOATS | INTEGERS)[name]
    registers = ["v2", "v3", "v4"][:count]
    check_packed(name, registers, oracle)
    check_packed(name, ["s5", *registers[1:]], oracle)
    check_packed(name, ["v1"] * count, oracle)
    rng = random.Random(name)
    for _ in range(4):
        fields = [[rng.getrandbits(1) for _ in range(count)] for _ in range(4)]
        check_packed(name, registers, oracle, *(fields if name in FLOATS else fields[:2]))
    constant = "1.0" if name in FLOATS else "-3"
    check_packed(name, [constant, *registers[1:]], oracle, op_sel_hi=[0] + [1] * (count - 1))
    check_packed(name, [constant, *registers[1:]], oracle)  # the high half of a float constant is zero


def test_accumulating():
    for operands in (["v2", "v3"], ["s4", "v3"]):
        w = make_waves(sizes={1: 16, 2: 16, 3: 16}, exec_=EXECS)
        before = State(w)
        execute(f"v_pk_fmac_f16_e32 v1, {', '.join(operands)}", w)
        after = State(w)
        reads = [source(o, 32) for o in (*operands, "v1")]
        for wave in range(WAVES):
            for lane in range(64):
                if before.active(wave, lane):
                    for shift in (0, 16):
                        args = [read(before, wave, lane) >> shift & M16 for read in reads]
                        assert after.v[1][wave][lane] >> shift & M16 in as_set(ieee.fma(*args, 16))


def limited(f, low, high, mask=M16):
    return lambda *args: max(low, min(high, f(*args))) & mask


@pytest.mark.parametrize("name, oracle", [
    ("v_pk_add_u16", limited(lambda a, b: a + b, 0, M16)),
    ("v_pk_sub_u16", limited(lambda a, b: a - b, 0, M16)),
    ("v_pk_add_i16", limited(lambda a, b: signed(a) + signed(b), -(1 << 15), (1 << 15) - 1)),
    ("v_pk_sub_i16", limited(lambda a, b: signed(a) - signed(b), -(1 << 15), (1 << 15) - 1)),
])  # fmt: skip
def test_clamp_of_integers_saturates(name, oracle):
    check_packed(name, ["v2", "v3"], oracle, suffix=" clamp")


def test_clamp_of_floats():
    def oracle(a, b):
        total = ieee.add(a, b, 16)
        if isinstance(total, set) or ieee.is_nan(total, 16) or ieee.negative(total, 16):
            return 0
        return min(total, 0x3C00)

    check_packed("v_pk_add_f16", ["v2", "v3"], oracle, suffix=" clamp")


def test_other_modifiers_are_refused():
    with pytest.raises(IllegalInstruction, match="clamp"):
        execute("v_pk_min_u16 v1, v2, v3 clamp", make_waves())


# -- pairs of float32 --------------------------------------------------------------------------------------------------

SINGLES = {
    "v_pk_fma_f32": (3, lambda a, b, c: ieee.fma(a, b, c, 32)),
    "v_pk_mul_f32": (2, lambda a, b: ieee.mul(a, b, 32)),
    "v_pk_add_f32": (2, lambda a, b: ieee.add(a, b, 32)),
}


def dword(o, which):
    if o.startswith(("v", "s")):
        return source(f"{o[0]}{int(o[2:].split(':')[0]) + which}", 32)
    if "." in o:
        return source(o, 32) if which == 0 else source("0", 32)
    return source(str(int(o) >> 32 * which & M32), 32)


@pytest.mark.parametrize("operands", [
    ["v[2:3]", "v[4:5]", "v[6:7]"], ["v[0:1]", "v[4:5]", "v[0:1]"], ["s[4:5]", "v[0:1]", "v[2:3]"],
    ["v[2:3]", "s[4:5]", "s[4:5]"], ["v[2:3]", "1.0", "v[6:7]"], ["v[2:3]", "-1", "v[0:1]"],
])  # fmt: skip
@pytest.mark.parametrize("name", SINGLES)
def test_pairs(name, operands):
    count, oracle = SINGLES[name]
    operands = operands[:count]
    rng = random.Random(name + operands[0])
    cases = [
        ([0] * count, [1] * count, [0] * count, [0] * count),
        ([0] * count, [1, 0, 1][:count], [0] * count, [0] * count),
    ]
    cases.append(([1] * count, [0] * count, [0] * count, [0] * count))
    cases += [tuple([rng.getrandbits(1) for _ in range(count)] for _ in range(4)) for _ in range(3)]
    for op_sel, op_sel_hi, neg_lo, neg_hi in cases:
        text = f"{name} v[0:1], {', '.join(operands)}"
        for key, value in (("op_sel", op_sel), ("op_sel_hi", op_sel_hi), ("neg_lo", neg_lo), ("neg_hi", neg_hi)):
            text += f" {key}:[{','.join(map(str, value))}]"
        both = [[dword(o, sel[i]) for i, o in enumerate(operands)] for sel in (op_sel, op_sel_hi)]
        for exec_ in (EXECS, [M64] * WAVES):
            w = make_waves(exec_=exec_)
            before = State(w)
            execute(text, w)
            after = State(w)
            for half, wave, lane in itertools.product((0, 1), range(WAVES), range(64)):
                got = after.v[half][wave][lane]
                if not before.active(wave, lane):
                    assert got == before.v[half][wave][lane]
                    continue
                neg = neg_hi if half else neg_lo
                args = [read(before, wave, lane) ^ neg[i] << 31 for i, read in enumerate(both[half])]
                assert got in as_set(oracle(*args)), f"{text}: {[hex(a) for a in args]} -> {got:#x}"


def test_pairs_flush_what_mode_does_not_allow():
    w = make_waves(mode=0x3C0)
    w.vgpr[2], w.vgpr[3], w.vgpr[4], w.vgpr[5] = 0x00400000, 0x3F800000, 0x00000001, 0x00000001
    execute("v_pk_add_f32 v[0:1], v[2:3], v[4:5]", w)
    assert (w.vgpr[0] == 0).all() and (w.vgpr[1] == 0x3F800000).all()


def test_clamp_of_pairs():
    w = make_waves()
    w.vgpr[2], w.vgpr[3] = 0x40000000, 0xBF800000
    execute("v_pk_mul_f32 v[0:1], v[2:3], 1.0 op_sel_hi:[1,0] clamp", w)
    assert (w.vgpr[0] == 0x3F800000).all() and (w.vgpr[1] == 0).all()


@pytest.mark.parametrize(
    "operands, low, high",
    [
        ("v[2:3], v[4:5] op_sel:[0,1]", "v2", "v5"),
        ("v[2:3], v[4:5]", "v2", "v4"),
        ("s[6:7], s[6:7] op_sel:[0,1]", "s6", "s7"),
        ("v[0:1], v[0:1] op_sel:[1,0]", "v1", "v0"),
        ("v[2:3], 5", "v2", "5"),
        ("v[2:3], s[6:7] op_sel:[1,1]", "v3", "s7"),
    ],
)
def test_moves(operands, low, high):
    w = make_waves(exec_=EXECS)
    before = State(w)
    execute(f"v_pk_mov_b32 v[0:1], {operands}", w)
    after = State(w)
    for wave in range(WAVES):
        for lane in range(64):
            for half, o in enumerate((low, high)):
                want = source(o, 32)(before, wave, lane) if before.active(wave, lane) else before.v[half][wave][lane]
                assert after.v[half][wave][lane] == want


# -- dot products ------------------------------------------------------------------------------------------------------


def wrapped(f):
    return lambda *args: f(*args) & M32


def dot(bits, is_signed):
    def oracle(a, b, c):
        total = signed(c, 32) if is_signed else c
        for i in range(32 // bits):
            x, y = (v >> bits * i & (1 << bits) - 1 for v in (a, b))
            total += signed(x, bits) * signed(y, bits) if is_signed else x * y
        return total

    return oracle


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_integer_dot_products(bits):
    n = 32 // bits
    for is_signed, kind in ((True, "i"), (False, "u")):
        exact = dot(bits, is_signed)
        low, high = (-(1 << 31), (1 << 31) - 1) if is_signed else (0, M32)
        name = f"v_dot{n}_{kind}32_{kind}{bits}"
        check_vector(f"{name} v1, v2, v3, v4", [32] * 3, 32, wrapped(exact))
        check_vector(f"{name} v1, v2, s3, 7", [32] * 3, 32, wrapped(exact))
        check_vector(f"{name} v1, v2, v3, v4 clamp", [32] * 3, 32, limited(exact, low, high, M32))
    check_vector(f"v_dot{n}c_i32_i{bits}_e32 v1, v2, v3", [32] * 2, 32, wrapped(dot(bits, True)), accumulate=True)


def dot_f16(a, b, c):
    totals = {ieee.flush(c, 32)}
    for shift in (0, 16):
        x, y = (ieee.convert(ieee.flush(v >> shift & M16, 16), 16, 32) for v in (a, b))
        products = as_set(ieee.mul(x, y, 32))
        totals = {s for t in totals for p in products for s in as_set(ieee.add(t, p, 32))}
        totals = {ieee.flush(t, 32) for t in totals}
    return totals


def test_float_dot_products():
    for text, registers in (
        ("v_dot2_f32_f16 v1, v2, v3, v4", "v2 v3 v4"),
        ("v_dot2c_f32_f16_e32 v1, v2, v3", "v2 v3 v1"),
    ):
        w = make_waves(sizes={2: 16, 3: 16}, exec_=EXECS)
        before = State(w)
        execute(text, w)
        after = State(w)
        reads = [source(o, 32) for o in registers.split()]
        for wave in range(WAVES):
            for lane in range(64):
                if before.active(wave, lane):
                    args = [read(before, wave, lane) for read in reads]
                    assert after.v[1][wave][lane] in dot_f16(*args), [hex(a) for a in args]
                else:
                    assert after.v[1][wave][lane] == before.v[1][wave][lane]
