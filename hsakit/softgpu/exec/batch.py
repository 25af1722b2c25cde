"""Some workgroups of a kernel, resident together: their waves advance as far as they get in one turn.

Waves at the smallest program counter go first, up to where others stand: that is how they meet again after a branch
took them apart.  A group that only goes round (a wait for another wave's flag) gives way to the others after a while.
"""

from __future__ import annotations

import time

import numpy as np

from ..memory import MemoryFault
from .memory import LaneFault
from .program import INDEXED, JUMP, WAIT, YIELD, IllegalInstruction, Program
from .state import AT_BARRIER, ENDED, LANES, RUNNING, Group, Waves

DONE, MORE, IDLE = "done", "more", "idle"
PATIENCE = 256  # jumps until others get their turn
FOREVER = 1 << 62


class WaveError(Exception):
    """What stopped a wave: ``cause`` at ``instruction`` (text) of the n-th wave of a workgroup (x, y, z)."""

    def __init__(self, cause: Exception, address: int, instruction: str, workgroup: tuple[int, int, int], wave: int):
        super().__init__(str(cause))
        self.cause, self.address, self.instruction = cause, address, instruction
        self.workgroup, self.wave = workgroup, wave


class Batch:
    def __init__(self, program: Program, waves: Waves, workgroups: np.ndarray):
        """``workgroups``: the place (x, y, z) in the grid of every workgroup."""
        self._program, self.waves, self.workgroups = program, waves, workgroups
        self.idle = False  # after its last turn, all that runs was waiting
        self.spinning = False  # it goes round and writes nothing: it may wait for what is not resident yet
        self._writes = 0
        self._jumps = 0
        self._after: int | None = None  # run the group above this address next, for fairness

    def run(self, until: float) -> str:
        """Advance until everything ended (DONE), the time is over (MORE), or all that runs is waiting (IDLE)."""
        yields = 0
        with np.errstate(all="ignore"):
            while True:
                chosen = self._choose()
                if chosen is None:
                    return DONE
                group, pc, limit, alone = chosen
                outcome = self._run_group(group, pc, limit)
                if outcome == WAIT:
                    self._release_barriers()
                elif outcome == YIELD:
                    yields += 1
                    self._after = pc
                    if alone or yields > 8:
                        return IDLE
                elif outcome == JUMP:
                    self._jumps += 1
                    if self._jumps > PATIENCE:
                        self._jumps, self._after = 0, None if alone else pc
                        self.spinning, self._writes = self._writes == self.waves.writes, self.waves.writes
                if time.perf_counter() > until:
                    return MORE

    def _choose(self) -> tuple[Group, int, int, bool] | None:
        w = self.waves
        running = np.flatnonzero(w.status == RUNNING)
        if not len(running):
            return None
        pcs = w.pc[running]
        pc, top = int(pcs.min()), int(pcs.max())
        if pc == top:
            at, limit = running, FOREVER
        else:
            if self._after is not None:
                higher = pcs[pcs > self._after]
                pc = int(higher.min()) if len(higher) else pc
                self._after = None
            here = pcs == pc
            at = running[here]
            above = pcs[pcs > pc]
            limit = int(above.min()) if len(above) else FOREVER
        first, last = int(at[0]), int(at[-1])
        sel = slice(first, last + 1) if last - first + 1 == len(at) else at
        return Group(w, sel), pc, limit, pc == top and limit == FOREVER

    def _run_group(self, group: Group, pc: int, limit: int) -> str | None:
        entry_of = self._program.entry
        w, steps = self.waves, 0
        try:
            while True:
                step, next_, _instruction = entry_of(pc)
                outcome = step(group)
                steps += 1
                if outcome is not None:
                    return outcome
                pc = next_
                if pc == limit:
                    w.pc[group.sel] = pc
                    return None
                if steps & 0xFFF == 0:  # a long straight run: look at the time now and then
                    w.pc[group.sel] = pc
                    return None
        except (LaneFault, IllegalInstruction) as exc:
            raise self._error(exc, group, pc) from exc
        except MemoryFault as exc:  # of the instruction's own fetch
            raise self._error(LaneFault(exc, None), group, pc) from exc
        except IndexError as exc:
            why = IllegalInstruction(f"a register that the kernel does not have ({exc})")
            raise self._error(why, group, pc) from exc
        finally:
            w.steps += steps

    def _error(self, exc: Exception, group: Group, pc: int) -> WaveError:
        at = exc.wave or 0  # in the group
        if exc.lane is not None:
            at = np.flatnonzero(group.lanes)[exc.lane] // LANES
        wave = int(np.arange(self.waves.n)[group.sel][at])
        try:
            text = self._program.instruction(pc).text
        except (MemoryFault, IllegalInstruction):
            text = "(not decodable)"
        workgroup = int(self.waves.workgroup[wave])
        first = int(np.flatnonzero(self.waves.workgroup == workgroup)[0])
        x, y, z = self.workgroups[workgroup].tolist()
        return WaveError(exc, pc & ~INDEXED, text, (x, y, z), wave - first)

    def _release_barriers(self) -> None:
        w = self.waves
        waiting = w.status == AT_BARRIER
        if not waiting.any():
            return
        arrived = np.bincount(w.workgroup[waiting], minlength=len(self.workgroups))
        alive = np.bincount(w.workgroup[w.status != ENDED], minlength=len(self.workgroups))
        complete = (arrived == alive) & (alive > 0)
        w.status[waiting & complete[w.workgroup]] = RUNNING
