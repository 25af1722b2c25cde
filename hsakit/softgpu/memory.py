"""Memory of the node: physical pages, the process's GPU address space, and who may touch what.

Every GPU's memory is one sparse file in RAM (memfd), as large as the part says; pages nobody wrote cost nothing.  The
file is mapped once, for the node's own accesses; the runtime maps pieces of the same file for the host through its DRM
file descriptor, with the protection the allocation allows, so host and node see the same bytes without copying.

GPU virtual addresses are the process's own (one address space for CPU and GPUs, as ROCm sets it up).  An access is
looked up in the allocation table: outside a live allocation, or on a GPU it was not mapped to, it raises
:class:`MemoryFault`; it never becomes a segfault.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left, bisect_right, insort
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from .uapi import C, ffi

if TYPE_CHECKING:
    import numpy as np

    from .move import Move

PROT_READ, PROT_WRITE = 1, 2
MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE = 0x01, 0x02, 0x20, 0x4000
MADV_DONTFORK, MADV_DONTDUMP = 10, 16
MADV_POPULATE_READ, MADV_POPULATE_WRITE = 22, 23
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
SHORT = 64 << 10  # bytes
MAP_FAILED = ffi.cast("void *", -1)
PAGE = 4096


def read_process(address: int, nbytes: int) -> bytes | None:
    """Bytes of this process at an address that it named, as a kernel reads them: None if they are not there."""
    out = bytearray(nbytes)
    return bytes(out) if _through_kernel(C.process_vm_readv, ffi.from_buffer(out), address, nbytes) == nbytes else None


def write_process(address: int, data: bytes) -> bool:
    """Write them likewise; False if they are not there or may not be written."""
    return _through_kernel(C.process_vm_writev, ffi.from_buffer(data), address, len(data)) == len(data)


def _through_kernel(call, near, far: int, nbytes: int) -> int:
    """How many bytes went between ``near``, which is ours, and the address ``far``; -1 if none."""
    local = ffi.new("struct iovec *", (ffi.cast("void *", near), nbytes))
    remote = ffi.new("struct iovec *", (ffi.cast("void *", far), nbytes))
    done = call(os.getpid(), local, 1, remote, 1, 0)
    if done < 0 and ffi.errno != errno.EFAULT:
        raise OSError(ffi.errno, "a read or write of this process's memory by the kernel")
    return done


class MemoryFault(Exception):
    """An access the GPU's page tables do not allow.  ``present`` is True for a write to a read-only mapping."""

    def __init__(self, gpu: int, address: int, nbytes: int, reason: str, present: bool = False):
        super().__init__(f"GPU {gpu}: access to {nbytes} bytes at {address:#x}: {reason}")
        self.gpu, self.address, self.present = gpu, address, present

    def told(self, text: str) -> MemoryFault:
        """The same fault, with another story: a kernel's says which instruction of which wave."""
        fault = MemoryFault(self.gpu, self.address, 0, "", self.present)
        fault.args = (text,)
        return fault


class Backing:
    """A sparse memory file with an allocator of page ranges."""

    def __init__(self, name: str, size: int):
        self.size = size
        self.fd = os.memfd_create(f"hsakit-{name}", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, size)
        base = C.mmap(ffi.NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, self.fd, 0)
        if base == MAP_FAILED:
            raise OSError(
                ffi.errno,
                f"cannot map {size >> 30} GiB of address space for {name} (a limit on virtual memory? see ulimit -v)",
            )
        C.madvise(base, size, MADV_DONTFORK)
        C.madvise(base, size, MADV_DONTDUMP)
        self.base = int(ffi.cast("uintptr_t", base))
        self._free: list[tuple[int, int]] = [(0, size)]  # (offset, length), by offset, never touching
        self.used = 0

    def allocate(self, size: int) -> int | None:
        """Offset of ``size`` bytes of zeroed pages, or None."""
        for i, (offset, length) in enumerate(self._free):
            if length >= size:
                if length == size:
                    del self._free[i]
                else:
                    self._free[i] = (offset + size, length - size)
                self.used += size
                return offset
        return None

    def free(self, offset: int, size: int) -> None:
        C.fallocate(self.fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, offset, size)
        self.used -= size
        i = bisect_right(self._free, (offset, 0))
        if i < len(self._free) and offset + size == self._free[i][0]:
            size += self._free.pop(i)[1]
        if i and sum(self._free[i - 1]) == offset:
            offset, before = self._free[i - 1]
            self._free[i - 1] = (offset, before + size)
        else:
            self._free.insert(i, (offset, size))


class Allocation:
    """One entry of the table.  ``host`` is where the node reaches the bytes of ``start``."""

    __slots__ = (
        *("handle", "start", "end", "host", "foreign", "read_only", "coarse"),
        *("gpus", "kind", "backing", "offset", "bytes", "vram_of", "epochs"),
    )

    def __init__(self, handle: int, start: int, size: int, host: int, kind: str, **where):
        self.handle, self.start, self.end, self.host, self.kind = handle, start, start + size, host, kind
        # Foreign pages are the application's own (a pinned array): it may unmap them under us, so they are reached
        # through the kernel, which answers EFAULT where a direct access would be a segfault.
        self.foreign: bool = where.get("foreign", False)
        self.read_only: bool = where.get("read_only", False)
        # Coarse-grained device memory: the host and a kernel that runs do not see each other's writes to it.
        self.coarse: bool = where.get("coarse", False)
        self.gpus: set[int] = set()
        self.backing: Backing | None = where.get("backing")
        self.offset: int = where.get("offset", 0)
        self.bytes: int = where.get("bytes", size)
        self.vram_of: int | None = where.get("vram_of")
        self.epochs: np.ndarray | None = None  # the coherence checker's: who wrote each byte

    def __repr__(self) -> str:
        return f"{self.kind} [{self.start:#x}, {self.end:#x}) of GPUs {sorted(self.gpus)}"

    def cut(self, at: int) -> Allocation:
        """Split pinned memory at ``at``; returns the upper piece."""
        upper = Allocation(0, at, self.end - at, self.host + at - self.start, self.kind, foreign=True)
        upper.read_only, upper.gpus = self.read_only, set(self.gpus)
        self.end = at
        return upper


class Overlap(Exception):
    """A range of addresses that is already another allocation's."""


class Place(NamedTuple):
    pointer: int
    foreign: bool


class AddressSpace:
    """The allocation table and the accesses that go through it.  GPUs are named by their index on the node.

    What the driver allocated has a handle.  Pinned ranges of the process's own memory have none: they are attributes
    of pages, change piece by piece, and end without a word when the process unmaps them, so what is allocated over
    them later replaces them."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._at: dict[int, Allocation] = {}
        self._handles: dict[int, Allocation] = {}
        self._next_handle = 1
        self.generation = 0  # counts removals: a resolved pointer is good for as long as this stands still
        self.readers: dict[Move, None] = {}  # copies under way

    def __len__(self) -> int:
        """How many allocations of the driver's live."""
        return len(self._handles)

    def __iter__(self):
        return iter(self._handles.values())

    def add(self, start: int, size: int, host: int, kind: str, **where) -> Allocation:
        """A new allocation; raises :class:`Overlap`.  ``start`` 0 is one without an address, reached only by handle."""
        if start:
            other = next((a for a in self._within(start, start + size) if a.handle), None)
            if other is not None:
                raise Overlap(f"[{start:#x}, {start + size:#x}) overlaps {other}")
            self.unpin(start, start + size)
        allocation = Allocation(self._next_handle, start, size, host, kind, **where)
        self._next_handle += 1
        self._handles[allocation.handle] = allocation
        if start:
            self._insert(allocation)
        return allocation

    def by_handle(self, handle: int) -> Allocation | None:
        return self._handles.get(handle)

    def remove(self, allocation: Allocation) -> None:
        self.generation += 1
        del self._handles[allocation.handle]
        if allocation.start:
            self._delete(allocation)
        if allocation.backing is not None:
            allocation.backing.free(allocation.offset, allocation.bytes)

    def _insert(self, allocation: Allocation) -> None:
        insort(self._starts, allocation.start)
        self._at[allocation.start] = allocation

    def _delete(self, allocation: Allocation) -> None:
        del self._starts[bisect_right(self._starts, allocation.start) - 1]
        del self._at[allocation.start]

    def _within(self, start: int, end: int) -> list[Allocation]:
        """Everything that has bytes in [start, end), by address."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        last = bisect_left(self._starts, end)
        return [a for a in (self._at[s] for s in self._starts[first:last]) if a.end > start]

    def pinned(self, start: int, end: int) -> list[Allocation]:
        """The process's own memory [start, end), as pieces that cover it exactly.  Raises :class:`Overlap`."""
        there = self._within(start, end)
        other = next((a for a in there if a.handle), None)
        if other is not None:
            raise Overlap(f"[{start:#x}, {end:#x}) overlaps {other}")
        at = start
        for piece in self._cut_out(start, end):
            self._pin(at, piece.start)
            at = piece.end
        self._pin(at, end)
        return self._within(start, end)

    def _cut_out(self, start: int, end: int) -> list[Allocation]:
        """The pinned pieces of [start, end), cut off at its ends."""
        pieces = []
        for piece in self._within(start, end):
            if piece.handle:
                continue
            if piece.start < start:
                piece = piece.cut(start)
                self._insert(piece)
            if piece.end > end:
                self._insert(piece.cut(end))
            pieces.append(piece)
        return pieces

    def _pin(self, start: int, end: int) -> None:
        if start < end:
            self._insert(Allocation(0, start, end - start, start, "pinned host memory", foreign=True))

    def unpin(self, start: int, end: int) -> None:
        """Forget pinned ranges in [start, end)."""
        for piece in self._cut_out(start, end):
            self.generation += 1
            self._delete(piece)

    def find(self, address: int) -> Allocation | None:
        """The allocation that starts at or below ``address``, if any; it may end before it."""
        i = bisect_right(self._starts, address)
        return self._at[self._starts[i - 1]] if i else None

    def nearest(self, address: int) -> str:
        """For a message: the allocation an address just missed."""
        i = bisect_right(self._starts, address)
        near = [self._at[s] for s in self._starts[max(i - 1, 0) : i + 1]]
        if not near:
            return "there is no allocation"
        best = min(near, key=lambda a: max(a.start - address, address - a.end))
        gap = f"{best.start - address} bytes before" if address < best.start else f"{address - best.end} bytes past"
        return f"{gap} {best}"

    # -- accesses --------------------------------------------------------------------------------------------------

    def place(self, gpu: int, address: int, nbytes: int, write: bool) -> Place:
        """Where the node reaches these bytes of GPU memory.  Raises :class:`MemoryFault` as the GPU's MMU would."""
        allocation = self.find(address)
        if allocation is None or address >= allocation.end:
            raise MemoryFault(gpu, address, nbytes, f"not allocated; nearest: {self.nearest(address)}")
        self._allow(gpu, allocation, address, nbytes, write)
        offset = address - allocation.start
        last = allocation  # pinned memory may be in several pieces
        while address + nbytes > last.end:
            following = self._at.get(last.end)
            if following is None or following.handle or last.handle:
                raise MemoryFault(gpu, last.end, nbytes, f"{last} ends there, the access began at {address:#x}")
            self._allow(gpu, following, following.start, nbytes, write)
            last = following
        if allocation.kind == "aql-ring" and offset >= allocation.bytes:
            offset -= allocation.bytes  # the ring's pages are mapped twice, back to back
        return Place(allocation.host + offset, allocation.foreign)

    @staticmethod
    def _allow(gpu: int, allocation: Allocation, address: int, nbytes: int, write: bool) -> None:
        if gpu not in allocation.gpus:
            raise MemoryFault(gpu, address, nbytes, f"not mapped for this GPU: {allocation}")
        if write and allocation.read_only:
            raise MemoryFault(gpu, address, nbytes, f"read-only: {allocation}", present=True)

    def pointer(self, gpu: int, address: int, nbytes: int, write: bool):
        """As :meth:`place`, as a ``void *``, for small control data, which foreign memory does not hold."""
        place = self.place(gpu, address, nbytes, write)
        if place.foreign:
            raise MemoryFault(gpu, address, nbytes, "signals, rings and fences do not lie in pinned host memory")
        return ffi.cast("void *", place.pointer)

    def copy(self, gpu: int, destination: int, source: int, nbytes: int) -> None:
        """Copy as this GPU's engine does: both ranges through its page tables."""
        to = self.place(gpu, destination, nbytes, write=True)
        from_ = self.place(gpu, source, nbytes, write=False)
        if not (to.foreign or from_.foreign):
            # A short one keeps the interpreter's lock, see uapi._load_atomic.
            move = ffi.memmove if nbytes <= SHORT else C.memmove
            move(ffi.cast("void *", to.pointer), ffi.cast("void *", from_.pointer), nbytes)
            return
        # A side is foreign: let the kernel do it, page by page, so that both sides may be.
        far_writes = to.foreign
        local, remote, call = (from_, to, C.process_vm_writev) if far_writes else (to, from_, C.process_vm_readv)
        done = _through_kernel(call, local.pointer, remote.pointer, nbytes)
        if done != nbytes:
            at = (destination if far_writes else source) + max(done, 0)
            raise MemoryFault(gpu, at, nbytes, "pinned host memory that the process has unmapped or protected")

    def before_write(self, low: int, end: int) -> None:
        """Somebody writes into [low, end): copies under way that read there have read it before."""
        for move in [move for move in self.readers if low < move.end and end > move.low]:
            move.keep()

    def read(self, gpu: int, address: int, nbytes: int) -> bytes:
        """As a copy reads them."""
        out = bytearray(nbytes)
        near = ffi.from_buffer(out)
        from_ = self.place(gpu, address, nbytes, write=False)
        if not from_.foreign:
            C.memmove(near, ffi.cast("void *", from_.pointer), nbytes)
        elif _through_kernel(C.process_vm_readv, near, from_.pointer, nbytes) != nbytes:
            raise MemoryFault(gpu, address, nbytes, "pinned host memory that the process has unmapped or protected")
        return out  # type: ignore[return-value]  # a buffer

    def write(self, gpu: int, address: int, data: bytes) -> None:
        """As a copy writes them."""
        near = ffi.from_buffer(data)
        to = self.place(gpu, address, len(data), write=True)
        if not to.foreign:
            C.memmove(ffi.cast("void *", to.pointer), near, len(data))
        elif _through_kernel(C.process_vm_writev, near, to.pointer, len(data)) != len(data):
            raise MemoryFault(gpu, address, len(data), "pinned host memory that the process has unmapped or protected")

    @staticmethod
    def reachable(address: int, nbytes: int, write: bool) -> bool:
        """Whether the process can touch all of these foreign bytes itself.  They are faulted in as by the access."""
        start = address // PAGE * PAGE
        pages = -(-(address + nbytes - start) // PAGE)
        at = ffi.cast("void *", start)
        if _can_populate():
            return C.madvise(at, pages * PAGE, MADV_POPULATE_WRITE if write else MADV_POPULATE_READ) == 0
        return C.mincore(at, pages * PAGE, ffi.new("unsigned char[]", pages)) == 0

    def flip(self, gpu: int, address: int) -> None:
        """Invert the lowest bit of a byte that was just written: a planted fault."""
        pointer, _ = self.place(gpu, address, 1, write=True)
        ffi.cast("uint8_t *", pointer)[0] ^= 1


@lru_cache(maxsize=1)
def _can_populate() -> bool:
    """Linux 5.14 and later tell whether pages can be read or written, older ones only whether they are there."""
    page = C.mmap(ffi.NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    try:
        return C.madvise(page, PAGE, MADV_POPULATE_READ) == 0
    finally:
        C.munmap(page, PAGE)
