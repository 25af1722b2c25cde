"""Text of the disassembler to instructions; code bytes to instructions, and what happens when code changes."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from hsakit.softgpu.exec.decode import EXEC, M0, VCC, Operand, parse
from hsakit.softgpu.exec.program import IllegalInstruction, Program
from hsakit.softgpu.memory import MemoryFault
from tests.softgpu.exec.machine import Memory


def v(i, count=1, **flags):
    return Operand("v", i, count, **flags)


def s(i, count=1, **flags):
    return Operand("s", i, count, **flags)


def number(x, **flags):
    return Operand("int", value=x, **flags)


def word(x):
    return Operand("name", value=x)


CASES = {
    "s_endpgm": ("s_endpgm", "", (), {}),
    "s_mov_b32 s3, 0x12": ("s_mov_b32", "", (s(3), number(0x12)), {}),
    "s_mov_b64 vcc, exec": ("s_mov_b64", "", (s(VCC, 2), s(EXEC, 2)), {}),
    "s_mov_b32 m0, vcc_hi": ("s_mov_b32", "", (s(M0), s(VCC + 1)), {}),
    "s_add_u32 flat_scratch_lo, s4, ttmp9": ("s_add_u32", "", (s(102), s(4), s(117)), {}),
    "s_load_dwordx4 s[64:67], s[0:1], -0x18 glc": (
        "s_load_dwordx4", "", (s(64, 4), s(0, 2), number(-0x18)), {"glc": True},
    ),
    "s_getreg_b32 s6, hwreg(HW_REG_XCC_ID, 0, 4)": (
        "s_getreg_b32", "", (s(6), word("hwreg(HW_REG_XCC_ID, 0, 4)")), {},
    ),
    "v_add_f32_e32 v1, -2.0, v2": ("v_add_f32", "e32", (v(1), Operand("float", value=-2.0), v(2)), {}),
    "v_fma_f32 v1, -v2, |v3|, -|s4| clamp mul:2": (
        "v_fma_f32", "", (v(1), v(2, neg=True), v(3, abs=True), s(4, neg=True, abs=True)), {"clamp": True, "mul": 2},
    ),
    "v_add_f32_e64 v1, neg(0x40000000), abs(v2) div:2": (
        "v_add_f32", "e64", (v(1), number(0x40000000, neg=True), v(2, abs=True)), {"div": 2},
    ),
    "v_mul_f64 v[2:3], v[4:5], 0.15915494309189532": (
        "v_mul_f64", "", (v(2, 2), v(4, 2), Operand("float", value=0.15915494309189532)), {},
    ),
    "v_mul_f32_e32 v2, 1.0e-05, v3": ("v_mul_f32", "e32", (v(2), Operand("float", value=1e-5), v(3)), {}),
    "v_add_u32_sdwa v1, sext(v2), v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 src1_sel:DWORD": (
        "v_add_u32", "sdwa", (v(1), v(2, sext=True), v(3)),
        {"dst_sel": "WORD_1", "dst_unused": "UNUSED_PRESERVE", "src0_sel": "BYTE_2", "src1_sel": "DWORD"},
    ),
    "v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0x5 bound_ctrl:1": (
        "v_mov_b32", "dpp", (v(1), v(2)), {"quad_perm": (1, 0, 3, 2), "row_mask": 15, "bank_mask": 5, "bound_ctrl": 1},
    ),
    "v_pk_fma_f32 v[0:1], v[2:3], s[4:5], v[0:1] op_sel_hi:[1,0,1] neg_lo:[0,1,0]": (
        "v_pk_fma_f32", "", (v(0, 2), v(2, 2), s(4, 2), v(0, 2)), {"op_sel_hi": (1, 0, 1), "neg_lo": (0, 1, 0)},
    ),
    "v_mfma_f32_32x32x8_f16 a[0:15], v[38:39], v[42:43], a[0:15] cbsz:1": (
        "v_mfma_f32_32x32x8_f16", "", (Operand("a", 0, 16), v(38, 2), v(42, 2), Operand("a", 0, 16)), {"cbsz": 1},
    ),
    "v_cmp_gt_u32_e64 s[14:15], s65, v10": ("v_cmp_gt_u32", "e64", (s(14, 2), s(65), v(10)), {}),
    "global_load_dwordx4 v[12:15], v[20:21], off offset:-4096 sc0 nt": (
        "global_load_dwordx4", "", (v(12, 4), v(20, 2), word("off")), {"offset": -4096, "sc0": True, "nt": True},
    ),
    "ds_write2_b32 v36, v14, v15 offset0:136 offset1:204": (
        "ds_write2_b32", "", (v(36), v(14), v(15)), {"offset0": 136, "offset1": 204},
    ),
    "ds_swizzle_b32 v1, v2 offset:swizzle(QUAD_PERM, 0, 1, 2, 3)": (
        "ds_swizzle_b32", "", (v(1), v(2)), {"offset": "swizzle(QUAD_PERM, 0, 1, 2, 3)"},
    ),
    "buffer_store_dword v7, off, s[0:3], 0 offset:472": (
        "buffer_store_dword", "", (v(7), word("off"), s(0, 4), number(0)), {"offset": 472},
    ),
    "s_set_gpr_idx_on s11, gpr_idx(SRC0,DST)": ("s_set_gpr_idx_on", "", (s(11), word("gpr_idx(SRC0,DST)")), {}),
    "s_waitcnt vmcnt(0) lgkmcnt(0)": ("s_waitcnt", "", (), {}),
    "buffer_inv sc0 sc1": ("buffer_inv", "", (word("sc0"),), {"sc1": True}),
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_text(text):
    instruction = parse(text, 0x100, 8)
    assert (instruction.name, instruction.encoding, instruction.operands, instruction.modifiers) == CASES[text]
    assert (instruction.text, instruction.address, instruction.next) == (text, 0x100, 0x108)


CODE = {
    "gfx90a": [
        (struct.pack("<I", 0xBF810000), "s_endpgm"),
        (struct.pack("<I", 0x7E000280), "v_mov_b32_e32 v0, 0"),
        (struct.pack("<2I", 0xD2000020, 0x04011008), "v_lshl_or_b32 v32, s8, 8, v0"),
        (struct.pack("<2I", 0xE0701010, 0x80001700), "buffer_store_dword v23, v0, s[0:3], 0 offen offset:16"),
        (struct.pack("<2I", 0xDC548000, 0x227F0024), "global_load_dwordx2 v[34:35], v[36:37], off"),
    ],
    "gfx942": [
        (struct.pack("<2I", 0xDE518000, 0x01000000), "global_load_dword v1, v0, s[0:1] sc0 sc1"),
        (struct.pack("<2I", 0x7E0202FF, 0x12345678), "v_mov_b32_e32 v1, 0x12345678"),
    ],
}


def program(target: str, code: bytes):
    memory = Memory()
    address, pages = memory.allocate(4096)
    pages[:] = 0xFF
    pages[-len(code) :] = np.frombuffer(code, np.uint8)  # the last bytes of what is there: nothing behind them is read
    return Program(target, memory.space, 0), address + 4096 - len(code), memory, pages


@pytest.mark.parametrize("target", CODE)
def test_code(target):
    made, address, _, _ = program(target, b"".join(code for code, _ in CODE[target]))
    for code, text in CODE[target]:
        instruction = made.entry(address).instruction
        assert (instruction.text, instruction.size) == (text, len(code))
        address = made.entry(address).next


def test_bytes_that_are_no_instruction():
    made, address, _, _ = program("gfx942", bytes.fromhex("ffffffff 000081bf"))
    with pytest.raises(IllegalInstruction, match="ffffffff 000081bf"):
        made.entry(address)


@pytest.mark.parametrize(
    "code",
    [
        (0xE0001000, 0xFF000000),  # buffer_load_format_x, offset by a literal
        (0xE8001000, 0x00000000),  # tbuffer_load_format_x
        (0xD1000000, 0x0001FE00),  # v_cndmask_b32, v0, 255: VOP3 has no literals
        (0x7E0002F9, 0x00070600),  # v_mov_b32_sdwa, 7th part of the source
        (0x7E0002F9, 0x00061E00),  # and of what is done with the rest of the destination
        (0x7C8000F9, 0x07060000),  # v_cmp_f_i16_sdwa
    ],
)
def test_encodings_at_which_the_disassembler_crashes(code):
    made, address, _, _ = program("gfx942", struct.pack("<3I", *code, 0xBF810000))
    with pytest.raises(IllegalInstruction, match=f"no instruction at {address:#x}"):
        made.entry(address)


def test_an_instruction_that_is_missing_is_named():
    made, address, _, _ = program("gfx90a", struct.pack("<2I", 0xD9330000, 0))
    with pytest.raises(IllegalInstruction, match="ds_gws_init v0 gds: not implemented"):
        made.entry(address)


def test_code_where_nothing_is():
    made, address, _, _ = program("gfx942", struct.pack("<I", 0xBF810000))
    with pytest.raises(MemoryFault):
        made.entry(address + 4096)


def test_an_instruction_may_not_reach_past_the_end():
    made, address, _, _ = program("gfx942", struct.pack("<I", 0x7E0202FF))
    with pytest.raises(IllegalInstruction):
        made.entry(address)


def test_code_that_was_replaced_is_decoded_again():
    made, address, memory, pages = program("gfx942", CODE["gfx942"][1][0] + struct.pack("<I", 0xBF810000))
    first, end = made.entry(address), made.entry(address + 8)
    made.revalidate()
    pages[-8:-4] = 1
    made.revalidate()
    assert made.entry(address) is first  # nothing was freed since: nobody can have loaded other code there
    other, _ = memory.allocate(4096)
    memory.space.remove(memory.space.find(other))
    made.revalidate()
    assert made.entry(address).instruction.text == "v_mov_b32_e32 v1, 0x1010101"
    assert made.entry(address + 8) is end
    memory.space.remove(memory.space.find(address))
    made.revalidate()
    with pytest.raises(MemoryFault):
        made.entry(address)
