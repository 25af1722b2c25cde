"""Program flow: branches, barriers, waits, the end of a wave (ISA guide, "SOPP", "SOP1" and "SOPK" formats)."""

from __future__ import annotations

import numpy as np

from .decode import EXEC, VCC, Instruction
from .operands import scalar
from .program import JUMP, WAIT, IllegalInstruction, op
from .state import AT_BARRIER, ENDED


def _target(instruction: Instruction) -> int:
    offset = instruction.operands[0].value & 0xFFFF
    return instruction.next + 4 * (offset - 0x10000 if offset & 0x8000 else offset)


@op("s_branch")
def s_branch(instruction):
    target = _target(instruction)
    return lambda g: target


CONDITIONS = {
    "s_cbranch_scc0": lambda g: ~g.scc,
    "s_cbranch_scc1": lambda g: g.scc,
    "s_cbranch_vccz": lambda g: g.s64(VCC) == 0,
    "s_cbranch_vccnz": lambda g: g.s64(VCC) != 0,
    "s_cbranch_execz": lambda g: g.s64(EXEC) == 0,
    "s_cbranch_execnz": lambda g: g.s64(EXEC) != 0,
}


@op(*CONDITIONS)
def s_cbranch(instruction):
    condition, target, next_ = CONDITIONS[instruction.name], _target(instruction), instruction.next

    def step(g):
        taken = condition(g)
        if not taken.any():
            return None
        if taken.all():
            return target
        g.w.pc[g.sel] = np.where(taken, target, next_)
        return JUMP

    return step


@op("s_setpc_b64")
def s_setpc(instruction):
    source = scalar(instruction.operands[0], "u64")

    def step(g):
        g.w.pc[g.sel] = source(g)
        return JUMP

    return step


@op("s_swappc_b64")
def s_swappc(instruction):
    link, source = instruction.operands[0].index, scalar(instruction.operands[1], "u64")

    def step(g):
        target = source(g).copy()
        g.set_s64(link, np.full(g.n, instruction.next, np.uint64))
        g.w.pc[g.sel] = target
        return JUMP

    return step


@op("s_call_b64")
def s_call(instruction):
    link = instruction.operands[0].index
    offset = instruction.operands[1].value & 0xFFFF
    target = instruction.next + 4 * (offset - 0x10000 if offset & 0x8000 else offset)

    def step(g):
        g.set_s64(link, np.full(g.n, instruction.next, np.uint64))
        return target

    return step


@op("s_getpc_b64")
def s_getpc(instruction):
    index = instruction.operands[0].index
    return lambda g: g.set_s64(index, np.full(g.n, instruction.next, np.uint64))


@op("s_endpgm", "s_endpgm_saved")
def s_endpgm(_instruction):
    def step(g):
        g.w.status[g.sel] = ENDED
        return WAIT

    return step


@op("s_barrier")
def s_barrier(instruction):
    def step(g):
        g.w.pc[g.sel] = instruction.next
        g.w.status[g.sel] = AT_BARRIER
        return WAIT

    return step


@op("s_sleep")
def s_sleep(instruction):
    clocks = 64 * (instruction.operands[0].value & 0x7F)

    def step(g):
        g.w.slept[g.sel] += clocks

    return step


# Every access is done when its instruction is, and what the caches of hardware may keep back is in the store log:
# counters and priorities have nothing to wait for.  Messages to the host and profiling marks go nowhere.
@op(
    "s_nop",
    "s_waitcnt",
    "s_waitcnt_vscnt",
    "s_waitcnt_depctr",
    "s_setprio",
    "s_icache_inv",
    "s_dcache_inv",
    "s_dcache_inv_vol",
    "s_dcache_wb",
    "s_dcache_wb_vol",
    "s_incperflevel",
    "s_decperflevel",
    "s_ttracedata",
    "s_inst_prefetch",
    "s_clause",
    "s_wakeup",
    "buffer_wbinvl1",
    "buffer_wbinvl1_vol",
)
def nothing(_instruction):
    return lambda g: None


# gfx90a has an instruction for system scope, gfx942 two bits that say it.
@op("buffer_wbl2", "buffer_inv", "buffer_invl2")
def fence(instruction):
    scope = {"sc0", "sc1"} & set(instruction.text.split())
    within = bool(scope) and len(scope) < 2 or instruction.name == "buffer_inv" and not scope  # this GPU
    if instruction.name != "buffer_wbl2":
        return lambda g: None if within else g.w.memory.acquire()

    # Before this one waves stop, see :func:`.program.stops`; what they stored is visible when they go on.
    def release(g):
        g.w.memory.release()
        if not within:
            g.w.memory.publish()

    return release


@op("s_trap")
def s_trap(instruction):
    def step(_g):
        raise IllegalInstruction(f"{instruction.text}: the kernel trapped (an assertion or __builtin_trap)")

    return step
