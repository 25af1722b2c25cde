"""An sDMA queue: the packets that the runtime writes into an engine's ring, executed in order.

Packet layouts are those of the SDMA engine of GFX9 (sdma_registers.h in ROCr; the driver's vega10_sdma_pkt_open.h).
Anything else stops the engine with its bytes in the message, as an engine that hangs on a packet it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .uapi import atomic_add64, ffi

if TYPE_CHECKING:
    from .driver import Driver

OP_NOP, OP_COPY, OP_FENCE, OP_TRAP, OP_POLL_REGMEM, OP_ATOMIC, OP_TIMESTAMP = 0, 1, 5, 6, 8, 10, 13
SUBOP_COPY_LINEAR, SUBOP_COPY_RECT, SUBOP_TIMESTAMP_GLOBAL = 0, 4, 2
ATOMIC_ADD64 = 47
POLL_EQUAL = 3

SLICE = 4 << 20  # bytes an engine moves before the others get their turn
ROWS = 512  # the same for rectangles, whose cost is a row
BYTES_A_PACKET = 64 << 10  # what takes as long to move as a packet takes to decode
BLOCKED, PROGRESS = False, True


class UnknownPacket(Exception):
    """A packet the engine does not know."""


class SdmaQueue:
    """One ring on one engine.  ``engine`` is the physical one: the driver hands engines out in the order in which
    queues are created, whatever number the runtime gave its slot (ROCr 6.1: the number in
    ``hsa_amd_memory_async_copy_on_engine`` is the runtime's own)."""

    def __init__(self, driver: Driver, queue_id: int, gpu: int, slot: tuple[int, int], args):
        self._driver, self.id, self.gpu = driver, queue_id, gpu
        self.slot, self.engine = slot, slot[0]  # (engine, queue of it)
        self._space, self._counters = driver.space, driver.counters[gpu]
        self._ring_at, self._ring_size = args.ring_base_address, args.ring_size
        self._rptr_at = args.read_pointer_address
        self._mask = args.ring_size // 4 - 1
        self._resolve()
        self._read = 0  # bytes, monotonic
        self.doorbell = 0  # the write pointer last rung, in bytes
        self._running: Iterator[bool] | None = None
        self._length = 0
        self._copies = 0
        self._lose = False  # a planted fault: the next completion is not counted down
        self.cu_mask: bytes | None = None  # may be set, means nothing to an engine
        self.priority = args.queue_priority
        self.save_area = (0, 0)
        self.halted = self.evicted = False

    def _resolve(self) -> None:
        """Look the ring up in the page tables; good for one generation of the address space."""
        self._generation = self._space.generation
        ring = self._space.pointer(self.gpu, self._ring_at, self._ring_size, write=False)
        self._ring = memoryview(ffi.buffer(ring, self._ring_size)).cast("B").cast("I")
        self._rptr = ffi.cast("uint64_t *", self._space.pointer(self.gpu, self._rptr_at, 8, write=True))

    @property
    def pending(self) -> bool:
        return self._read < self.doorbell and not self.halted and not self.evicted

    def describe(self) -> str:
        return f"SDMA queue {self.id} (GPU {self.gpu}, engine {self.engine})"

    def ring_doorbell(self, value: int) -> None:
        self.doorbell = max(self.doorbell, value)

    def step(self, budget: int) -> bool:
        """Execute up to ``budget`` packets, or the beginning of a long one.  True if anything moved."""
        if self._generation != self._space.generation:
            self._resolve()
        moved, self._budget = False, budget
        while self._budget > 0 and self._read < self.doorbell:
            self._budget -= 1
            if self._running is None:
                self._running = self._start(self._read // 4)
            state = next(self._running, None) if self._running else None
            if state is BLOCKED:
                break
            moved = True
            if state is None:
                self._running = None
                self._retire()
        return moved

    def _retire(self) -> None:
        self._read += self._length * 4
        self._rptr[0] = self._read

    def _words(self, at: int, count: int) -> list[int]:
        ring, mask = self._ring, self._mask
        return [ring[(at + i) & mask] for i in range(count)]

    def _start(self, at: int) -> Iterator[bool] | None:
        """Begin the packet at dword ``at``: None if it is already done, else what carries it on, slice by slice."""
        header = self._ring[at & self._mask]
        op, sub_op = header & 0xFF, header >> 8 & 0xFF
        if op == OP_NOP:
            self._length = 1 + (header >> 16 & 0x3FFF)
            return None
        if op == OP_COPY and sub_op == SUBOP_COPY_LINEAR:
            return self._copy(self._packet(at, 7, "sdma_copy"))
        if op == OP_COPY and sub_op == SUBOP_COPY_RECT:
            return self._rect(self._packet(at, 13, "sdma_rect"))
        if op == OP_POLL_REGMEM and header >> 31:
            return self._poll(self._packet(at, 6, "sdma_poll"))
        if op == OP_POLL_REGMEM:
            self._packet(at, 6, "sdma_hdp_flush")  # host and node share memory: nothing to flush
            return None
        if op == OP_FENCE:
            words = self._packet(at, 4, "sdma_fence")
            self._pointer("uint32_t *", words, 1, 4)[0] = words[3]
            return None
        if op == OP_ATOMIC and header >> 25 == ATOMIC_ADD64:
            words = self._packet(at, 8, "sdma_atomic")
            if self._lose:
                self._lose = False
                return None
            atomic_add64(self._pointer("uint64_t *", words, 1, 8), words[3] | words[4] << 32)
            return None
        if op == OP_TIMESTAMP and sub_op == SUBOP_TIMESTAMP_GLOBAL:
            self._pointer("uint64_t *", self._packet(at, 3, "sdma_timestamp"), 1, 8)[0] = self._driver.ticks()
            return None
        if op == OP_TRAP:
            self._driver.events.set(self._packet(at, 2, "sdma_trap")[1] & 0x0FFFFFFF)
            return None
        shown = " ".join(f"{w:08x}" for w in self._words(at, 8))
        raise UnknownPacket(f"{self.describe()}: unknown packet, op {op} sub_op {sub_op}, byte {at * 4}: {shown} ...")

    def _packet(self, at: int, length: int, counter: str) -> list[int]:
        self._length = length
        self._counters.add(counter)
        return self._words(at, length)

    def _pointer(self, type_: str, words: list[int], at: int, nbytes: int):
        address = words[at] | words[at + 1] << 32
        return ffi.cast(type_, self._space.pointer(self.gpu, address, nbytes, write=True))

    def _poll(self, words: list[int]) -> Iterator[bool]:
        address, reference, mask = words[1] | words[2] << 32, words[3], words[4]
        if words[0] >> 28 & 7 != POLL_EQUAL:
            raise UnknownPacket(f"{self.describe()}: poll with function {words[0] >> 28 & 7}")
        generation = -1  # none: the word is still to be found
        while True:
            if generation != self._space.generation:  # something was freed: is this word still there?
                generation = self._space.generation
                cell = ffi.cast("uint32_t *", self._space.pointer(self.gpu, address, 4, write=False))
            if cell[0] & mask == reference:
                return
            yield BLOCKED

    def _copy(self, words: list[int]) -> Iterator[bool]:
        nbytes = (words[1] & 0x3FFFFFFF) + 1
        source, destination = words[3] | words[4] << 32, words[5] | words[6] << 32
        number, self._copies = self._copies, self._copies + 1
        self._counters.add(f"sdma_copy_engine_{self.engine}")
        planted = None
        if self._driver.faults:
            planted = self._driver.faults.alter(self.gpu, self.engine, number, destination, source, nbytes)
            destination, source, nbytes = planted.destination, planted.source, planted.nbytes
        # Both ranges are looked up in full before the first byte moves.
        self._space.place(self.gpu, source, nbytes, write=False)
        self._space.place(self.gpu, destination, nbytes, write=True)
        for done in range(0, nbytes, SLICE):
            if done:
                yield PROGRESS
            size = min(SLICE, nbytes - done)
            self._move(destination + done, source + done, size)
            self._budget -= size // BYTES_A_PACKET
        if planted:
            for effect in planted.after:
                effect()
            self._lose = planted.lost

    def _move(self, destination: int, source: int, nbytes: int) -> None:
        self._space.copy(self.gpu, destination, source, nbytes)
        if self._driver.coherence is not None:
            self._driver.coherence.copy(self.gpu, destination, source, nbytes)

    def _rect(self, words: list[int]) -> Iterator[bool]:
        element = words[0] >> 29  # log2 of its bytes; pitches and counts are in elements
        x, y, z = (words[11] & 0x3FFF) + 1, (words[11] >> 16 & 0x3FFF) + 1, (words[12] & 0x7FF) + 1

        def window(at: int) -> tuple[int, int, int]:
            base = words[at] | words[at + 1] << 32
            pitch = (words[at + 3] >> 13) + 1 << element
            slice_ = (words[at + 4] & 0xFFFFFFF) + 1 << element
            offset_x, offset_y, offset_z = words[at + 2] & 0x3FFF, words[at + 2] >> 16 & 0x3FFF, words[at + 3] & 0x7FF
            return base + (offset_x << element) + offset_y * pitch + offset_z * slice_, pitch, slice_

        (source, source_pitch, source_slice), (target, target_pitch, target_slice) = window(1), window(6)
        row = x << element
        for i in range(y * z):
            if i and i % ROWS == 0:
                self._budget = 0
                yield PROGRESS
            level, line = divmod(i, y)
            self._move(
                target + line * target_pitch + level * target_slice,
                source + line * source_pitch + level * source_slice,
                row,
            )
