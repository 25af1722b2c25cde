"""Memory as the lanes of many waves see it: gather and scatter through one GPU's page tables.

One numpy view spans the process's whole address space, so that a gather is one indexing operation wherever the pages
are.  Every lane's address is first looked up in the node's allocation table, in bulk: a bad one is a
:class:`~hsakit.softgpu.memory.MemoryFault` that carries the lane, before anything is touched.
"""

from __future__ import annotations

import numpy as np

from ..memory import PAGE, AddressSpace, MemoryFault
from ..uapi import ffi

_ALL = np.frombuffer(ffi.buffer(ffi.cast("void *", PAGE), (1 << 47) - 2 * PAGE), dtype=np.uint8)
_VIEWS = {
    size: _ALL[: len(_ALL) // size * size].view(dtype)
    for size, dtype in ((1, np.uint8), (2, np.uint16), (4, np.uint32), (8, np.uint64), (16, np.complex128))
}


class LaneFault(MemoryFault):
    """A fault with the position, in the access's flat list of lanes, of the first lane that has it."""

    def __init__(self, fault: MemoryFault, lane: int):
        Exception.__init__(self, str(fault))
        self.gpu, self.address, self.present, self.lane = fault.gpu, fault.address, fault.present, lane


class LaneMemory:
    def __init__(self, space: AddressSpace, gpu: int):
        self._space, self._gpu = space, gpu
        self._generation = -1
        self._starts = self._ends = self._shifts = self._usable = None

    def load(self, addresses: np.ndarray, nbytes: int) -> np.ndarray:
        """Bytes at flat uint64 ``addresses``: an array [lanes, words] of uint32; below 4 bytes, zero-extended."""
        at = self._host(addresses, nbytes, write=False)
        unit = nbytes if nbytes in _VIEWS else 4
        if unit > 1 and (at & (unit - 1)).any():
            unit = 4 if unit > 4 and not (at & 3).any() else 1
        view = _VIEWS[unit]
        if unit == nbytes:
            got = view[(at - PAGE) // unit if unit & (unit - 1) else (at - PAGE) >> (unit.bit_length() - 1)]
            if nbytes < 4:
                return got.astype(np.uint32)[:, None]
            return got.view(np.uint32).reshape(len(at), nbytes // 4)
        count = nbytes // unit
        index = ((at - PAGE) >> (unit.bit_length() - 1))[:, None] + np.arange(count, dtype=np.int64)
        got = view[index]
        if nbytes < 4:
            return got.reshape(-1).view(np.uint16).astype(np.uint32)[:, None]
        return got.reshape(-1).view(np.uint32).reshape(len(at), nbytes // 4)

    def store(self, addresses: np.ndarray, values: np.ndarray, nbytes: int) -> None:
        """``values``: [lanes, words] of uint32.  Lanes that hit one address: the last wins, as the highest lane does."""
        at = self._host(addresses, nbytes, write=True)
        unit = nbytes if nbytes in _VIEWS else 4
        if unit > 1 and (at & (unit - 1)).any():
            unit = 4 if unit > 4 and not (at & 3).any() else 1
        view, shift = _VIEWS[unit], unit.bit_length() - 1
        index = (at - PAGE) >> shift
        data = np.ascontiguousarray(values)
        if nbytes < 4:
            data = data.astype(np.uint8 if nbytes == 1 else np.uint16)
        if unit == nbytes:
            view[index] = data.view(view.dtype).reshape(len(at))
        else:
            count = nbytes // unit
            view[index[:, None] + np.arange(count, dtype=np.int64)] = data.view(view.dtype).reshape(len(at), count)

    def atomic_cells(self, addresses: np.ndarray, nbytes: int) -> np.ndarray:
        """Host addresses for read-modify-writes, which are naturally aligned or fault."""
        at = self._host(addresses, nbytes, write=True)
        bad = np.flatnonzero(at & (nbytes - 1))
        if len(bad):
            lane = int(bad[0])
            address = int(addresses[lane])
            raise LaneFault(MemoryFault(self._gpu, address, nbytes, "unaligned atomic", present=True), lane)
        return at

    # -- translation -----------------------------------------------------------------------------------------------

    def _host(self, addresses: np.ndarray, nbytes: int, write: bool) -> np.ndarray:
        """int64 host addresses of the lanes."""
        low, high = int(addresses.min()), int(addresses.max())
        allocation = self._space.find(low)
        if (
            allocation is not None
            and high + nbytes <= allocation.end
            and self._gpu in allocation.gpus
            and not (write and allocation.read_only)
            and allocation.kind != "aql-ring"
        ):
            if allocation.foreign:
                self._space.check_foreign(self._gpu, low, high + nbytes - low)
            return addresses.view(np.int64) + (allocation.host - allocation.start)
        return self._host_many(addresses, nbytes, write)

    def _host_many(self, addresses: np.ndarray, nbytes: int, write: bool) -> np.ndarray:
        unique, inverse = np.unique(addresses // np.uint64(PAGE), return_inverse=True)
        shifts = np.empty(len(unique), np.int64)
        for i, page in enumerate(unique.tolist()):
            start = page * PAGE
            allocation = self._space.find(start + PAGE - 1)
            bad = (
                allocation is None
                or start >= allocation.end
                or start < allocation.start
                or self._gpu not in allocation.gpus
                or (write and allocation.read_only)
            )
            if bad:
                lane = int(np.flatnonzero(inverse == i)[0])
                self._fault(int(addresses[lane]), nbytes, write, lane)
            if allocation.foreign:
                self._space.check_foreign(self._gpu, start, PAGE)
            shifts[i] = self._space.place(self._gpu, start, 1, write).pointer - start
        # A lane whose last byte lies on another page than its first: that page must belong to the same place.
        ends = (addresses + np.uint64(nbytes - 1)) // np.uint64(PAGE)
        for lane in np.flatnonzero(ends != addresses // np.uint64(PAGE)).tolist():
            try:
                self._space.place(self._gpu, int(addresses[lane]), nbytes, write)
            except MemoryFault:
                self._fault(int(addresses[lane]), nbytes, write, lane)
        return addresses.view(np.int64) + shifts[inverse]

    def _fault(self, address: int, nbytes: int, write: bool, lane: int) -> None:
        try:
            self._space.place(self._gpu, address, nbytes, write)
        except MemoryFault as fault:
            raise LaneFault(fault, lane) from None
        raise AssertionError(f"no fault at {address:#x}")
