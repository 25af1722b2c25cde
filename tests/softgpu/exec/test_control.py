"""Program flow: where each wave goes next, and what stays as it was."""

from __future__ import annotations

import numpy as np
import pytest

from hsakit.softgpu.exec.decode import parse
from hsakit.softgpu.exec.program import REGISTRY, WAIT, IllegalInstruction
from hsakit.softgpu.exec.state import AT_BARRIER, ENDED, RUNNING, Group
from tests.softgpu.exec.steps import EXEC, FULL, VCC, WAVES, State, execute, make_waves, set_exec

AT = 0x7F0000001000  # where the instruction under test stands; it is 4 bytes long


def go(text: str, w, sel=slice(0, WAVES)) -> dict[int, int]:
    """Where each wave of the group goes, by its number."""
    w.pc[:] = 77
    instruction = parse(text, AT, 4)
    outcome = REGISTRY[instruction.name](instruction)(Group(w, sel))
    waves = np.arange(WAVES)[sel].tolist()
    if outcome is None:
        assert (w.pc == 77).all()
        return dict.fromkeys(waves, AT + 4)
    if isinstance(outcome, int):
        return dict.fromkeys(waves, outcome)
    return {wave: int(w.pc[wave]) for wave in waves}


CONDITIONS = {
    "scc0": lambda before, wave: not before.scc[wave],
    "scc1": lambda before, wave: before.scc[wave],
    "vccz": lambda before, wave: before.scalar_pair(VCC, wave) == 0,
    "vccnz": lambda before, wave: before.scalar_pair(VCC, wave) != 0,
    "execz": lambda before, wave: before.scalar_pair(EXEC, wave) == 0,
    "execnz": lambda before, wave: before.scalar_pair(EXEC, wave) != 0,
}


@pytest.mark.parametrize("words, target", [(10, AT + 44), (0xFFFF, AT), (0x8000, AT + 4 - 4 * 0x8000), (0, AT + 4)])
@pytest.mark.parametrize("name", CONDITIONS)
def test_conditional_branch(name, words, target):
    for values in ([0, 1, 0, 1], [0] * 4, [1] * 4):
        for sel in (slice(0, WAVES), np.array([3, 0]), slice(1, 2)):
            w = make_waves(1)
            w.scc[:] = values
            w.sgpr[VCC], w.sgpr[VCC + 1] = 0, [v << 31 for v in values]
            set_exec(w, [v << 63 for v in values])
            before = State(w)
            want = {i: target if CONDITIONS[name](before, i) else AT + 4 for i in np.arange(WAVES)[sel].tolist()}
            assert go(f"s_cbranch_{name} {words}", w, sel) == want
            after = State(w)
            assert after.s == before.s and after.v == before.v and after.scc == before.scc


def test_branch():
    assert go("s_branch 65535", make_waves()) == dict.fromkeys(range(WAVES), AT)


def test_jumps_through_registers():
    w = make_waves()
    targets = [0x7F0000000000 + 256 * i for i in range(WAVES)]
    w.sgpr[20], w.sgpr[21] = [t & 0xFFFFFFFF for t in targets], [t >> 32 for t in targets]
    assert go("s_setpc_b64 s[20:21]", w, slice(1, 4)) == {i: targets[i] for i in (1, 2, 3)}
    before = State(w)
    assert go("s_swappc_b64 s[30:31], s[20:21]", w, np.array([0, 2])) == {i: targets[i] for i in (0, 2)}
    after = State(w)
    assert [after.scalar_pair(30, i) for i in range(WAVES)] == [
        AT + 4 if i in (0, 2) else before.scalar_pair(30, i) for i in range(WAVES)
    ]
    assert go("s_swappc_b64 s[20:21], s[20:21]", w) == dict(enumerate(targets))
    assert go("s_call_b64 s[20:21], 65534", w) == dict.fromkeys(range(WAVES), AT - 4)
    assert [State(w).scalar_pair(20, i) for i in range(WAVES)] == [AT + 4] * WAVES


def test_getpc_gives_the_next_instruction():
    w = make_waves()
    assert go("s_getpc_b64 s[20:21]", w, slice(0, 2)) == dict.fromkeys((0, 1), AT + 4)
    assert [State(w).scalar_pair(20, i) for i in (0, 1)] == [AT + 4] * 2


@pytest.mark.parametrize(
    "text, outcome, status, pc",
    [
        ("s_endpgm", WAIT, ENDED, 77),
        ("s_barrier", WAIT, AT_BARRIER, AT + 4),
    ],
)
def test_waits(text, outcome, status, pc):
    w = make_waves()
    w.pc[:] = 77
    instruction = parse(text, AT, 4)
    assert REGISTRY[instruction.name](instruction)(Group(w, np.array([1, 3]))) == outcome
    assert w.status.tolist() == [RUNNING, status, RUNNING, status]
    assert w.pc.tolist() == [77, pc, 77, pc]


def test_sleep_takes_its_time():
    w = make_waves()
    instruction = parse("s_sleep 8", AT, 4)
    step = REGISTRY[instruction.name](instruction)
    assert step(Group(w, np.array([1, 3]))) is None and step(Group(w, np.array([3]))) is None
    assert w.slept.tolist() == [0, 512, 0, 1024]


@pytest.mark.parametrize(
    "text",
    [
        "s_nop 7",
        "s_waitcnt vmcnt(0) lgkmcnt(3)",
        "s_setprio 1",
        "s_dcache_wb",
        "v_nop",
        "s_icache_inv",
        "buffer_inv sc1",
        "buffer_wbinvl1_vol",
    ],
)
def test_what_has_nothing_to_wait_for(text):
    w = make_waves()
    before = State(w)
    assert execute(text, w) is None
    after = State(w)
    assert (after.s, after.v, after.scc) == (before.s, before.v, before.scc)


def test_trap():
    with pytest.raises(IllegalInstruction, match="trapped"):
        execute("s_trap 2", make_waves(exec_=[FULL] * WAVES))
