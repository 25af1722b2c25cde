"""Scalar instructions against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from hsakit.softgpu.exec.program import IllegalInstruction
from tests.softgpu.exec.steps import EXEC, M0, VCC, WAVES, check_scalar, execute, make_waves

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def i32(x):
    return x - (1 << 32) if x >> 31 & 1 else x


def i64(x):
    return x - (1 << 64) if x >> 63 & 1 else x


def keep(f):
    """SCC is not touched."""
    return lambda *args: (f(*args[:-1]), args[-1])


def nonzero(f):
    def oracle(*args):
        result = f(*args[:-1])
        return result, result != 0

    return oracle


def overflow(f):
    def oracle(a, b, _scc):
        total = f(i32(a), i32(b))
        return total & M32, not -(1 << 31) <= total < 1 << 31

    return oracle


BINARY = {
    "s_add_u32": (32, 32, lambda a, b, scc: ((a + b) & M32, a + b > M32)),
    "s_sub_u32": (32, 32, lambda a, b, scc: ((a - b) & M32, b > a)),
    "s_addc_u32": (32, 32, lambda a, b, scc: ((a + b + scc) & M32, a + b + scc > M32)),
    "s_subb_u32": (32, 32, lambda a, b, scc: ((a - b - scc) & M32, b + scc > a)),
    "s_add_i32": (32, 32, overflow(lambda a, b: a + b)),
    "s_sub_i32": (32, 32, overflow(lambda a, b: a - b)),
    "s_min_i32": (32, 32, lambda a, b, scc: (a if i32(a) < i32(b) else b, i32(a) < i32(b))),
    "s_max_i32": (32, 32, lambda a, b, scc: (a if i32(a) >= i32(b) else b, i32(a) >= i32(b))),
    "s_min_u32": (32, 32, lambda a, b, scc: (min(a, b), a < b)),
    "s_max_u32": (32, 32, lambda a, b, scc: (max(a, b), a >= b)),
    "s_absdiff_i32": (32, 32, nonzero(lambda a, b: abs(i32(i32(a) - i32(b) & M32)) & M32)),
    "s_mul_i32": (32, 32, keep(lambda a, b: a * b & M32)),
    "s_mul_hi_u32": (32, 32, keep(lambda a, b: a * b >> 32)),
    "s_mul_hi_i32": (32, 32, keep(lambda a, b: i32(a) * i32(b) >> 32 & M32)),
    "s_lshl_b32": (32, 32, nonzero(lambda a, b: a << (b & 31) & M32)),
    "s_lshr_b32": (32, 32, nonzero(lambda a, b: a >> (b & 31))),
    "s_ashr_i32": (32, 32, nonzero(lambda a, b: i32(a) >> (b & 31) & M32)),
    "s_lshl_b64": (64, 32, nonzero(lambda a, b: a << (b & 63) & M64)),
    "s_lshr_b64": (64, 32, nonzero(lambda a, b: a >> (b & 63))),
    "s_ashr_i64": (64, 32, nonzero(lambda a, b: i64(a) >> (b & 63) & M64)),
    "s_bfm_b32": (32, 32, keep(lambda a, b: (1 << (a & 31)) - 1 << (b & 31) & M32)),
    "s_pack_ll_b32_b16": (32, 32, keep(lambda a, b: a & 0xFFFF | (b & 0xFFFF) << 16)),
    "s_pack_lh_b32_b16": (32, 32, keep(lambda a, b: a & 0xFFFF | b & 0xFFFF0000)),
    "s_pack_hh_b32_b16": (32, 32, keep(lambda a, b: a >> 16 | b & 0xFFFF0000)),
    "s_cselect_b32": (32, 32, lambda a, b, scc: (a if scc else b, scc)),
    "s_cselect_b64": (64, 64, lambda a, b, scc: (a if scc else b, scc)),
}
for _n in (1, 2, 3, 4):
    BINARY[f"s_lshl{_n}_add_u32"] = (32, 32, lambda a, b, scc, n=_n: ((a << n) + b & M32, (a << n) + b > M32))
BITWISE = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}
for _name, _f in BITWISE.items():
    for _bits in (32, 64):
        _mask = (1 << _bits) - 1
        BINARY[f"s_{_name}_b{_bits}"] = (_bits, _bits, nonzero(lambda a, b, f=_f, m=_mask: f(a, b) & m))


def _register(at, size):
    return f"s[{at}:{at + 1}]" if size == 64 else f"s{at}"


@pytest.mark.parametrize("name", BINARY)
def test_of_two(name):
    first, second, oracle = BINARY[name]
    a, b, d = _register(4, first), _register(8, second), _register(12, 64 if first == 64 else 32)
    size = 64 if first == 64 else 32
    check_scalar(f"{name} {d}, {a}, {b}", [first, second], size, oracle)
    check_scalar(f"{name} {a}, {a}, {b}", [first, second], size, oracle)
    check_scalar(f"{name} {d}, {a}, {a}" if first == second else f"{name} {d}, {a}, s4", [first, second], size, oracle)
    for constant in ("0", "-1", "17", "64"):
        check_scalar(f"{name} {d}, {a}, {constant}", [first, second], size, oracle)
    check_scalar(f"{name} {d}, -16, {b}", [first, second], size, oracle)
    if second == 32:
        check_scalar(f"{name} {d}, {a}, 0x80000003", [first, second], size, oracle)


def test_bfm_64_takes_six_bits_of_size_and_offset():
    oracle = keep(lambda a, b: (1 << (a & 63)) - 1 << (b & 63) & M64)
    check_scalar("s_bfm_b64 s[12:13], s4, s8", [32, 32], 64, oracle)
    check_scalar("s_bfm_b64 s[12:13], 63, 1", [32, 32], 64, oracle)


def test_literals_of_64_bits():
    check_scalar("s_mov_b64 s[12:13], 0x80000001", [], 64, lambda scc: (0x80000001, scc))
    check_scalar("s_ashr_i64 s[12:13], 0x80000001, s4", [32], 64,
                 lambda b, scc: ((-0x7FFFFFFF >> (b & 63)) & M64, (-0x7FFFFFFF >> (b & 63)) != 0))  # fmt: skip


def _extract(bits, signed):
    def oracle(a, b, _scc):
        offset, width = b & bits - 1, b >> 16 & 0x7F
        field = (a >> offset) & (1 << width) - 1
        if signed and width:
            # the guide: the value is shifted arithmetically, so that a field that reaches past the top is filled
            whole = i32(a) if bits == 32 else i64(a)
            field = whole >> offset & (1 << width) - 1
            field -= (field >> width - 1 & 1) << width
        field &= (1 << bits) - 1
        return field, field != 0

    return oracle


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_fields(bits):
    a, d = _register(4, bits), _register(12, bits)
    for signed in (False, True):
        oracle = _extract(bits, signed)
        name = f"s_bfe_{'i' if signed else 'u'}{bits}"
        check_scalar(f"{name} {d}, {a}, s8", [bits, 32], bits, oracle)
        for b in (0x40008, 0x10000, 0x1F0001, 0x200000, 0x00000005, 0x7F0003, 0x80018, 0x3F003F, 0x400000):
            check_scalar(f"{name} {d}, {a}, {b:#x}", [bits, 32], bits, oracle)


def leading(a, bits):
    return bits - a.bit_length() if a else M32


def trailing(a):
    return (a & -a).bit_length() - 1 if a else M32


def sign_run(a, bits):
    top = a >> bits - 1
    other = a ^ (((1 << bits) - 1) if top else 0)
    return leading(other, bits)


def repeated(a):
    return sum((a >> i & 1) * 3 << 2 * i for i in range(32))


def quads(a, bits):
    """The groups of four bits that are not all zero."""
    return [i for i in range(bits // 4) if a >> 4 * i & 15]


UNARY = {
    "s_abs_i32": (32, 32, nonzero(lambda a: abs(i32(a)) & M32)),
    "s_sext_i32_i8": (32, 32, keep(lambda a: ((a & 0xFF ^ 0x80) - 0x80) & M32)),
    "s_sext_i32_i16": (32, 32, keep(lambda a: ((a & 0xFFFF ^ 0x8000) - 0x8000) & M32)),
    "s_flbit_i32": (32, 32, keep(lambda a: sign_run(a, 32))),
    "s_flbit_i32_i64": (64, 32, keep(lambda a: sign_run(a, 64))),
    "s_bitreplicate_b64_b32": (32, 64, keep(repeated)),
}
for _bits in (32, 64):
    _mask = (1 << _bits) - 1
    UNARY |= {
        f"s_mov_b{_bits}": (_bits, _bits, keep(lambda a: a)),
        f"s_not_b{_bits}": (_bits, _bits, nonzero(lambda a, m=_mask: ~a & m)),
        f"s_brev_b{_bits}": (_bits, _bits, keep(lambda a, n=_bits: int(f"{a:0{n}b}"[::-1], 2))),
        f"s_bcnt0_i32_b{_bits}": (_bits, 32, nonzero(lambda a, n=_bits: n - bin(a).count("1"))),
        f"s_bcnt1_i32_b{_bits}": (_bits, 32, nonzero(lambda a: bin(a).count("1"))),
        f"s_ff0_i32_b{_bits}": (_bits, 32, keep(lambda a, m=_mask: trailing(~a & m))),
        f"s_ff1_i32_b{_bits}": (_bits, 32, keep(trailing)),
        f"s_flbit_i32_b{_bits}": (_bits, 32, keep(lambda a, n=_bits: leading(a, n))),
        f"s_wqm_b{_bits}": (_bits, _bits, nonzero(lambda a, n=_bits: sum(15 << 4 * i for i in quads(a, n)))),
        f"s_quadmask_b{_bits}": (_bits, _bits, nonzero(lambda a, n=_bits: sum(1 << i for i in quads(a, n)))),
    }


@pytest.mark.parametrize("name", UNARY)
def test_of_one(name):
    size, out, oracle = UNARY[name]
    for a in (_register(4, size), "0", "-1", "17", "0x10" if size == 64 else "0x80001000"):
        check_scalar(f"{name} {_register(12, out)}, {a}", [size], out, oracle)
    check_scalar(f"{name} {_register(4, out)}, {_register(4, size)}", [size], out, oracle)


@pytest.mark.parametrize(
    "value, index", [("0.5", 0x3F000000), ("-4.0", 0xC0800000), ("0.15915494", 0x3E22F983), ("1.0", 0x3F800000)]
)
def test_float_constants_are_bits(value, index):
    check_scalar(f"s_mov_b32 s12, {value}", [], 32, lambda scc: (index, scc))


# -- comparisons -------------------------------------------------------------------------------------------------------

RELATIONS = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


@pytest.mark.parametrize("name", RELATIONS)
def test_comparisons(name):
    holds = RELATIONS[name]
    for second in ("s8", "s4", "5", "-1"):
        check_scalar(f"s_cmp_{name}_u32 s4, {second}", [32, 32], 0, lambda a, b, scc: (None, holds(a, b)))
        check_scalar(f"s_cmp_{name}_i32 s4, {second}", [32, 32], 0, lambda a, b, scc: (None, holds(i32(a), i32(b))))
    if name in ("eq", "lg"):
        for second in ("s[8:9]", "s[4:5]", "0", "-1"):
            check_scalar(f"s_cmp_{name}_u64 s[4:5], {second}", [64, 64], 0, lambda a, b, scc: (None, holds(a, b)))
    for k in (0, 5, 0x7FFF, 0x8000, 0xFFFF):
        signed = k - 0x10000 if k & 0x8000 else k
        _check_cmpk(name, "i32", k, lambda a, s=signed: holds(i32(a), s))
        _check_cmpk(name, "u32", k, lambda a, k=k: holds(a, k))


def _check_cmpk(name, type_, k, holds):
    w = make_waves()
    w.sgpr[4] = [k, 0xFFFF0000 | k, 5, 0x80000000]
    execute(f"s_cmpk_{name}_{type_} s4, {k:#x}", w)
    assert w.scc.tolist() == [holds(int(a)) for a in w.sgpr[4]]


@pytest.mark.parametrize("bits", [32, 64])
def test_single_bits(bits):
    a, mask = _register(4, bits), bits - 1
    for b in ("s8", "3", "63", "0x41"):
        check_scalar(f"s_bitcmp0_b{bits} {a}, {b}", [bits, 32], 0, lambda a, b, scc: (None, not a >> (b & mask) & 1))
        check_scalar(f"s_bitcmp1_b{bits} {a}, {b}", [bits, 32], 0, lambda a, b, scc: (None, a >> (b & mask) & 1))
        for set_ in (0, 1):
            w = make_waves()
            before = w.sgpr.copy()
            execute(f"s_bitset{set_}_b{bits} {a}, {b}", w)
            for wave in range(WAVES):
                bit = int(before[8, wave]) if b == "s8" else int(b, 0)
                old = int(before[4, wave]) | (int(before[5, wave]) << 32 if bits == 64 else 0)
                want = old & ~(1 << (bit & mask)) | set_ << (bit & mask)
                got = int(w.sgpr[4, wave]) | (int(w.sgpr[5, wave]) << 32 if bits == 64 else 0)
                assert got == want


# -- immediates, conditional moves -------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 0x7FFF, 0x8000, 0xFFFE])
def test_immediates(k):
    signed = k - 0x10000 if k & 0x8000 else k
    check_scalar(f"s_movk_i32 s12, {k:#x}", [], 32, lambda scc: (signed & M32, scc))
    for name, f in (("s_addk_i32", lambda a: a + signed), ("s_mulk_i32", lambda a: a * signed)):
        w = make_waves()
        old, scc = w.sgpr[12].tolist(), w.scc.tolist()
        execute(f"{name} s12, {k:#x}", w)
        exact = [f(i32(a)) for a in old]
        assert w.sgpr[12].tolist() == [x & M32 for x in exact]
        assert w.scc.tolist() == ([not -(1 << 31) <= x < 1 << 31 for x in exact] if name == "s_addk_i32" else scc)
    w = make_waves()
    old = w.sgpr[12].tolist()
    execute(f"s_cmovk_i32 s12, {k:#x}", w)
    assert w.sgpr[12].tolist() == [signed & M32 if c else a for a, c in zip(old, w.scc)]


def test_conditional_moves():
    w = make_waves()
    old, new = w.sgpr[12:14].copy(), w.sgpr[4:6].copy()
    execute("s_cmov_b64 s[12:13], s[4:5]", w)
    assert (w.sgpr[12:14] == np.where(w.scc, new, old)).all()
    execute("s_cmov_b32 s14, -1", w)
    assert w.scc.any() and not w.scc.all()
    assert (w.sgpr[14][w.scc] == M32).all()


def test_scc_and_zero_flags_as_sources():
    w = make_waves()
    w.sgpr[VCC], w.sgpr[VCC + 1] = [0, 1, 0, 0], [0, 0, 2, 0]
    for text, want in (
        ("s_mov_b32 s12, src_scc", w.scc.astype(int).tolist()),
        ("s_mov_b32 s12, src_vccz", [1, 0, 0, 1]),
        ("s_mov_b32 s12, src_execz", [0, 0, 0, 0]),
    ):
        execute(text, w)
        assert w.sgpr[12].tolist() == want


# -- EXEC --------------------------------------------------------------------------------------------------------------

SAVED = BITWISE | {"andn1": lambda s, e: ~s & e, "orn1": lambda s, e: ~s | e}


def _pairs(w, register):
    return [int(low) | int(high) << 32 for low, high in zip(w.sgpr[register], w.sgpr[register + 1])]


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("source", ["s[4:5]", "vcc", "0", "-1", "s[12:13]"])
def test_saveexec(name, source):
    w = make_waves(exec_=[5, 0xF0, M64, 0])
    read = {"s[4:5]": 4, "vcc": VCC, "s[12:13]": 12}.get(source)
    values = _pairs(w, read) if read else [int(source)] * WAVES
    execute(f"s_{name}_saveexec_b64 s[12:13], {source}", w)
    for i, old in enumerate((5, 0xF0, M64, 0)):
        want = SAVED[name](values[i], old) & M64
        assert (_pairs(w, 12)[i], _pairs(w, EXEC)[i]) == (old, want)
        assert w.scc[i] == (want != 0)
        assert w.lanes[i].tolist() == [bool(want >> lane & 1) for lane in range(64)]


@pytest.mark.parametrize("name, f", [("andn1", lambda s, e: ~s & e), ("andn2", lambda s, e: s & ~e)])
def test_wrexec(name, f):
    w = make_waves(exec_=[5, 0xF0, M64, 0])
    values = _pairs(w, 4)
    execute(f"s_{name}_wrexec_b64 s[12:13], s[4:5]", w)
    for i, old in enumerate((5, 0xF0, M64, 0)):
        want = f(values[i], old) & M64
        assert _pairs(w, 12)[i] == _pairs(w, EXEC)[i] == want
        assert w.scc[i] == (want != 0)


@pytest.mark.parametrize("text", ["s_mov_b64 exec, s[4:5]", "s_and_b64 exec, s[4:5], s[8:9]", "s_mov_b32 exec_lo, s4"])
def test_writing_exec_changes_the_active_lanes(text):
    w = make_waves()
    execute(text, w)
    for i in range(WAVES):
        mask = int(w.sgpr[EXEC, i]) | int(w.sgpr[EXEC + 1, i]) << 32
        assert w.lanes[i].tolist() == [bool(mask >> lane & 1) for lane in range(64)]
    w.vgpr[1] = 7
    execute("v_mov_b32_e32 v1, 8", w)
    assert (w.vgpr[1] == np.where(w.lanes, 8, 7)).all()


# -- chosen registers --------------------------------------------------------------------------------------------------


def test_registers_relative_to_m0():
    w = make_waves()
    w.sgpr[M0] = 10
    before = w.sgpr.copy()
    execute("s_movrels_b32 s5, s7", w)
    assert (w.sgpr[5] == before[17]).all()
    execute("s_movreld_b64 s[20:21], s[8:9]", w)
    assert (w.sgpr[30:32] == before[8:10]).all()
    w.sgpr[M0, 1] = 11
    with pytest.raises(IllegalInstruction, match="M0 differs"):
        execute("s_movrels_b32 s5, s7", w)
