"""Extras of encodings: parts of registers (SDWA), other lanes (DPP), output scale and clamp."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hsakit.softgpu.exec.program import IllegalInstruction
from tests.softgpu.exec import ieee
from tests.softgpu.exec.steps import MODE, VCC, WAVES, State, execute, make_waves

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
EXECS = [M64, 0x0123_4567_89AB_CDEF, 0, 0xF0F0_0000_FFFF_0001]
SELECT = {"DWORD": (0, 32), "WORD_0": (0, 16), "WORD_1": (16, 16), **{f"BYTE_{i}": (8 * i, 8) for i in range(4)}}


def run(text, exec_=EXECS, mode=MODE, sizes=None, change=None):
    w = make_waves(sizes=sizes, exec_=exec_, mode=mode)
    if change:
        change(w)
    before = State(w)
    execute(text, w)
    return before, State(w)


def each_lane():
    return itertools.product(range(WAVES), range(64))


# -- SDWA --------------------------------------------------------------------------------------------------------------


def selected(x, select, sext=False):
    shift, width = SELECT[select]
    part = x >> shift & (1 << width) - 1
    return part - (1 << width) & M32 if sext and part >> width - 1 else part


@pytest.mark.parametrize("first", SELECT)
@pytest.mark.parametrize("second", ["DWORD", "WORD_1", "BYTE_2"])
@pytest.mark.parametrize("sext", [False, True])
def test_parts_of_sources(first, second, sext):
    a = "sext(v2)" if sext else "v2"
    before, after = run(
        f"v_add_u32_sdwa v1, {a}, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{first} src1_sel:{second}"
    )
    for wave, lane in each_lane():
        x, y = before.v[2][wave][lane], before.v[3][wave][lane]
        want = selected(x, first, sext) + selected(y, second) & M32
        assert after.v[1][wave][lane] == (want if before.active(wave, lane) else before.v[1][wave][lane])


@pytest.mark.parametrize("select", SELECT)
@pytest.mark.parametrize("unused", ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"])
def test_part_of_the_destination(select, unused):
    text = f"v_xor_b32_sdwa v1, v2, s3 dst_sel:{select} dst_unused:{unused} src0_sel:DWORD src1_sel:DWORD"
    before, after = run(text)
    shift, width = SELECT[select]
    mask = (1 << width) - 1
    for wave, lane in each_lane():
        old = before.v[1][wave][lane]
        value = (before.v[2][wave][lane] ^ before.s[3][wave]) & mask
        if unused == "UNUSED_PRESERVE":
            want = old & ~(mask << shift) & M32 | value << shift
        elif unused == "UNUSED_SEXT" and value >> width - 1:
            want = (value - (1 << width)) << shift & M32
        else:
            want = value << shift
        assert after.v[1][wave][lane] == (want if before.active(wave, lane) else old)


def test_halves_of_floats():
    """Two sums of f16 in one register, the second beside the first."""
    low = "v_add_f16_sdwa v1, v2, -|v3| dst_sel:WORD_0 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_0"
    high = "v_add_f16_sdwa v1, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0 src1_sel:WORD_1"
    for text, to, a_at, b_at in ((low, 0, 16, 0), (high, 16, 0, 16)):
        before, after = run(text, sizes={2: 16, 3: 16})
        for wave, lane in each_lane():
            a, b = before.v[2][wave][lane] >> a_at & 0xFFFF, before.v[3][wave][lane] >> b_at & 0xFFFF
            b = b | 0x8000 if to == 0 else b
            old, got = before.v[1][wave][lane], after.v[1][wave][lane]
            if before.active(wave, lane):
                want = ieee.add(a, b, 16)
                assert got >> to & 0xFFFF in (want if isinstance(want, set) else {want})
                assert got & 0xFFFF << 16 - to == old & 0xFFFF << 16 - to
            else:
                assert got == old


def test_clamp_and_placement_together():
    text = "v_mul_f16_sdwa v1, v2, v3 clamp dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_0 src1_sel:WORD_0"

    def change(w):
        w.vgpr[1], w.vgpr[2], w.vgpr[3] = 0x1234, 0x4000, 0x4400  # 2 * 4

    _, after = run(text, exec_=[M64] * 4, change=change)
    assert set(after.v[1][0]) == {0x3C001234}


def test_comparison_and_carry_of_parts():
    before, after = run("v_cmp_ne_u16_sdwa s[10:11], v2, sext(v3) src0_sel:WORD_1 src1_sel:BYTE_0")
    for wave in range(WAVES):
        want = sum(
            (selected(before.v[2][wave][lane], "WORD_1") != selected(before.v[3][wave][lane], "BYTE_0", True) & 0xFFFF)
            << lane
            for lane in range(64)
            if before.active(wave, lane)
        )
        assert after.scalar_pair(10, wave) == want
    text = "v_subrev_co_u32_sdwa v1, vcc, v2, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:WORD_0"
    before, after = run(text)
    for wave, lane in each_lane():
        if before.active(wave, lane):
            a, b = selected(before.v[2][wave][lane], "BYTE_3"), selected(before.v[3][wave][lane], "WORD_0")
            assert after.v[1][wave][lane] == b - a & M32
            assert after.scalar_pair(VCC, wave) >> lane & 1 == (a > b)


# -- DPP ---------------------------------------------------------------------------------------------------------------


def dpp_lane(control, n):
    """The lane that lane ``n`` reads; None where there is none (ISA guide, "DPP_CTRL enumeration")."""
    kind, _, value = control.partition(":")
    row, at = n & 0x30, n & 15
    k = int(value) if value and value[0] != "[" else None
    if kind == "quad_perm":
        return n & ~3 | [int(x) for x in value[1:-1].split(",")][n & 3]
    return {
        "row_shl": lambda: n + k if at + k < 16 else None,
        "row_shr": lambda: n - k if at >= k else None,
        "row_ror": lambda: row | (at - k) % 16,
        "wave_shl": lambda: n + 1 if n < 63 else None,
        "wave_rol": lambda: (n + 1) % 64,
        "wave_shr": lambda: n - 1 if n else None,
        "wave_ror": lambda: (n - 1) % 64,
        "row_mirror": lambda: row | 15 - at,
        "row_half_mirror": lambda: n & ~7 | 7 - (n & 7),
        "row_bcast": lambda: (row - 1 if n > 15 else None) if k == 15 else (31 if n > 31 else None),
        "row_newbcast": lambda: row | k,
    }[kind]()


CONTROLS = [
    "quad_perm:[3,2,1,0]",
    "quad_perm:[0,0,2,2]",
    "row_shl:1",
    "row_shl:15",
    "row_shr:1",
    "row_shr:8",
    "row_ror:1",
    "row_ror:15",
    "wave_shl:1",
    "wave_rol:1",
    "wave_shr:1",
    "wave_ror:1",
    "row_mirror",
    "row_half_mirror",
    "row_bcast:15",
    "row_bcast:31",
    "row_newbcast:0",
    "row_newbcast:15",
]


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("bound", ["", " bound_ctrl:1"])
@pytest.mark.parametrize("masks", [(15, 15), (0b1010, 15), (15, 0b0110)])
def test_other_lanes(control, bound, masks):
    row_mask, bank_mask = masks
    tail = f"{control} row_mask:{row_mask:#x} bank_mask:{bank_mask:#x}{bound}"
    for text, f in (
        (f"v_mov_b32_dpp v1, v2 {tail}", lambda a, b: a),
        (f"v_add_u32_dpp v1, v2, v3 {tail}", lambda a, b: a + b & M32),
    ):
        before, after = run(text)
        for wave, lane in each_lane():
            other = dpp_lane(control, lane)
            readable = other is not None and before.active(wave, other)
            written = before.active(wave, lane) and row_mask >> (lane >> 4) & 1 and bank_mask >> (lane >> 2 & 3) & 1
            written = written and (readable or bool(bound))
            a = before.v[2][wave][other] if readable else 0
            want = f(a, before.v[3][wave][lane]) if written else before.v[1][wave][lane]
            assert after.v[1][wave][lane] == want, f"{text}: lane {lane}"


def test_signs_and_accumulation_across_lanes():
    before, after = run("v_add_f32_dpp v1, -v2, |v3| row_ror:4 row_mask:0xf bank_mask:0xf", exec_=[M64] * 4)
    for wave, lane in each_lane():
        a, b = before.v[2][wave][lane & 48 | lane - 4 & 15] ^ 1 << 31, before.v[3][wave][lane] & M32 >> 1
        want = ieee.add(a, b, 32)
        assert after.v[1][wave][lane] in (want if isinstance(want, set) else {want})
    before, after = run("v_fmac_f32_dpp v1, v2, v3 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", exec_=[M64] * 4)
    for wave, lane in each_lane():
        want = ieee.fma(before.v[2][wave][lane ^ 1], before.v[3][wave][lane], before.v[1][wave][lane], 32)
        assert after.v[1][wave][lane] in (want if isinstance(want, set) else {want})


def test_reduction_over_a_wave():
    """As compilers sum over the lanes."""
    w = make_waves()
    w.vgpr[1] = np.arange(4 * 64).reshape(4, 64)
    sums = w.vgpr[1].sum(axis=1)
    for control in ("row_shr:1", "row_shr:2", "row_shr:4", "row_shr:8", "row_bcast:15", "row_bcast:31"):
        masks = {"row_bcast:15": "row_mask:0xa", "row_bcast:31": "row_mask:0xc"}.get(control, "row_mask:0xf")
        execute("v_mov_b32_e32 v2, 0", w)
        execute(f"v_mov_b32_dpp v2, v1 {control} {masks} bank_mask:0xf", w)
        execute("v_add_u32_e32 v1, v1, v2", w)
    assert (w.vgpr[1, :, 63] == sums).all()


def test_64_bits_across_lanes():
    before, after = run("v_mov_b64_dpp v[0:1], v[2:3] row_newbcast:5 row_mask:0xf bank_mask:0xf", exec_=[M64] * 4)
    for wave, lane in each_lane():
        assert after.pair(0, wave, lane) == before.pair(2, wave, lane & 48 | 5)


# -- output scale and clamp --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modifier, power", [("mul:2", 1), ("mul:4", 2), ("div:2", -1)])
def test_output_scale_needs_ieee_and_denormals_off(modifier, power):
    """ISA guide: ignored otherwise; -0 becomes +0."""
    for mode in (0x1C0, 0x3C0, 0x1F0, 0x1E0):
        before, after = run(f"v_mul_f32_e64 v1, v2, v3 {modifier}", mode=mode)
        inputs, outputs = mode >> 4 & 1, mode >> 5 & 1
        acts = not outputs and not mode & 0x200
        for wave, lane in each_lane():
            if not before.active(wave, lane):
                continue
            a, b = (x if inputs else ieee.flush(x, 32) for x in (before.v[2][wave][lane], before.v[3][wave][lane]))
            results = ieee.mul(a, b, 32)
            for_each = []
            for x in results if isinstance(results, set) else {results}:
                x = x if outputs else ieee.flush(x, 32)
                if acts and not ieee.is_nan(x, 32) and not ieee.is_inf(x, 32):
                    x = ieee.flush(ieee.encode(ieee.exact(x, 32) * ieee.Fraction(2) ** power, 32), 32)
                    x = 0 if ieee.is_zero(x, 32) else x
                for_each.append(x)
            assert after.v[1][wave][lane] in for_each


@pytest.mark.parametrize("mode", [0x3F0, 0x2F0])
def test_clamp_of_floats(mode):
    for text, size in (("v_add_f32_e64 v1, v2, v3 clamp", 32), ("v_add_f64 v[0:1], v[2:3], v[4:5] clamp", 64),
                       ("v_add_f16_e64 v1, v2, v3 clamp", 16)):  # fmt: skip
        second = 4 if size == 64 else 3
        before, after = run(text, mode=mode, sizes={2: size, second: size})
        one, mask = ieee.bits_of(1.0, size), (1 << size) - 1
        for wave, lane in each_lane():
            if not before.active(wave, lane):
                continue
            read = before.pair if size == 64 else lambda r, w, i: before.v[r][w][i] & mask  # noqa: B023
            total = ieee.add(read(2, wave, lane), read(second, wave, lane), size)
            got = after.pair(0, wave, lane) if size == 64 else after.v[1][wave][lane]
            if isinstance(total, set) or ieee.is_nan(total, size):
                if mode & 0x100:  # DX10_CLAMP
                    assert got == 0
                else:
                    assert got in (total if isinstance(total, set) else {total})
            else:
                assert got == (0 if ieee.negative(total, size) else min(total, one))


@pytest.mark.parametrize("text", [
    "v_and_b32_e64 v1, v2, v3 clamp", "v_mov_b32_e64 v1, v2 mul:2", "v_cmp_lt_u32_e64 s[10:11], v2, v3 clamp",
    "v_add_f32_e64 v1, v2, v3 op_sel:[1,0,0]", "v_lshl_add_u64 v[0:1], v[2:3], 1, v[4:5] clamp",
    "v_fma_f32 v1, v2, v3, v4 unheard_of:1", "v_add_u32_e64 v1, -v2, v3",
])  # fmt: skip
def test_modifiers_without_a_meaning_here_are_refused(text):
    with pytest.raises(IllegalInstruction):
        execute(text, make_waves())
