"""Workgroups in execution: waves part and meet, barriers hold, and waits never keep others from what they wait for."""

from __future__ import annotations

import numpy as np
import pytest

from hsakit.softgpu.exec.batch import BUDGET, DONE, MORE, PARKED, STOP, WaveError
from hsakit.softgpu.exec.memory import LaneFault
from hsakit.softgpu.exec.program import IllegalInstruction
from hsakit.softgpu.exec.state import Waves
from tests.softgpu.exec.machine import Memory, Text, batch, finish
from tests.softgpu.exec.steps import EXEC, LANES

SPIN = "s_sleep 1\n"
POLL = ""  # no sleep: only the load tells that the loop waits


def waves(n: int, memory: Memory | None = None, address: int = 0) -> Waves:
    """s10: the wave's number, s[4:5]: an address, v0: 0, v1: the lane."""
    w = Waves(n, 16, 0)
    w.sgpr[10] = np.arange(n)
    w.sgpr[4], w.sgpr[5] = address & 0xFFFFFFFF, address >> 32
    w.sgpr[EXEC] = w.sgpr[EXEC + 1] = 0xFFFFFFFF
    w.vgpr[1] = np.arange(LANES)
    w.lds, w.lds_size = np.zeros((n, 256), np.uint8), 256
    w.apertures = (1 << 20, 1 << 21)
    if memory is not None:
        w.memory = memory.lanes()
    return w


# -- divergence --------------------------------------------------------------------------------------------------------


def test_waves_with_other_trip_counts_meet_again():
    w = waves(40)
    trips = w.sgpr[20] = np.random.default_rng(1).integers(1, 30, 40)
    tail = "\n".join(["s_add_u32 s22, s22, 1"] * 100)
    program = Text(
        f"""
        loop:
        s_add_u32 s21, s21, s20
        s_sub_u32 s20, s20, 1
        s_cmp_lg_u32 s20, 0
        s_cbranch_scc1 loop
        {tail}
        s_endpgm
        """
    )
    finish(batch(program, w, 4))
    assert w.sgpr[21].tolist() == [t * (t + 1) // 2 for t in trips.tolist()]
    assert (w.sgpr[22] == 100).all()
    assert w.steps == 4 * max(trips) + 101  # the tail once, for all of them together


def test_both_ways_of_a_branch_and_what_follows():
    w = waves(9)
    program = Text(
        """
        s_bitcmp1_b32 s10, 0
        s_cbranch_scc1 odd
        s_mul_i32 s11, s10, 10
        s_branch both
        odd:
        s_mul_i32 s11, s10, 100
        both:
        s_add_u32 s11, s11, 7
        v_mov_b32_e32 v2, s11
        s_endpgm
        """
    )
    finish(batch(program, w, 1))
    want = [i * (100 if i % 2 else 10) + 7 for i in range(9)]
    assert w.sgpr[11].tolist() == want
    assert w.vgpr[2].tolist() == [[x] * LANES for x in want]
    assert w.steps == 8  # 2 for all, 2 and 1 for the sides, 3 for all


def test_lanes_part_by_exec():
    """A loop in which lanes drop out one by one, as compilers write it."""
    w = waves(3)
    counts = np.random.default_rng(2).integers(0, 20, (3, LANES))
    w.vgpr[2] = counts
    program = Text(
        """
        s_mov_b64 s[6:7], exec
        v_cmp_ne_u32_e32 vcc, 0, v2
        s_and_saveexec_b64 s[8:9], vcc
        s_cbranch_execz done
        loop:
        v_add_u32_e32 v3, v3, v2
        v_add_u32_e32 v2, -1, v2
        v_cmp_ne_u32_e32 vcc, 0, v2
        s_and_b64 exec, exec, vcc
        s_cbranch_execnz loop
        done:
        s_mov_b64 exec, s[6:7]
        v_add_u32_e32 v3, 1, v3
        s_endpgm
        """
    )
    finish(batch(program, w, 1))
    assert (w.vgpr[3] == counts * (counts + 1) // 2 + 1).all()


def test_calls_to_different_functions():
    w = waves(4)
    program = Text(
        """
        s_getpc_b64 s[20:21]
        s_lshl_b32 s22, s10, 3
        s_add_u32 s20, s20, s22
        s_add_u32 s20, s20, 24
        s_swappc_b64 s[30:31], s[20:21]
        s_add_u32 s11, s11, 1
        s_endpgm
        s_movk_i32 s11, 0x10
        s_setpc_b64 s[30:31]
        s_movk_i32 s11, 0x20
        s_setpc_b64 s[30:31]
        s_movk_i32 s11, 0x30
        s_setpc_b64 s[30:31]
        s_movk_i32 s11, 0x40
        s_setpc_b64 s[30:31]
        """
    )
    finish(batch(program, w, 1))
    assert w.sgpr[11].tolist() == [0x11, 0x21, 0x31, 0x41]


# -- barriers ----------------------------------------------------------------------------------------------------------


def test_a_barrier_holds_until_all_waves_of_the_workgroup_came():
    """Each wave writes to LDS, late ones after a loop, and reads its neighbour's word behind the barrier."""
    w = waves(8)
    w.sgpr[11] = np.arange(8) % 4  # in the workgroup
    program = Text(
        """
        s_mul_i32 s12, s11, 20
        again:
        s_sub_u32 s12, s12, 1
        s_cmp_gt_i32 s12, 0
        s_cbranch_scc1 again
        s_lshl_b32 s13, s11, 2
        v_mov_b32_e32 v2, s13
        s_add_u32 s14, s10, 50
        v_mov_b32_e32 v3, s14
        ds_write_b32 v2, v3
        s_barrier
        s_add_u32 s11, s11, 1
        s_and_b32 s11, s11, 3
        s_lshl_b32 s13, s11, 2
        v_mov_b32_e32 v2, s13
        ds_read_b32 v4, v2
        s_endpgm
        """
    )
    finish(batch(program, w, 4))
    assert w.vgpr[4, :, 0].tolist() == [51, 52, 53, 50, 55, 56, 57, 54]


def test_waves_that_ended_are_not_waited_for():
    w = waves(6)
    program = Text(
        """
        s_bitcmp1_b32 s10, 0
        s_cbranch_scc1 out
        s_barrier
        s_barrier
        s_mov_b32 s11, 1
        out:
        s_endpgm
        """
    )
    finish(batch(program, w, 3))
    assert w.sgpr[11].tolist() == [1, 0, 1, 0, 1, 0]


def test_a_wave_that_ends_releases_those_at_the_barrier():
    w = waves(2)
    program = Text(
        """
        s_cmp_eq_u32 s10, 0
        s_cbranch_scc1 meet
        s_movk_i32 s12, 0x50
        again:
        s_sub_u32 s12, s12, 1
        s_cmp_lg_u32 s12, 0
        s_cbranch_scc1 again
        s_endpgm
        meet:
        s_barrier
        s_mov_b32 s11, 1
        s_endpgm
        """
    )
    finish(batch(program, w, 2))
    assert w.sgpr[11].tolist() == [1, 0]


# -- waits -------------------------------------------------------------------------------------------------------------

# waves wait until the word at s[4:5] + 4 * s11 is not 0
WAIT = """
    v_mov_b32_e32 v4, s11
    v_lshlrev_b32_e32 v4, 2, v4
    wait:
    {sleep}
    global_load_dword v5, v4, s[4:5] sc0 sc1
    v_cmp_eq_u32_e32 vcc, 0, v5
    s_cbranch_vccnz wait
"""
RAISE = """
    v_mov_b32_e32 v4, s10
    v_lshlrev_b32_e32 v4, 2, v4
    v_mov_b32_e32 v5, 1
    global_store_dword v4, v5, s[4:5] sc0 sc1
    s_endpgm
"""


@pytest.mark.parametrize("sleep", [SPIN, POLL])
@pytest.mark.parametrize("step", [1, -1])
def test_a_chain_of_waves(step, sleep):
    """Each wave waits for a flag that its neighbour raises when it has got its own, whichever way the chain goes."""
    memory = Memory()
    address, flags = memory.allocate(4096)
    n = 100
    w = waves(n, memory, address)
    first, last = (0, n - 1) if step == 1 else (n - 1, 0)
    w.sgpr[11] = np.arange(n) - step
    program = Text(f"s_cmp_eq_u32 s10, {first}\ns_cbranch_scc1 go\n{WAIT.format(sleep=sleep)}\ngo:\n{RAISE}")
    finish(batch(program, w, 10))
    assert flags.view(np.uint32)[:n].tolist() == [1] * n
    assert last in (0, n - 1)


@pytest.mark.parametrize("sleep", [SPIN, POLL])
def test_a_batch_that_waits_for_another_is_parked_until_then(sleep):
    memory = Memory()
    address, flags = memory.allocate(4096)
    program = Text(WAIT.format(sleep=sleep) + RAISE)
    w, late = waves(4, memory, address), waves(1, memory, address)
    w.sgpr[11], w.sgpr[10] = 9, 1
    waiting = batch(program, w, 2)
    # it comes to the flag, looks a first time, and sees that nothing has changed since
    assert [waiting.run() for _ in range(5)] == [STOP, STOP, PARKED, PARKED, PARKED]
    assert w.unchanged()
    late.sgpr[10] = 9
    finish(batch(Text(RAISE), late, 1))
    assert not w.unchanged()
    assert [waiting.run() for _ in range(2)] == [STOP, DONE]  # the flag that it raises itself, and the end
    assert flags.view(np.uint32)[[1, 9]].tolist() == [1, 1]


@pytest.mark.parametrize("sleep", [SPIN, POLL])
def test_waves_that_wait_do_not_slow_those_that_work(sleep):
    """One wave works through a long loop, at higher and at lower addresses than the others' wait."""
    work = "work:\ns_sub_u32 s20, s20, 1\ns_cmp_lg_u32 s20, 0\ns_cbranch_scc1 work\n"
    for text in (
        f"s_cmp_eq_u32 s10, 3\ns_cbranch_scc0 go\n{work}\n{RAISE}\ngo:\n{WAIT.format(sleep=sleep)}\ns_endpgm",
        f"s_cmp_eq_u32 s10, 3\ns_cbranch_scc1 work\n{WAIT.format(sleep=sleep)}\ns_endpgm\n{work}\n{RAISE}",
    ):
        memory = Memory()
        address, _ = memory.allocate(4096)
        w = waves(6, memory, address)
        w.sgpr[11], w.sgpr[20] = 3, 4000
        finish(batch(Text(text), w, 6))
        assert w.steps < 2 * 3 * 4000  # looks at the flag are rare


def test_a_lock_by_compare_and_swap():
    """Ten waves add to a word under a lock that they spin for."""
    memory = Memory()
    address, words = memory.allocate(4096)
    w = waves(10, memory, address)
    program = Text(
        """
        s_mov_b64 exec, 1
        v_mov_b32_e32 v2, 1
        v_mov_b32_e32 v3, 0
        take:
        global_atomic_cmpswap v4, v0, v[2:3], s[4:5] sc0
        v_cmp_ne_u32_e32 vcc, 0, v4
        s_cbranch_vccnz take
        global_load_dword v5, v0, s[4:5] offset:4
        v_add_u32_e32 v5, 3, v5
        global_store_dword v0, v5, s[4:5] offset:4
        global_store_dword v0, v3, s[4:5]
        s_endpgm
        """
    )
    w.memory = memory.lanes()
    finish(batch(program, w, 1))
    assert words.view(np.uint32)[:2].tolist() == [0, 30]


@pytest.mark.parametrize("body", ["s_nop 0", "s_add_u32 s20, s20, 1\n" * 3, "v_add_u32_e32 v2, 1, v2"])
def test_a_loop_without_an_end_gives_the_others_their_turn(body):
    w = waves(4)
    one = batch(Text(f"loop:\n{body}\ns_branch loop"), w, 1)
    looked = []
    for _ in range(2):
        assert one.run(lambda: looked.append(1)) == MORE
    assert 2 * BUDGET <= w.steps < 2.1 * BUDGET and len(looked) > 10


def test_a_straight_run_lets_others_in_too():
    w = waves(4)
    one = batch(Text("v_add_u32_e32 v2, 1, v2\n" * 10000 + "s_endpgm"), w, 1)
    looked = []
    assert one.run(lambda: looked.append(1)) == DONE
    assert len(looked) >= 2 and (w.vgpr[2] == 10000).all()


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_names_instruction_workgroup_and_wave():
    memory = Memory()
    address, _ = memory.allocate(4096)
    w = waves(12, memory, address)
    w.sgpr[EXEC, 7], w.lanes[7] = 0xFFFFFFFE, [lane > 0 for lane in range(LANES)]
    w.vgpr[3, 7, 5] = 4096
    program = Text("s_nop 0\nglobal_store_dword v3, v1, s[4:5]\ns_endpgm")
    with pytest.raises(WaveError, match=f"{address + 4096:#x}: not allocated") as caught:
        finish(batch(program, w, 4))
    error = caught.value
    assert isinstance(error.cause, LaneFault) and error.address == program.BASE + 4
    assert (error.instruction, error.workgroup, error.wave) == ("global_store_dword v3, v1, s[4:5]", (1, 0, 0), 3)


def test_a_scalar_error_names_its_wave():
    memory = Memory()
    address, _ = memory.allocate(4096)
    w = waves(12, memory, address)
    w.sgpr[4, 9] += 8192
    with pytest.raises(WaveError) as caught:
        finish(batch(Text("s_load_dword s20, s[4:5], 0x0\ns_endpgm"), w, 4))
    assert (caught.value.workgroup, caught.value.wave) == ((2, 0, 0), 1)


@pytest.mark.parametrize(
    "text, why",
    [
        ("s_cbranch_join s0", "not implemented by the software node"),
        ("s_nop 0", "no instruction at"),
        ("v_mov_b32_e32 v99, v1", "a register that the kernel does not have"),
        ("v_mov_b32_e32 a3, v1", "a register that the kernel does not have"),
        ("s_trap 2", "trapped"),
    ],
)
def test_what_cannot_be_executed(text, why):
    w = waves(2)
    program = Text(text)
    with pytest.raises(WaveError, match=why) as caught:
        finish(batch(program, w, 1))
    assert isinstance(caught.value.cause, IllegalInstruction)
    assert caught.value.address == program.BASE + (4 if text == "s_nop 0" else 0)
    assert caught.value.instruction in (text, "(not decodable)")
