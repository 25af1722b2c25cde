"""Some workgroups of a kernel, resident together: their waves advance, each to where it next meets other agents.

There (an atomic, a flag, a release, a look at the clock) it stops until the time has passed that everything up to there
takes; so a kernel is executed in segments.  Waves at the smallest program counter go first, up to where others stand:
that is how they meet again after a branch took them apart.  A group that only goes round (a wait for another wave's
word in LDS) gives way to the others after a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..memory import MemoryFault
from .fastforward import FastForward
from .memory import LaneFault
from .program import CLOCKS, INDEXED, JUMP, WAIT, IllegalInstruction, Program
from .state import AT_BARRIER, ENDED, LANES, RUNNING, STOPPED, Group, Waves
from .trace import Trace

# How a segment ends: all waves ended; those left stopped; they stopped, and only waited for others; or it got long
DONE, STOP, PARKED, MORE = "done", "stop", "parked", "more"
PATIENCE = 256  # jumps until others get their turn
BUDGET = 1 << 15  # instructions of a segment
FEW = 1 << 12  # and of one in which some waves have stopped: the others may wait for them
TURN = 0.002  # seconds until the node's other business is looked at
FOREVER = 1 << 62


class WaveError(Exception):
    """What stopped a wave: ``cause`` at ``instruction`` (text) of the n-th wave of a workgroup (x, y, z)."""

    def __init__(self, cause: Exception, address: int, instruction: str, workgroup: tuple[int, int, int], wave: int):
        super().__init__(str(cause))
        self.cause, self.address, self.instruction = cause, address, instruction
        self.workgroup, self.wave = workgroup, wave


def _nothing() -> None:
    pass


class Batch:
    def __init__(self, program: Program, waves: Waves, workgroups: np.ndarray, numbers: list[int] | None = None,
                 dispatch: object = None):  # fmt: skip
        """``workgroups``: the place (x, y, z) in the grid of every workgroup; ``numbers``: in the dispatch."""
        self.dispatch = dispatch
        self._program, self.workgroups = program, workgroups
        self.waves: Any = waves  # Waves; Ended when it was told so
        self.numbers = list(range(len(workgroups))) if numbers is None else numbers
        self.outcome = MORE  # of the last segment
        self.trace: Trace | None = None
        self.forward: FastForward | None = None  # in a sampled execution
        self.key: bytes | None = None  # there, what tells how it begins
        self._granted = np.zeros(waves.n, bool)  # may go on from where they stopped
        self._any_granted = False
        self._budget = self._jumps = 0
        self._after: int | None = None  # run the group above this address next, for fairness
        self._look_up = 0.0

    def run(self, meanwhile: Callable[[], None] = _nothing, budget: int = BUDGET) -> str:
        """Execute a segment; how it ended.  ``meanwhile`` is called every few milliseconds."""
        self.outcome = self._run(meanwhile, budget)
        return self.outcome

    def _run(self, meanwhile: Callable[[], None], budget: int) -> str:
        self._meanwhile, self._look_up = meanwhile, time.perf_counter() + TURN
        self._budget = budget
        w = self.waves
        self._granted = w.status == STOPPED
        self._any_granted = bool(self._granted.any())
        w.status[self._granted] = RUNNING
        any_stopped = False
        with np.errstate(all="ignore"):
            while True:
                running = np.flatnonzero(w.status == RUNNING)
                if not len(running):
                    return self._outcome()
                if not any_stopped and len(running) < w.n and (w.status == STOPPED).any():
                    any_stopped = True
                    self._budget = min(self._budget, FEW)
                group, pc, limit = self._choose(running)
                outcome = self._run_group(group, pc, limit, group.n == len(running))
                if outcome == WAIT:
                    self._release_barriers()
                elif outcome == JUMP:
                    self._jumps += 1
                    if self._jumps > PATIENCE:
                        self._jumps, self._after = 0, pc
                if self._budget <= 0:
                    return MORE
                if time.perf_counter() > self._look_up:
                    self._pause()

    def _pause(self) -> None:
        self._meanwhile()
        self._look_up = time.perf_counter() + TURN

    def _outcome(self) -> str:
        w = self.waves
        stopped = w.status == STOPPED
        if not stopped.any():
            return DONE
        waits = w.idle[stopped].all() and not w.memory.holds_back and not self.at_clock and w.unchanged()
        return PARKED if waits else STOP

    @property
    def at_clock(self) -> bool:
        """Some stopped waves are about to read it: they wait for time, and not only for others."""
        pcs = set(self.waves.pc[self.waves.status == STOPPED].tolist())
        return any(self._program.entry(pc).instruction.name in CLOCKS for pc in pcs)

    @property
    def ended(self) -> np.ndarray:
        """bool [workgroups]: those of which all waves have ended."""
        if self.outcome == DONE:
            return np.ones(len(self.workgroups), bool)
        left = self.waves.status != ENDED
        if left.all():
            return np.zeros(len(self.workgroups), bool)
        return np.bincount(self.waves.workgroup[left], minlength=len(self.workgroups)) == 0

    def _choose(self, running: np.ndarray) -> tuple[Group, int, int]:
        """The group to run next, where it stands, and up to where."""
        pcs = self.waves.pc[running]
        pc = int(pcs.min())
        if self._after is not None:
            higher = pcs[pcs > self._after]
            pc = int(higher.min()) if len(higher) else pc
            self._after = None
        above = pcs[pcs > pc]
        at = running[pcs == pc]
        if self._any_granted:  # those that may go on, before those that came here since
            first_of_all = at[self._granted[at]]
            at = first_of_all if len(first_of_all) else at
        first, last = int(at[0]), int(at[-1])
        sel = slice(first, last + 1) if last - first + 1 == len(at) else at
        return Group(self.waves, sel), pc, int(above.min()) if len(above) else FOREVER

    def _run_group(self, group: Group, pc: int, limit: int, alone: bool) -> str | None:
        entry_of = self._program.entry
        w, steps, n, executed = self.waves, 0, group.n, self.waves.executed
        granted = False
        forward = self.forward
        watch = None
        if forward is not None:
            forward.group(group, alone)
            watch = forward.watch
        if self._any_granted and self._granted[group.sel].all():
            granted, self._granted[group.sel] = True, False
            self._any_granted = bool(self._granted.any())
        try:
            while True:
                step, next_, _instruction, stops = entry_of(pc)
                if stops and not granted:
                    w.pc[group.sel], w.status[group.sel] = pc, STOPPED
                    return WAIT
                granted = False
                if watch is not None:
                    assert forward is not None
                    forward.step(group, pc)
                    watch = forward.watch
                outcome = step(group)
                steps += 1
                executed[pc] = executed.get(pc, 0) + n
                if outcome is None:
                    pc = next_
                    if pc == limit or steps & 0xFFF == 0:  # of a long straight run the time is looked at, too
                        w.pc[group.sel] = pc
                        return None
                elif outcome.__class__ is int:  # where all of them jump to
                    if forward is not None and alone and outcome <= pc:
                        forward.back(group, pc, outcome)
                        watch = forward.watch
                    pc = outcome
                    if not alone or steps >= self._budget:
                        w.pc[group.sel] = pc
                        return JUMP
                    if time.perf_counter() > self._look_up:
                        self._pause()
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
            self._budget -= steps

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
