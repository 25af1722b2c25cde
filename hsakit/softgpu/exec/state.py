"""Registers of many waves at once, and the group of them that executes an instruction together.

Register-major numpy arrays: ``sgpr[r]`` is one scalar register of every wave, ``vgpr[r]`` one vector register, [waves,
64 lanes].  Waves at the same program counter form a :class:`Group` and execute an instruction as one array operation;
where they part, each part goes on as a group of its own until they meet again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..memory import MemoryFault
from .decode import EXEC

LANES = 64
SGPRS = 128
RUNNING, AT_BARRIER, ENDED, STOPPED = 0, 1, 2, 3


def lanes_of(mask: np.ndarray) -> np.ndarray:
    """uint64 [n] -> bool [n, 64]."""
    return np.unpackbits(mask.view(np.uint8), bitorder="little").view(bool).reshape(-1, LANES)


def mask_of(lanes: np.ndarray) -> np.ndarray:
    """bool [n, 64] -> uint64 [n]."""
    return np.packbits(lanes.reshape(-1), bitorder="little").view(np.uint64)


def join64(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Two registers as one uint64 array."""
    pair = np.empty((*low.shape, 2), np.uint32)
    pair[..., 0] = low
    pair[..., 1] = high
    return pair.view(np.uint64)[..., 0]


def halves(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The low and the high registers of 64-bit values of any kind."""
    pair = np.ascontiguousarray(value).view(np.uint32).reshape(*value.shape, 2)
    return pair[..., 0], pair[..., 1]


class Waves:
    """The state of ``n`` waves of one kernel."""

    def __init__(self, n: int, vgprs: int, agprs: int):
        self.n = n
        self.sgpr = np.zeros((SGPRS, n), np.uint32)
        self.vgpr = np.zeros((vgprs, n, LANES), np.uint32)
        self.acc = np.zeros((agprs, n, LANES), np.uint32)
        # the same memory, seen as other types: making a view costs as much as a small operation
        self.v = {t: self.vgpr.view(t) for t in (np.uint32, np.int32, np.float32)}
        self.a = {t: self.acc.view(t) for t in (np.uint32, np.int32, np.float32)}
        self.s = {t: self.sgpr.view(t) for t in (np.uint32, np.int32, np.float32)}
        self.scc = np.zeros(n, bool)
        self.pc = np.zeros(n, np.int64)
        self.status = np.zeros(n, np.int8)
        self.lanes = np.ones((n, LANES), bool)  # EXEC, unpacked
        self.mode = np.zeros(n, np.uint32)
        # where each wave runs, for the hardware-id registers, and which workgroup of the batch it belongs to
        self.workgroup = np.zeros(n, np.int64)
        self.hw_id = np.zeros(n, np.uint32)
        self.xcc_id = np.zeros(n, np.uint32)
        # set by the dispatch
        self.memory: Any = None  # LaneMemory
        self.lds: Any = None  # uint8 [workgroups, bytes, rounded up]
        self.lds_size = 0
        self.scratch: Any = None  # uint8 [waves, lanes, bytes]
        self.apertures = (0, 0)  # high halves of the addresses of LDS and scratch in the flat address space
        self.clock: Any = None  # () -> ticks
        self.trace: Any = None  # Trace, while footprints are taken
        self.steps = 0
        self.executed: dict[int, int] = {}  # program counter -> by how many waves, since it was last taken
        self.slept = np.zeros(n, np.int64)  # clocks of s_sleep, likewise
        # What tells a loop that waits for others from one that works: the last that each wave did with memory was to
        # look again at what had not changed.
        self.idle = np.zeros(n, bool)
        self._looks: dict[tuple[int, int], Look] = {}

    def look(self, g: Group, instruction: int, addresses: np.ndarray, found: np.ndarray, nbytes: int) -> None:
        """Note what a load found that sees what others write, by its instruction's address.  ``nbytes`` of each address
        were read, or, where there is one for each wave, by each of its lanes."""
        first = int(g.sel.start if g.view else g.sel[0])
        last = self._looks.get((instruction, first))
        same = last is not None and last.same(addresses, found)
        if not same:
            self._looks[instruction, first] = Look(addresses, found, nbytes, g.n)
        elif last is not None and not last.again:
            self._looks[instruction, first] = last._replace(again=True)
        self.idle[g.sel] = same

    def work(self, g: Group) -> None:
        """These waves changed memory that others see."""
        self.idle[g.sel] = False

    def unchanged(self) -> bool:
        """Whether all that was looked at more than once still is as it was found."""
        return all(look.unchanged(self.memory) for look in self._looks.values() if look.again)

    @property
    def nbytes(self) -> int:
        return self.vgpr.nbytes + self.acc.nbytes + self.sgpr.nbytes

    def ended(self) -> Ended:
        return Ended(self)

    def reset(self) -> None:
        """For other waves of the same kernel."""
        self.status[:] = 0
        self.memory = self.lds = self.scratch = self.trace = None
        self.scc[:] = False
        self.idle[:] = False
        self.slept[:] = 0
        self.steps = 0
        self.executed = {}
        self._looks.clear()


class Registers:
    """Registers that ended waves leave, for others of the same number and size.  What is in them is not defined."""

    LIMIT = 128 << 20  # bytes that are kept

    def __init__(self) -> None:
        self._spare: dict[tuple[int, int, int], list[Waves]] = {}
        self._nbytes = 0

    def take(self, n: int, vgprs: int, agprs: int) -> Waves:
        spare = self._spare.get((n, vgprs, agprs))
        if not spare:
            return Waves(n, vgprs, agprs)
        waves = spare.pop()
        self._nbytes -= waves.nbytes
        waves.reset()
        return waves

    def give(self, waves: Waves) -> None:
        if self._nbytes + waves.nbytes > self.LIMIT:
            self._spare.clear()
            self._nbytes = 0
        self._spare.setdefault((waves.n, len(waves.vgpr), len(waves.acc)), []).append(waves)
        self._nbytes += waves.nbytes


class Ended:
    """What is left of waves that have all ended."""

    def __init__(self, waves: Waves):
        self.n, self.memory = waves.n, waves.memory


class Look(NamedTuple):
    addresses: np.ndarray
    found: np.ndarray
    nbytes: int
    waves: int
    again: bool = False
    """it was found so more than once"""

    def same(self, addresses: np.ndarray, found: np.ndarray) -> bool:
        return np.array_equal(self.addresses, addresses) and np.array_equal(self.found, found)

    def unchanged(self, memory) -> bool:
        try:
            whole = len(self.addresses) == self.waves and len(self.found) != self.waves
            now = memory.peek(self.addresses, self.nbytes, whole)
        except MemoryFault:
            return False  # let the wave find out
        return now is not None and np.array_equal(now, self.found)


class Group:
    """Waves that stand at one program counter.  ``sel`` selects them in every array: a slice where they are
    neighbours (so that registers are views), else an index array."""

    __slots__ = ("w", "sel", "n", "view", "_lanes", "full", "_mode")

    def __init__(self, waves: Waves, sel):
        self.w, self.sel = waves, sel
        self.view = isinstance(sel, slice)
        self.n = sel.stop - sel.start if self.view else len(sel)
        self._mode: int | None = None
        self.refresh()

    def refresh(self) -> None:
        """After EXEC changed."""
        self._lanes = self.w.lanes[self.sel]
        self.full = bool(self._lanes.all())

    def restrict(self, lanes: np.ndarray) -> None:
        """Act on these lanes only, whatever EXEC says, until the next refresh."""
        self._lanes, self.full = lanes, bool(lanes.all())

    def among(self, lanes: np.ndarray) -> Group:
        """The same waves with only these lanes active."""
        part = Group(self.w, self.sel)
        part.restrict(lanes)
        return part

    @property
    def lanes(self) -> np.ndarray:
        """bool [n, 64]: the active lanes."""
        return self._lanes

    @property
    def mode(self) -> int:
        """The MODE register where all waves have the same value; -1 where they differ (see :meth:`by_mode`)."""
        if self._mode is None:
            values = self.w.mode[self.sel]
            self._mode = int(values[0]) if (values == values[0]).all() else -1
        return self._mode

    def set_mode(self, value) -> None:
        self.w.mode[self.sel] = value
        self._mode = None

    def by_mode(self):
        """The group taken apart into groups that share a value of MODE."""
        waves = np.arange(self.w.n)[self.sel]
        values = self.w.mode[waves]
        return [Group(self.w, waves[values == value]) for value in np.unique(values)]

    # -- scalar registers ------------------------------------------------------------------------------------------

    def s(self, index: int, dtype=np.uint32) -> np.ndarray:
        return self.w.s[dtype][index][self.sel]

    def s64(self, index: int) -> np.ndarray:
        return join64(self.w.sgpr[index][self.sel], self.w.sgpr[index + 1][self.sel])

    def set_s(self, index: int, value) -> None:
        self.w.sgpr[index][self.sel] = value if getattr(value, "dtype", None) == np.uint32 else _bits32(value)
        if index >= EXEC:
            self._exec_changed()

    def set_s64(self, index: int, value: np.ndarray) -> None:
        self.w.sgpr[index][self.sel], self.w.sgpr[index + 1][self.sel] = halves(value)
        if index >= EXEC:
            self._exec_changed()

    def _exec_changed(self) -> None:
        self.w.lanes[self.sel] = lanes_of(np.ascontiguousarray(self.s64(EXEC)))
        self.refresh()

    @property
    def scc(self) -> np.ndarray:
        return self.w.scc[self.sel]

    @scc.setter
    def scc(self, value) -> None:
        self.w.scc[self.sel] = value

    # -- lane masks, which are pairs of scalar registers -------------------------------------------------------------

    def mask(self, index: int) -> np.ndarray:
        """A pair of SGPRs as bool [n, 64]."""
        if index == EXEC:
            return self._lanes
        return lanes_of(np.ascontiguousarray(self.s64(index)))

    def set_mask(self, index: int, lanes: np.ndarray) -> None:
        if lanes.shape != (self.n, LANES):
            lanes = np.broadcast_to(lanes, (self.n, LANES))
        self.set_s64(index, mask_of(np.ascontiguousarray(lanes)))

    # -- vector registers ------------------------------------------------------------------------------------------

    def v(self, index: int, dtype=np.uint32) -> np.ndarray:
        """[n, 64]; a view where the group is a slice: not to be written through."""
        return self.w.v[dtype][index][self.sel]

    def v64(self, index: int) -> np.ndarray:
        return join64(self.w.vgpr[index][self.sel], self.w.vgpr[index + 1][self.sel])

    def set_v(self, index: int, value: np.ndarray, file: str = "v") -> None:
        """Write the active lanes.  ``value``: 32-bit elements of any kind, broadcastable to [n, 64]."""
        registers = self.w.vgpr if file == "v" else self.w.acc
        value = value if value.dtype == np.uint32 else _bits32(value)
        target = registers[index]
        if self.view:
            if self.full:
                target[self.sel] = value
            else:
                np.copyto(target[self.sel], value, where=self._lanes)
        elif self.full:
            target[self.sel] = value
        else:
            part = target[self.sel]
            np.copyto(part, value, where=self._lanes)
            target[self.sel] = part

    def set_v64(self, index: int, value: np.ndarray, file: str = "v") -> None:
        low, high = halves(value)
        self.set_v(index, low, file)
        self.set_v(index + 1, high, file)


def _bits32(value) -> np.ndarray:
    """Any 32-bit value(s), or a bool, as the bits a register holds."""
    value = np.asarray(value)
    if value.dtype.itemsize == 4:
        return value.view(np.uint32)
    return value.astype(np.uint32)
