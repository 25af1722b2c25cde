"""An sDMA queue: the packets that the runtime writes into an engine's ring, executed in order, each at its time.

A copy reads its source when it begins and writes its destination when it ends.  Packet layouts are those of the SDMA
engine of GFX9 (sdma_registers.h in ROCr; the driver's vega10_sdma_pkt_open.h).  Anything else stops the engine with its
bytes in the message, as an engine that hangs on a packet it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .move import Move
from .stopped import Stopped
from .uapi import atomic_add64, ffi

if TYPE_CHECKING:
    from .clock import Running
    from .driver import Driver

OP_NOP, OP_COPY, OP_FENCE, OP_TRAP, OP_POLL_REGMEM, OP_ATOMIC, OP_TIMESTAMP = 0, 1, 5, 6, 8, 10, 13
SUBOP_COPY_LINEAR, SUBOP_COPY_RECT, SUBOP_TIMESTAMP_GLOBAL = 0, 4, 2
ATOMIC_ADD64 = 47
POLL_EQUAL = 3
POLL_DWORDS = 6


class UnknownPacket(Exception):
    """A packet the engine does not know."""


class SdmaQueue:
    """One ring on one engine.  ``engine`` is the physical one: the driver hands engines out in the order in which
    queues are created, whatever number the runtime gave its slot (ROCr 6.1: the number in
    ``hsa_amd_memory_async_copy_on_engine`` is the runtime's own)."""

    call = "copy"  # what the host does when it rings

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
        self._busy = False  # a packet is being processed
        self.waits = 0  # how often it has waited: tells one wait from another
        self._move: Move | None = None
        self._running: Running | None = None
        self._copies = 0
        self._lose = False  # a planted fault: the next completion is not counted down
        self.cu_mask: bytes | None = None  # may be set, means nothing to an engine
        self.priority = args.queue_priority
        self.save_area = (0, 0)
        self.halted = self.evicted = self.closed = False
        costs = driver.constants
        self._packet_ps, self._start_ps = int(costs.engine_packet_ns * 1000), int(costs.engine_start_ns * 1000)

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

    def ring(self, value: int) -> None:
        self.ring_doorbell(value)
        self.advance()

    def close(self) -> None:
        """Stop for good, whatever it was doing."""
        self.closed = True
        self._stop()

    def halt(self) -> None:
        """Something went wrong: it stays where it is."""
        self.halted = True
        self._stop()

    def _stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
        if self._move is not None:
            self._move.close()
            self._move = None

    def advance(self) -> None:
        """Begin with the next packet if there is one."""
        if self._generation != self._space.generation:
            self._resolve()
        while not self._busy and not self.halted and not self.evicted and self._read < self.doorbell:
            self._busy = True
            self._take(self._read // 4)

    def ready(self) -> bool:
        """Whether what the next packet waits for has come: and what polls right behind it wait for.  A signal is two of
        them, a half each; it is waited for as a whole."""
        if self._generation != self._space.generation:
            self._resolve()
        if self.evicted:
            return False
        for at in range(self._read // 4, self.doorbell // 4, POLL_DWORDS):
            header = self._ring[at & self._mask]
            if header & 0xFF != OP_POLL_REGMEM or not header >> 31:
                break
            words = self._words(at, POLL_DWORDS)
            if words[0] >> 28 & 7 != POLL_EQUAL:
                break  # refused when its turn comes
            address, mask, reference = words[1] | words[2] << 32, words[4], words[3]
            cell = ffi.cast("uint32_t *", self._space.pointer(self.gpu, address, 4, write=False))
            if cell[0] & mask != reference:
                return False
        return True

    def proceed(self, wait: int) -> None:
        """What it waited for in this wait has come."""
        if wait != self.waits:
            return
        if self.evicted:
            self._wait()
            return
        self._retire_later(POLL_DWORDS)

    def _wait(self) -> None:
        self.waits += 1
        self._driver.processor.wait(self)

    def _later(self, delay: int, action) -> None:
        self._driver.processor.at(self, delay, action)

    def _retire_later(self, length: int, effect=None) -> None:
        """The packet, of ``length`` dwords, takes the time of one; then it has its ``effect``."""

        def end():
            if effect is not None:
                effect()
            self._retire(length)

        self._later(self._packet_ps, end)

    def _retire(self, length: int) -> None:
        if self._generation != self._space.generation:
            self._resolve()
        self._read += length * 4
        self._rptr[0] = self._read
        self._busy = False
        self.advance()

    def _words(self, at: int, count: int) -> list[int]:
        ring, mask = self._ring, self._mask
        return [ring[(at + i) & mask] for i in range(count)]

    def _take(self, at: int) -> None:
        """Begin with the packet at dword ``at``."""
        header = self._ring[at & self._mask]
        op, sub_op = header & 0xFF, header >> 8 & 0xFF
        if op == OP_NOP:
            self._retire(1 + (header >> 16 & 0x3FFF))
        elif op == OP_COPY and sub_op == SUBOP_COPY_LINEAR:
            self._copy(self._packet(at, 7, "sdma_copy"))
        elif op == OP_COPY and sub_op == SUBOP_COPY_RECT:
            self._rect(self._packet(at, 13, "sdma_rect"))
        elif op == OP_POLL_REGMEM and header >> 31:
            self._poll(self._packet(at, POLL_DWORDS, "sdma_poll"))
        elif op == OP_POLL_REGMEM:
            self._packet(at, 6, "sdma_hdp_flush")  # host and node share memory: nothing to flush
            self._retire_later(6)
        elif op == OP_FENCE:
            words = self._packet(at, 4, "sdma_fence")
            self._retire_later(4, lambda: self._fence(words))
        elif op == OP_ATOMIC and header >> 25 == ATOMIC_ADD64:
            words = self._packet(at, 8, "sdma_atomic")
            self._retire_later(8, lambda: self._add(words))
        elif op == OP_TIMESTAMP and sub_op == SUBOP_TIMESTAMP_GLOBAL:
            words = self._packet(at, 3, "sdma_timestamp")
            self._stamp(words)
            self._retire(3)
        elif op == OP_TRAP:
            event = self._packet(at, 2, "sdma_trap")[1] & 0x0FFFFFFF
            self._retire_later(2, lambda: self._driver.events.set(event))
        else:
            shown = " ".join(f"{w:08x}" for w in self._words(at, 8))
            raise UnknownPacket(
                f"{self.describe()}: unknown packet, op {op} sub_op {sub_op}, byte {at * 4}: {shown} ..."
            )

    def _packet(self, at: int, length: int, counter: str) -> list[int]:
        self._counters.add(counter)
        return self._words(at, length)

    def _pointer(self, type_: str, words: list[int], at: int, nbytes: int):
        address = words[at] | words[at + 1] << 32
        return ffi.cast(type_, self._space.pointer(self.gpu, address, nbytes, write=True))

    def _fence(self, words: list[int]) -> None:
        self._pointer("uint32_t *", words, 1, 4)[0] = words[3]
        self._driver.processor.wrote()

    def _add(self, words: list[int]) -> None:
        if self._lose:
            self._lose = False
            return
        atomic_add64(self._pointer("uint64_t *", words, 1, 8), words[3] | words[4] << 32)
        self._driver.processor.wrote()

    def _stamp(self, words: list[int]) -> None:
        self._pointer("uint64_t *", words, 1, 8)[0] = self._driver.ticks()
        self._driver.processor.wrote()

    def _poll(self, words: list[int]) -> None:
        if words[0] >> 28 & 7 != POLL_EQUAL:
            raise UnknownPacket(f"{self.describe()}: poll with function {words[0] >> 28 & 7}")
        self._wait()

    # -- copies ----------------------------------------------------------------------------------------------------

    def _copy(self, words: list[int]) -> None:
        nbytes = (words[1] & 0x3FFFFFFF) + 1
        source, destination = words[3] | words[4] << 32, words[5] | words[6] << 32
        number, self._copies = self._copies, self._copies + 1
        self._counters.add(f"sdma_copy_engine_{self.engine}")

        planted = None
        if self._driver.faults:
            planted = self._driver.faults.alter(self.gpu, self.engine, number, destination, source, nbytes)
            destination, source, nbytes = planted.destination, planted.source, planted.nbytes

        def after():
            if planted:
                for effect in planted.after:
                    effect()
                self._lose = planted.lost

        self._transfer(7, [(destination, source, nbytes)], after)

    def _transfer(self, length: int, pieces: list[tuple[int, int, int]], after=None) -> None:
        """Move pieces (destination, source, bytes); ``after`` that they are there, and the packet retires."""
        # All ranges are looked up in full before the first byte moves.
        for destination, source, nbytes in pieces:
            self._space.place(self.gpu, source, nbytes, write=False)
            self._space.place(self.gpu, destination, nbytes, write=True)
        destination, source, _ = pieces[0]
        places = [self._space.find(address).vram_of for address in (source, destination)]  # type: ignore[union-attr]
        sampled = self._driver.sampled and None not in places  # what the host sees, or stages with, is whole
        move = self._move = Move(self._space, self.gpu, pieces, self._meanwhile, sampled)

        def end():
            self._running = self._move = None
            move.finish()
            if self._driver.coherence is not None:
                for to, from_, size in pieces:
                    self._driver.coherence.copy(self.gpu, to, from_, size)
            if after is not None:
                after()
            self._driver.processor.wrote()
            self._retire(length)

        def begin():
            self._running = self._driver.machine.transfer(
                self.gpu, self.engine, *places, move.nbytes, move.begin,
                lambda: self._driver.processor.act(self, end), origin=source,
            )  # fmt: skip

        self._later(self._start_ps, begin)

    def _meanwhile(self) -> None:
        self._driver.processor.meanwhile()
        if self.closed or self.halted:
            raise Stopped

    def _rect(self, words: list[int]) -> None:
        element = words[0] >> 29  # log2 of its bytes; pitches and counts are in elements
        x, y, z = (words[11] & 0x3FFF) + 1, (words[11] >> 16 & 0x3FFF) + 1, (words[12] & 0x7FF) + 1

        def window(at: int) -> tuple[int, int, int]:
            base = words[at] | words[at + 1] << 32
            pitch = (words[at + 3] >> 13) + 1 << element
            slice_ = (words[at + 4] & 0xFFFFFFF) + 1 << element
            offset_x, offset_y, offset_z = words[at + 2] & 0x3FFF, words[at + 2] >> 16 & 0x3FFF, words[at + 3] & 0x7FF
            return base + (offset_x << element) + offset_y * pitch + offset_z * slice_, pitch, slice_

        (source, source_pitch, source_slice), (target, target_pitch, target_slice) = window(1), window(6)

        def row(i: int) -> tuple[int, int, int]:
            level, line = divmod(i, y)
            to = target + line * target_pitch + level * target_slice
            return to, source + line * source_pitch + level * source_slice, x << element

        for to, from_, nbytes in (row(0), row(y * z - 1)):  # before millions of rows of a broken packet are listed
            self._space.place(self.gpu, from_, nbytes, write=False)
            self._space.place(self.gpu, to, nbytes, write=True)
        self._transfer(13, [row(i) for i in range(y * z)])
