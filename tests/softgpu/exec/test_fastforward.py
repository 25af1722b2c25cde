"""Loops that are skipped end as if they had been executed, and count the same; others are executed."""

from types import SimpleNamespace

import numpy as np
import pytest

from hsakit.softgpu.exec.fastforward import FastForward, Watch
from hsakit.softgpu.exec.state import Waves
from hsakit.softgpu.exec.tally import Count
from tests.softgpu.exec.machine import Memory, Text, batch, finish

N, TRIPS = 4, 1000

# s[0:1] grows by s2 until it is s[4:5]; a wave stores s0 where v[2:3] points, which moves on
COPY = """
    s_mov_b64 s[0:1], 0
    v_mov_b32_e32 v5, 0
top:
    v_mov_b32_e32 v4, s0
    global_store_dword v[2:3], v4, off
    v_add_co_u32_e32 v2, vcc, 4, v2
    v_addc_co_u32_e32 v3, vcc, 0, v3, vcc
    v_add_u32_e32 v5, 3, v5
    s_add_u32 s0, s0, s2
    s_addc_u32 s1, s1, 0
    {test}
    s_endpgm
"""
TESTS = {
    "u64 in lanes": "v_mov_b64_e32 v[6:7], s[4:5]\nv_cmp_lt_u64_e64 s[8:9], s[0:1], v[6:7]\n"
    "s_and_b64 vcc, exec, s[8:9]\nv_mov_b32_e32 v6, 0\ns_cbranch_vccnz top",
    "u32": "s_cmp_lt_u32 s0, s4\ns_cbranch_scc1 top",
    "i32, the other way": "s_cmp_gt_i32 s4, s0\ns_cbranch_scc1 top",
    "not equal": "s_cmp_lg_u32 s0, s4\ns_cbranch_scc1 top",
    "left in the middle": "s_cmp_ge_u32 s0, s4\ns_cbranch_scc1 out\ns_branch top\nout:",
    "with a loop inside": "s_mov_b32 s10, 0\ninner:\ns_add_u32 s10, s10, 1\ns_cmp_lt_u32 s10, 4\ns_cbranch_scc1 inner\n"
    "s_cmp_lt_u32 s0, s4\ns_cbranch_scc1 top",
    "a path chosen": "s_mov_b32 s11, 0\ns_cmp_lt_u32 s0, 4000\ns_cbranch_scc1 over\ns_mov_b32 s11, 1\nover:\n"
    "s_cmp_lt_u32 s0, s4\ns_cbranch_scc1 top",
}  # fmt: skip


def _run(text: str, sampled: bool, step: int = 8, words: int = TRIPS + 8, times: int = 1):
    """(waves, what they counted, memory, iterations left out), of the last of so many batches of one program"""
    program = Text(text)
    for _ in range(times - 1):
        _once(program, sampled, step, words)
    return _once(program, sampled, step, words)


def _once(program: Text, sampled: bool, step: int, words: int):
    memory = Memory()
    address, data = memory.allocate(N * 64 * 4 * words, vram_of=0)
    w = Waves(N, 16, 0)
    w.memory = memory.lanes()
    w.pc[:] = Text.BASE
    starts = address + (np.arange(N * 64, dtype=np.uint64) * np.uint64(4 * words)).reshape(N, 64)
    w.vgpr[2], w.vgpr[3] = starts.astype(np.uint32), (starts >> np.uint64(32)).astype(np.uint32)
    w.sgpr[2], w.sgpr[4] = step, TRIPS * step
    w.sgpr[126:128] = 0xFFFFFFFF
    one = batch(program, w, 1)
    forward = one.forward = FastForward(one._program) if sampled else None
    finish(one)
    count = Count()
    count.add(one._program, one)
    return w, count, data.view(np.uint32).reshape(N * 64, words), forward.skipped if forward else 0


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("test", TESTS)
def test_a_skipped_loop_ends_as_it_would_have(test, times):
    text = COPY.format(test=TESTS[test])
    full, counted, _, _ = _run(text, sampled=False)
    some, sampled, data, skipped = _run(text, sampled=True, times=times)
    assert skipped > TRIPS * 0.9
    assert (sampled.instructions, sampled.loads, sampled.stores) == (
        counted.instructions,
        counted.loads,
        counted.stores,
    )
    assert (some.sgpr[:2] == full.sgpr[:2]).all() and (some.sgpr[0] == 8 * TRIPS).all()
    assert (some.vgpr[5] == 3 * TRIPS).all()
    # what was stored is right and where it belongs, the rest is as it was; both ends are there
    stored = np.arange(data.shape[1]) * 8
    assert ((data == 0) | (data == stored)).all()
    assert (data[:, TRIPS - 1] == 8 * (TRIPS - 1)).all() and (data[:, 1] == 8).all() and not data[:, TRIPS:].any()
    assert np.count_nonzero(data[0]) < TRIPS * 0.1


def test_of_a_loop_that_is_known_fewer_iterations_are_executed():
    text = COPY.format(test=TESTS["u32"])
    first, again = (np.count_nonzero(_run(text, sampled=True, times=times)[2][0]) for times in (1, 2))
    assert again < first <= 12


def test_a_known_loop_that_goes_another_way_is_looked_at_anew():
    """Halfway another path is taken: that half is no less left out."""
    text = COPY.format(test=TESTS["a path chosen"])
    assert _run(text, sampled=True, times=3)[3] > TRIPS * 0.9


def test_waves_of_other_lengths_part_at_their_ends():
    text = COPY.format(test="s_cmp_lt_u32 s0, s4\ns_cbranch_scc1 top").replace(
        "s_mov_b64 s[0:1], 0", "s_mov_b64 s[0:1], s[12:13]"
    )
    results = []
    for sampled in (False, True):
        memory = Memory()
        address, _ = memory.allocate(1 << 20, vram_of=0)
        w = Waves(N, 16, 0)
        w.memory = memory.lanes()
        w.vgpr[2], w.vgpr[3] = address & 0xFFFFFFFF, address >> 32
        w.sgpr[2], w.sgpr[4] = 8, TRIPS * 8
        w.sgpr[12] = np.arange(N) * 800
        w.sgpr[126:128] = 0xFFFFFFFF
        one = batch(Text(text), w, 1)
        one.forward = FastForward(one._program) if sampled else None
        finish(one)
        count = Count()
        count.add(one._program, one)
        results.append((count.instructions, count.stores, w.vgpr[5].tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("why, test", [
    ("it is decided by what is loaded",
     "global_load_dword v8, v[2:3], off offset:-4\nv_readfirstlane_b32 s10, v8\ns_cmp_lt_u32 s10, 7992\n"
     "s_cbranch_scc1 top"),
    ("it stores a flag",
     "global_store_dword v[2:3], v4, off offset:-4 sc0 sc1\ns_cmp_lt_u32 s0, s4\ns_cbranch_scc1 top"),
    ("it sleeps", "s_sleep 1\ns_cmp_lt_u32 s0, s4\ns_cbranch_scc1 top"),
    ("lanes leave it", "s_cmp_lt_u32 s0, s4\ns_mov_b64 exec, exec\ns_cbranch_scc1 top"),
    ("its steps grow", "s_add_u32 s2, s2, 0\ns_mul_i32 s10, s0, s0\ns_cmp_lt_u32 s10, 64000000\ns_cbranch_scc1 top"),
])  # fmt: skip
def test_a_loop_is_executed_because(why, test):
    _, _, data, skipped = _run(COPY.format(test=test), sampled=True)
    assert skipped == 0, why
    assert (data[:, 1:TRIPS] == np.arange(1, TRIPS) * 8).all()


@pytest.mark.parametrize("all_of_them", [slice(None), np.array([0, 1, 2])], ids=["slice", "list"])
def test_a_loop_is_watched_for_the_same_waves_only(all_of_them):
    """Some of the waves go on alone, as a list where all were a slice or the other way round."""
    other = np.array([0, 1]) if isinstance(all_of_them, slice) else slice(None)
    forward = FastForward(Text("s_endpgm"))
    for waves, still in ((all_of_them, True), (other, False)):
        forward.watch = Watch(0, 4, all_of_them)
        forward.group(SimpleNamespace(sel=waves), True)
        assert (forward.watch is not None) == still


def test_a_loop_that_only_looks_is_executed():
    """It counts what differs, without a branch: of what it did not look at it would say that all is well."""
    look = "global_load_dword v4, v[2:3], off\ns_waitcnt vmcnt(0)\nv_min_u32_e32 v4, 1, v4\nv_add_u32_e32 v7, v7, v4"
    text = COPY.format(test="s_cmp_lt_u32 s0, s4\ns_cbranch_scc1 top").replace(
        "v_mov_b32_e32 v4, s0\n    global_store_dword v[2:3], v4, off", look
    )
    assert "store" not in text
    waves, _, _, skipped = _run(text, sampled=True)
    assert skipped == 0 and not waves.vgpr[7].any()
