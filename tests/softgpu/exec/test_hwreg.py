"""Hardware registers: MODE is read and written in part, identities are read, others are refused."""

from __future__ import annotations

import pytest

from hsakit.softgpu.exec.program import IllegalInstruction
from tests.softgpu.exec.steps import execute, make_waves


def test_parts_of_mode():
    w = make_waves(mode=0x3F0)
    execute("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0xfffffff1", w)
    assert w.mode.tolist() == [0x3D0] * 4
    w.sgpr[4] = [1, 2, 3, 0xFFFFFFFF]
    execute("s_setreg_b32 hwreg(HW_REG_MODE, 0, 4), s4", w, slice(1, 4))
    assert w.mode.tolist() == [0x3D0, 0x3D2, 0x3D3, 0x3DF]
    execute("s_getreg_b32 s5, hwreg(HW_REG_MODE, 4, 4)", w)
    assert w.sgpr[5].tolist() == [0xD] * 4
    execute("s_getreg_b32 s5, hwreg(HW_REG_MODE)", w)
    assert w.sgpr[5].tolist() == w.mode.tolist()
    execute("s_setreg_b32 hwreg(HW_REG_MODE), s4", w)
    assert w.mode.tolist() == [1, 2, 3, 0xFFFFFFFF]


def test_identities():
    w = make_waves()
    w.hw_id[:], w.xcc_id[:] = [0x2100, 0x4300, 0, 0xFF00], [0, 7, 3, 1]
    execute("s_getreg_b32 s5, hwreg(HW_REG_HW_ID, 8, 4)", w)
    assert w.sgpr[5].tolist() == [1, 3, 0, 15]
    execute("s_getreg_b32 s5, hwreg(HW_REG_XCC_ID, 0, 4)", w)
    assert w.sgpr[5].tolist() == [0, 7, 3, 1]


@pytest.mark.parametrize("text", ["s_getreg_b32 s5, hwreg(HW_REG_GPR_ALLOC)", "s_setreg_b32 hwreg(HW_REG_TRAPSTS), s4"])
def test_registers_that_are_not_modelled(text):
    with pytest.raises(IllegalInstruction, match="not modelled"):
        execute(text, make_waves())


def test_clock():
    w = make_waves()
    w.clock = lambda: 0x1_2345_6789
    execute("s_memrealtime s[4:5]", w)
    assert w.sgpr[4].tolist() == [0x23456789] * 4 and w.sgpr[5].tolist() == [1] * 4
