"""Vector registers chosen at run time, in programs as compilers write them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hsakit.softgpu.exec.batch import WaveError
from tests.softgpu.exec.machine import Text, batch, finish
from tests.softgpu.exec.steps import EXEC, FULL, LANES, M0, VGPRS, WAVES, State, make_waves, set_exec


def run(text: str, w, waves_each: int = 1) -> None:
    finish(batch(Text(text), w, waves_each))


@pytest.mark.parametrize("exec_", [[FULL] * WAVES, [1, FULL, 0, 0xF0F0 << 40]])
@pytest.mark.parametrize("enabled", ["SRC0", "DST", "SRC0,DST", ""])
def test_moves_between_registers_chosen_by_each_wave(enabled, exec_):
    w = make_waves(3, exec_=exec_)
    w.sgpr[11] = index = [3, 0, 3, 7]
    before = State(w)
    run(
        f"""
        s_set_gpr_idx_on s11, gpr_idx({enabled})
        v_mov_b32_e32 v9, v4
        s_set_gpr_idx_off
        v_mov_b32_e32 v1, v2
        s_endpgm
        """,
        w,
    )
    after = State(w)
    for wave in range(WAVES):
        to = 9 + (index[wave] if "DST" in enabled else 0)
        from_ = 4 + (index[wave] if "SRC0" in enabled else 0)
        for r in range(VGPRS):
            for lane in range(LANES):
                want = before.v[r][wave][lane]
                if before.active(wave, lane) and r in (to, 1):
                    want = before.v[from_ if r == to else 2][wave][lane]
                assert after.v[r][wave][lane] == want, (wave, r, lane)


def test_index_and_mode_change_within():
    w = make_waves(4)
    w.sgpr[11], w.sgpr[12] = 2, 0xABCD03  # the low byte counts
    w.sgpr[M0] = 0xFFFFFFFF
    before = State(w)
    run(
        """
        s_set_gpr_idx_on s11, gpr_idx(SRC0)
        v_mov_b32_e32 v9, v4
        s_set_gpr_idx_idx s12
        v_mov_b32_e32 v10, v4
        s_nop 0
        s_set_gpr_idx_mode gpr_idx(DST)
        v_mov_b32_e32 v11, v4
        v_mov_b32_e32 v12, 1.0
        s_set_gpr_idx_off
        s_endpgm
        """,
        w,
    )
    after = State(w)
    assert (after.v[9], after.v[10], after.v[14]) == (before.v[6], before.v[7], before.v[4])
    assert after.v[15] == [[0x3F800000] * LANES] * WAVES
    assert after.v[11:14] == before.v[11:14]
    assert after.s[M0] == [0xFFFF8F03] * WAVES


def test_a_loop_over_the_lanes_values():
    """What a compiler makes of array[i] with another i in every lane."""
    w = make_waves(5, exec_=[FULL, 0xFFFF0000FFFF, FULL, 1])
    rng = random.Random(5)
    w.vgpr[0] = index = [[rng.randrange(8) for _ in range(LANES)] for _ in range(WAVES)]
    before = State(w)
    run(
        """
        s_mov_b64 s[6:7], exec
        loop:
        v_readfirstlane_b32 s11, v0
        v_cmp_eq_u32_e32 vcc, s11, v0
        s_and_saveexec_b64 s[8:9], vcc
        s_set_gpr_idx_on s11, gpr_idx(SRC0)
        v_mov_b32_e32 v1, v10
        s_set_gpr_idx_off
        s_xor_b64 exec, exec, s[8:9]
        s_cbranch_execnz loop
        s_mov_b64 exec, s[6:7]
        v_mov_b32_e32 v2, v1
        s_endpgm
        """,
        w,
        waves_each=2,
    )
    after = State(w)
    for wave in range(WAVES):
        for lane in range(LANES):
            if before.active(wave, lane):
                assert after.v[1][wave][lane] == after.v[2][wave][lane] == before.v[10 + index[wave][lane]][wave][lane]
            else:
                assert after.v[2][wave][lane] == before.v[2][wave][lane]
    assert after.s[EXEC] == before.s[EXEC]


@pytest.mark.parametrize(
    "line, why",
    [
        ("v_add_u32_e32 v1, v2, v3", "between s_set_gpr_idx_on and _off"),
        ("s_branch out", "between s_set_gpr_idx_on and _off"),
        ("s_endpgm", "between s_set_gpr_idx_on and _off"),
        ("v_mov_b32_e32 v1, v20", "a register that the kernel does not have"),
    ],
)
def test_what_no_compiler_puts_there_is_refused(line, why):
    w = make_waves()
    set_exec(w, [FULL] * WAVES)
    w.sgpr[11] = [0, 0, 9, 0]
    program = Text(f"s_set_gpr_idx_on s11, gpr_idx(SRC0)\n{line}\nout:\ns_set_gpr_idx_off\ns_endpgm")
    with pytest.raises(WaveError, match=why) as caught:
        finish(batch(program, w, 2))
    assert caught.value.address == program.BASE + 4
    assert caught.value.instruction.split()[0] == line.split()[0]


def test_waves_meet_again_after_it():
    """Waves that chose other registers go on as one group: every instruction after is one step for all."""
    w = make_waves()
    w.sgpr[11] = np.arange(WAVES)
    lines = "\n".join(["v_add_u32_e32 v1, v1, v1"] * 50)
    run(f"s_set_gpr_idx_on s11, gpr_idx(DST)\nv_mov_b32_e32 v4, v2\ns_set_gpr_idx_off\n{lines}\ns_endpgm", w)
    assert w.steps == 54
