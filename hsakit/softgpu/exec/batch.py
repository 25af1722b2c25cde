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
LOOP = 16  # jumps that a loop which waits may have
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
        self._resting: set[int] = set()  # where groups stand that gave way in this turn
        self._waiting = np.zeros(waves.n, bool)  # waves that gave way since anything happened
        self._seen = 0  # the progress then
        self._waits = self._jumps = self._moves = 0
        self._after: int | None = None  # run the group above this address next, for fairness

    def run(self, until: float) -> str:
        """Advance until everything ended (DONE), the time is over (MORE), or all that runs is waiting (IDLE)."""
        self._resting.clear()
        with np.errstate(all="ignore"):
            while True:
                running = np.flatnonzero(self.waves.status == RUNNING)
                if not len(running):
                    return DONE
                chosen = self._choose(running)
                if chosen is None:
                    if not self._news():
                        return IDLE
                    self._resting.clear()
                    continue
                group, pc, limit = chosen
                outcome = self._run_group(group, pc, limit, group.n == len(running), until)
                if outcome == WAIT:
                    self._waits += 1
                    self._release_barriers()
                elif outcome == YIELD:
                    self._news()
                    self._moves, self._waiting[group.sel] = 0, True
                    self._resting.add(int(self.waves.pc[group.sel][0]))
                elif outcome == JUMP:
                    self._jumps += 1
                    if self._jumps > PATIENCE:
                        self._jumps, self._after = 0, pc
                        self._resting.clear()
                if time.perf_counter() > until:
                    return MORE if self._news() or not self._waiting[running].all() else IDLE

    def _news(self) -> bool:
        """Whether anything happened, since it was last asked, that a group may have waited for; or one works on."""
        seen, self._seen = self._seen, self.waves.writes + self._waits
        if seen == self._seen and self._moves < LOOP:
            return False
        self._moves = 0
        self._waiting[:] = False
        return True

    def _choose(self, running: np.ndarray) -> tuple[Group, int, int] | None:
        """The group to run next, where it stands, and up to where; None if all of them rest."""
        pcs = self.waves.pc[running]
        awake = pcs
        if self._resting:
            awake = pcs[~np.isin(pcs, list(self._resting))]
            if not len(awake):
                return None
        pc = int(awake.min())
        if self._after is not None:
            higher = awake[awake > self._after]
            pc = int(higher.min()) if len(higher) else pc
            self._after = None
        above = pcs[pcs > pc]
        at = running[pcs == pc]
        first, last = int(at[0]), int(at[-1])
        sel = slice(first, last + 1) if last - first + 1 == len(at) else at
        return Group(self.waves, sel), pc, int(above.min()) if len(above) else FOREVER

    def _run_group(self, group: Group, pc: int, limit: int, alone: bool, until: float) -> str | None:
        entry_of = self._program.entry
        w, steps = self.waves, 0
        writes, polls = w.writes, w.polls
        try:
            while True:
                step, next_, _instruction = entry_of(pc)
                outcome = step(group)
                steps += 1
                if outcome is None:
                    pc = next_
                    if pc == limit or steps & 0xFFF == 0:  # of a long straight run the time is looked at, too
                        w.pc[group.sel] = pc
                        return None
                elif outcome.__class__ is int:  # where all of them jump to
                    self._moves += 1
                    back, pc = outcome <= pc, outcome
                    if back and w.polls != polls and w.writes == writes:
                        w.pc[group.sel] = pc
                        return YIELD
                    if not alone or time.perf_counter() > until:
                        w.pc[group.sel] = pc
                        return JUMP
                    writes, polls = w.writes, w.polls
                else:
                    return outcome
        except (LaneFault, IllegalInstruction) as exc:
            raise self._error(exc, group, pc) from exc
        except MemoryFault as exc:  # of the instruction's own fetch
            raise self._error(LaneFault(exc, None), group, pc) from exc
        except IndexError as exc:
            why = IllegalInstruction(f"a register that the kernel does not have ({exc})")
            raise self._error(why, group, pc) from exc
        finally:
            w.steps += steps

    def _error(self, exc: LaneFault | IllegalInstruction, group: Group, pc: int) -> WaveError:
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
