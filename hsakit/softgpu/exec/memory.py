"""Memory as the lanes of many waves see it: gather and scatter through one GPU's page tables.

One numpy view spans the process's whole address space, so that a gather is one indexing operation wherever the pages
are.  Every lane's address is first looked up in the node's allocation table, in bulk: a bad one is a
:class:`~hsakit.softgpu.memory.MemoryFault` that carries the lane, before anything is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..coherence import Checker, Incoherent
from ..memory import PAGE, AddressSpace, Allocation, MemoryFault
from ..uapi import ffi
from .log import StoreLog
from .rmw import Cells
from .state import LANES

_ALL = np.frombuffer(ffi.buffer(ffi.cast("void *", PAGE), (1 << 47) - 2 * PAGE), dtype=np.uint8)
_VIEWS = {
    size: _ALL[: len(_ALL) // size * size].view(dtype)
    for size, dtype in ((1, np.uint8), (2, np.uint16), (4, np.uint32), (8, np.uint64), (16, np.complex128))
}

READS = 1024  # scalar loads that are written down
HOST = -1  # where a GPU's number would stand

_NARROW = {1: np.uint8, 2: np.uint16}
# by a lane's bytes: what a whole wave reads from each byte on
_WAVES = {
    size: np.ndarray(len(_ALL) - size * LANES, np.dtype((np.void, size * LANES)), _ALL, strides=(1,))
    for size in (1, 2, 4, 8, 12, 16)
}


class LaneFault(MemoryFault):
    """A fault with the position, in the access's flat list of lanes, of the first lane that has it; or, of a scalar
    access, the wave's position in the group."""

    wave: int | None = None

    def __init__(self, fault: MemoryFault, lane: int | None):
        Exception.__init__(self, str(fault))
        self.gpu, self.address, self.present, self.lane = fault.gpu, fault.address, fault.present, lane


class Read(NamedTuple):
    """A scalar load, by some waves: what was found."""

    addresses: np.ndarray
    found: np.ndarray


class LaneMemory:
    """``log``: holds back what is stored; None: stores are visible at once."""

    def __init__(self, space: AddressSpace, gpu: int, log: StoreLog | None = None, checker: Checker | None = None):
        self._space, self._gpu, self._log, self._checker = space, gpu, log, checker
        self.past_caches = False  # whether the access that comes is at a scope beyond this GPU's
        self._ranges: list[tuple[int, int]] = []  # of addresses: what was looked up last
        self._checked = True  # nobody can take that memory away unseen
        # bytes that lanes asked for, by whose memory they are in (a GPU's number, or HOST)
        self.loads: dict[int, int] = {}
        self.stores: dict[int, int] = {}
        self._counting = True
        self.reads: list[Read] | None = None  # scalar loads, where they are written down and are not too many

    def load(self, addresses: np.ndarray, nbytes: int) -> np.ndarray:
        """Bytes at flat uint64 ``addresses``: an array [lanes, words] of uint32; below 4 bytes, zero-extended."""
        view, index = self._elements(addresses, nbytes, write=False)
        self._own_stores()
        got = view[index]
        if nbytes < 4:
            return got.reshape(-1).view(_NARROW[nbytes]).astype(np.uint32)[:, None]
        return got.view(np.uint32).reshape(len(addresses), nbytes // 4)

    def store(self, addresses: np.ndarray, values: np.ndarray, nbytes: int) -> None:
        """``values``: [lanes, words] of uint32.  Of lanes that hit one address the highest wins."""
        view, index = self._elements(addresses, nbytes, write=True)
        if nbytes < 4:
            values = values.astype(_NARROW[nbytes])
        data = np.ascontiguousarray(values).view(view.dtype).reshape(index.shape)
        if self._log is None:
            view[index] = data
        else:
            data = data.copy() if nbytes == 4 else data  # it may be a register itself
            self._hold(view, index, data, lambda: self._elements(addresses, nbytes, write=True))

    def load_waves(self, starts: np.ndarray, nbytes: int) -> np.ndarray | None:
        """As :meth:`load` for whole waves, whose lanes follow each other from ``starts`` on.  None if there is one that
        is not in one allocation: then the lanes have to be looked at one by one."""
        at = self._waves(starts, nbytes, write=False)
        if at is None:
            return None
        self._own_stores()
        got = _WAVES[nbytes][at].view(_NARROW.get(nbytes, np.uint32)).reshape(len(starts) * LANES, -1)
        return got if nbytes >= 4 else got.astype(np.uint32)

    def store_waves(self, starts: np.ndarray, values: np.ndarray, nbytes: int) -> bool:
        """As :meth:`store`; False where :meth:`load_waves` gives None."""
        at = self._waves(starts, nbytes, write=True)
        if at is None:
            return False
        values = values.astype(_NARROW[nbytes]) if nbytes < 4 else np.ascontiguousarray(values)
        view = _WAVES[nbytes]
        data = values.reshape(len(starts), -1).view(view.dtype)[:, 0]
        if self._log is None:
            view[at] = data
        else:
            data = data.copy() if nbytes == 4 else data  # it may be a register itself
            self._hold(view, at, data, lambda: self._waves_again(starts, nbytes))
        return True

    def peek(self, addresses: np.ndarray, nbytes: int, whole: bool) -> np.ndarray | None:
        """What a load would find, without the load: nobody's traffic, and no order is checked."""
        checker, loads, self._checker, self.loads = self._checker, self.loads, None, {}
        try:
            return self.load_waves(addresses, nbytes) if whole else self.load(addresses, nbytes)
        finally:
            self._checker, self.loads = checker, loads

    def release(self) -> bool:
        """Make visible what was stored.  False if that was nothing."""
        if not self._log:
            return False
        self._log.apply()
        return True

    def discard(self) -> None:
        """As if it had not been stored."""
        if self._log is not None:
            self._log.discard()

    @property
    def holds_back(self) -> bool:
        return bool(self._log)

    def _own_stores(self) -> None:
        """A load sees what the same waves stored before."""
        if self._log and any(self._log.holds(*each) for each in self._ranges):
            self._log.apply()

    def _hold(self, view: np.ndarray, index: np.ndarray, data: np.ndarray, again: Callable) -> None:
        """``again`` looks the addresses up once more, where somebody may have taken the memory away meanwhile."""
        generation, checked, space = self._space.generation, self._checked, self._space
        ranges = self._ranges

        def store():
            where = (view, index) if checked and generation == space.generation else self._uncounted(again)
            if space.readers:
                for low, end in ranges:
                    space.before_write(low, end)
            where[0][where[1]] = data

        assert self._log is not None
        self._log.add(store, ranges, data.nbytes)

    def _uncounted(self, again: Callable):
        """The store was counted when it was executed."""
        self._counting = False
        try:
            return again()
        finally:
            self._counting = True

    def arguments(self, addresses: np.ndarray, nbytes: int) -> np.ndarray:
        """As :meth:`load`, by the scalar caches: what waves read there of the host's memory is no traffic of each."""
        before = self.loads.get(HOST, 0)
        data = self.load(addresses, nbytes)
        if self.reads is not None:
            self.reads.append(Read(addresses, data))
            if len(self.reads) > READS:
                self.reads = None
        if before:
            self.loads[HOST] = before
        else:
            self.loads.pop(HOST, None)
        return data

    def _waves_again(self, starts: np.ndarray, nbytes: int) -> tuple[np.ndarray, np.ndarray]:
        at = self._waves(starts, nbytes, write=True)
        if at is None:  # no longer one allocation: the first byte that is not there is a fault
            lanes = (starts[:, None] + np.arange(LANES, dtype=np.uint64) * np.uint64(nbytes)).reshape(-1)
            self._host_many(lanes, nbytes, write=True)
            raise MemoryFault(self._gpu, int(starts[0]), nbytes, "memory that was replaced while stores to it waited")
        return _WAVES[nbytes], at

    def _waves(self, starts: np.ndarray, nbytes: int, write: bool) -> np.ndarray | None:
        shift: int | np.ndarray | None = self._one(starts, LANES * nbytes, write)
        if shift is None:
            shift = self._each(starts, LANES * nbytes, write)
        if shift is None:
            return None
        if self._checker is not None:
            self._check_order(
                (starts[:, None] + np.arange(LANES, dtype=np.uint64) * np.uint64(nbytes)).reshape(-1), nbytes, write
            )
        return starts.view(np.int64) + (shift - PAGE)

    def _elements(self, addresses: np.ndarray, nbytes: int, write: bool) -> tuple[np.ndarray, np.ndarray]:
        """A view of all memory, and where in it each lane's elements are: as few a lane as the alignment allows."""
        at = self._host(addresses, nbytes, write)
        unit = min(nbytes & -nbytes, 16)
        low = int(np.bitwise_or.reduce(at)) & unit - 1
        if low:
            unit = low & -low
        at -= PAGE
        if unit > 1:
            at >>= unit.bit_length() - 1
        if unit == nbytes:
            return _VIEWS[unit], at
        return _VIEWS[unit], at[:, None] + np.arange(nbytes // unit, dtype=np.int64)

    def cells(self, addresses: np.ndarray, nbytes: int) -> Cells:
        """The words of 4 or 8 bytes at ``addresses``, for a read-modify-write: naturally aligned, or a fault."""
        bad = np.flatnonzero(addresses & np.uint64(nbytes - 1))
        if len(bad):
            lane = int(bad[0])
            address = int(addresses[lane])
            raise LaneFault(MemoryFault(self._gpu, address, nbytes, "unaligned atomic", present=True), lane)
        self.past_caches = True
        at = self._host(addresses, nbytes, write=True)
        self.past_caches = False
        if self._space.readers:
            for low, end in self._ranges:
                self._space.before_write(low, end)
        first = self._space.find(int(addresses.min()))
        alone = first is not None and first.coarse and int(addresses.max()) < first.end
        return Cells(_VIEWS[nbytes], (at - PAGE) // nbytes, 0 if alone else PAGE)

    # -- order among agents: only the checker needs to know ---------------------------------------------------------

    def publish(self) -> None:
        """A release at system scope."""
        if self._checker is not None:
            self._checker.release(self._gpu)

    def acquire(self) -> None:
        """An acquire at system scope."""
        if self._checker is not None:
            self._checker.acquire(self._gpu)

    def _check_order(self, addresses: np.ndarray, nbytes: int, write: bool) -> None:
        assert self._checker is not None
        try:
            self._checker.lanes(self._gpu, addresses, nbytes, write, self.past_caches)
        except Incoherent as fault:
            raise LaneFault(fault, fault.lane) from None

    # -- translation -----------------------------------------------------------------------------------------------

    def _host(self, addresses: np.ndarray, nbytes: int, write: bool) -> np.ndarray:
        """int64 host addresses of the lanes, a new array."""
        shift = self._one(addresses, nbytes, write)
        if self._checker is not None:
            self._check_order(addresses, nbytes, write)
        return self._host_many(addresses, nbytes, write) if shift is None else addresses.view(np.int64) + shift

    def _one(self, addresses: np.ndarray, nbytes: int, write: bool) -> int | None:
        """From an address to where the host reaches it, if all of them are in one allocation, and accessible."""
        low, end = int(addresses.min()), int(addresses.max()) + nbytes
        self._ranges = [(low, end)]
        allocation = self._whole(low, end, write)
        if allocation is None:
            return None
        self._checked = not allocation.foreign
        self._count(write, allocation.vram_of, len(addresses) * nbytes)
        return allocation.host - allocation.start

    def _each(self, starts: np.ndarray, nbytes: int, write: bool) -> np.ndarray | None:
        """As :meth:`_one` for pieces of ``nbytes`` in several allocations, each of them in one: int64 by piece."""
        shifts, left = np.empty(len(starts), np.int64), np.ones(len(starts), bool)
        found: list[tuple[Allocation, int, tuple[int, int]]] = []
        while left.any():
            low = int(starts[left].min())
            allocation = self._whole(low, low + nbytes, write)
            if allocation is None:
                return None
            inside = left & (starts <= np.uint64(allocation.end - nbytes))
            end = int(starts[inside].max()) + nbytes
            if allocation.foreign and self._whole(low, end, write) is None:
                return None
            shifts[inside] = allocation.host - allocation.start
            left &= ~inside
            found.append((allocation, int(np.count_nonzero(inside)), (low, end)))
        self._ranges = [reach for _, _, reach in found]
        self._checked = not any(allocation.foreign for allocation, _, _ in found)
        for allocation, pieces, _ in found:
            self._count(write, allocation.vram_of, pieces * nbytes)
        return shifts

    def _whole(self, low: int, end: int, write: bool) -> Allocation | None:
        """The allocation that has all of [low, end), if this GPU may access it."""
        allocation = self._space.find(low)
        if (
            allocation is None
            or end > allocation.end
            or self._gpu not in allocation.gpus
            or (write and allocation.read_only)
            or allocation.kind == "aql-ring"
            or (allocation.foreign and not self._space.reachable(low, end - low, write))
        ):
            return None
        return allocation

    def _count(self, write: bool, vram_of: int | None, nbytes: int) -> None:
        if not self._counting:
            return
        traffic, place = self.stores if write else self.loads, HOST if vram_of is None else vram_of
        traffic[place] = traffic.get(place, 0) + nbytes

    def _host_many(self, addresses: np.ndarray, nbytes: int, write: bool) -> np.ndarray:
        """The same, page by page: lanes in several allocations, or some of them at fault."""
        pages, inverse = np.unique(addresses // np.uint64(PAGE), return_inverse=True)
        # lanes of which the last byte lies on another page than the first: that one must be there, too
        ends = (addresses + np.uint64(nbytes - 1)) // np.uint64(PAGE)
        across = np.flatnonzero(ends != addresses // np.uint64(PAGE))
        try:
            shifts = np.array([self._shift(page * PAGE, write) for page in pages.tolist()], np.int64)
            for address in addresses[across].tolist():
                self._check(address, nbytes, write)
        except MemoryFault:
            for lane, address in enumerate(addresses.tolist()):
                try:
                    self._check(address, nbytes, write)
                except MemoryFault as fault:
                    raise LaneFault(fault, lane) from None
            raise
        self._checked = False  # looked up once more, rather than remembered for each
        for page, lanes in zip(pages.tolist(), np.bincount(inverse.reshape(-1)).tolist()):
            allocation = self._space.find(page * PAGE)
            assert allocation is not None  # it was found before
            self._count(write, allocation.vram_of, lanes * nbytes)
        return addresses.view(np.int64) + shifts[inverse]

    def _check(self, address: int, nbytes: int, write: bool) -> None:
        """One lane's access, all of it."""
        self._space.place(self._gpu, address, nbytes, write)
        for page in {address // PAGE * PAGE, (address + nbytes - 1) // PAGE * PAGE}:
            self._shift(page, write)

    def _shift(self, page: int, write: bool) -> int:
        """From a page's address to where the host reaches it."""
        place = self._space.place(self._gpu, page, 1, write)
        if place.foreign and not self._space.reachable(page, PAGE, write):
            raise MemoryFault(self._gpu, page, PAGE, "pinned host memory that the process has unmapped or protected")
        return place.pointer - page
