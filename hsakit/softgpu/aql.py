"""An AQL queue: the packet processor's side of the HSA queue protocol.

Packets are taken in order.  A packet is taken when the doorbell has announced it *and* its header is no longer
INVALID; afterwards its header is INVALID again and the read index has moved.  Barrier packets hold the queue until their
signals are zero.  Completing a packet writes its times into the completion signal, counts the signal down, and wakes who
waits through the signal's mailbox.  Layouts: HSA runtime specification 1.2, 2.8 and 2.9; amd_hsa_queue.h,
amd_hsa_signal.h.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from .uapi import (
    EC_QUEUE_PACKET_UNSUPPORTED,
    EC_QUEUE_PACKET_VENDOR_UNSUPPORTED,
    atomic_add64,
    ffi,
)

if TYPE_CHECKING:
    from .driver import Driver

VENDOR_SPECIFIC, INVALID, KERNEL_DISPATCH, BARRIER_AND, AGENT_DISPATCH, BARRIER_OR = 0, 1, 2, 3, 4, 5
AMD_FORMAT_PM4_IB = 1
PM4_TYPE3 = 3
PM4_NOP, PM4_INDIRECT_BUFFER, PM4_ACQUIRE_MEM = 0x10, 0x3F, 0x58
PACKET = 64

# amd_signal_t
SIGNAL_SIZE, SIGNAL_VALUE, SIGNAL_MAILBOX, SIGNAL_EVENT, SIGNAL_START, SIGNAL_END = 64, 8, 16, 24, 32, 40


class UnsupportedPacket(Exception):
    """A packet the processor refuses: the queue stops and reports ``code`` to the runtime."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


class AqlQueue:
    kind = "AQL"

    def __init__(self, driver: Driver, queue_id: int, gpu: int, args):
        self._driver, self.id, self.gpu = driver, queue_id, gpu
        self._space, self._counters = driver.space, driver.counters[gpu]
        self._ring_address, size = args.ring_base_address, args.ring_size
        ring = self._space.pointer(gpu, self._ring_address, size, write=True)
        ring_bytes = memoryview(ffi.buffer(ring, size)).cast("B")
        self._bytes, self._words, self._halves = ring_bytes, ring_bytes.cast("Q"), ring_bytes.cast("H")
        self._packets = size // PACKET
        self._rptr = ffi.cast("uint64_t *", self._space.pointer(gpu, args.read_pointer_address, 8, write=True))
        self._read = 0
        self.doorbell = -1  # index of the last packet announced
        self._error_area = args.ctx_save_restore_address
        self.cu_mask: bytes | None = None
        self.priority = args.queue_priority
        self.halted = False
        self._cells: dict[int, object] = {}  # signal handle -> its value, good for one generation of the address space
        self._generation = -1

    @property
    def pending(self) -> bool:
        return not self.halted and self._read <= self.doorbell

    def describe(self) -> str:
        return f"AQL queue {self.id} (GPU {self.gpu})"

    def ring_doorbell(self, value: int) -> None:
        # Two producers may ring out of order; what was announced stays announced.
        self.doorbell = max(self.doorbell, value)

    def step(self, budget: int) -> bool:
        """Take up to ``budget`` packets.  True if any was taken."""
        taken = 0
        while taken < budget and self._read <= self.doorbell:
            slot = self._read % self._packets
            header = self._halves[slot * 32]
            if header & 0xFF == INVALID:
                break  # announced by a later packet's producer, not written yet
            if not self._execute(slot, header & 0xFF):
                break
            self._halves[slot * 32] = INVALID
            self._read += 1
            self._rptr[0] = self._read
            taken += 1
        return taken > 0

    def _execute(self, slot: int, kind: int) -> bool:
        """One packet; False if it has to wait."""
        words, base = self._words, slot * 8
        start = self._driver.ticks()
        if kind in (BARRIER_AND, BARRIER_OR):
            signals = [s for s in words[base + 1 : base + 6] if s]
            met = (self._cell(s)[0] == 0 for s in signals)
            if signals and not (all(met) if kind == BARRIER_AND else any(met)):
                return False
            self._counters.add("aql_barrier_and" if kind == BARRIER_AND else "aql_barrier_or")
        elif kind == VENDOR_SPECIFIC and words[base] >> 16 & 0xFF == AMD_FORMAT_PM4_IB:
            self._indirect_buffer(slot)
            self._counters.add("aql_vendor")
        elif kind == VENDOR_SPECIFIC:
            raise UnsupportedPacket(self._message(slot, "vendor packet"), EC_QUEUE_PACKET_VENDOR_UNSUPPORTED)
        else:
            what = "kernel dispatch" if kind == KERNEL_DISPATCH else f"packet of type {kind}"
            raise UnsupportedPacket(self._message(slot, what), EC_QUEUE_PACKET_UNSUPPORTED)
        completion = words[base + 7]
        if completion:
            self._complete(completion, start)
        return True

    def _message(self, slot: int, what: str) -> str:
        return (
            f"{self.describe()}: the software node does not execute this {what} (packet {self._read}): "
            + self._bytes[slot * PACKET : (slot + 1) * PACKET].hex(" ", 4)
        )

    def _cell(self, signal: int):
        """The value of a signal, resolved through the page tables once for as long as nothing is freed."""
        if self._generation != self._space.generation:
            self._generation = self._space.generation
            self._cells.clear()
        cell = self._cells.get(signal)
        if cell is None:
            value = self._space.pointer(self.gpu, signal + SIGNAL_VALUE, 8, write=True)
            cell = self._cells[signal] = ffi.cast("int64_t *", value)
        return cell

    def _complete(self, signal: int, start: int) -> None:
        cell = self._cell(signal)
        times = ffi.cast("uint64_t *", cell) + (SIGNAL_START - SIGNAL_VALUE) // 8
        times[0], times[1] = start, self._driver.ticks()
        head = ffi.cast("uint64_t *", cell)
        mailbox, event = head[1], head[2] & 0xFFFFFFFF  # read before the count: afterwards the signal may be gone
        atomic_add64(cell, -1)
        if mailbox:
            ffi.cast("uint64_t *", self._space.pointer(self.gpu, mailbox, 8, write=True))[0] = event
            self._driver.events.set(event)

    def _indirect_buffer(self, slot: int) -> None:
        """A vendor packet that jumps to PM4 commands.  The runtime sends cache maintenance this way (after loading
        code); memory is coherent here, so it is checked and done."""
        jump = struct.unpack_from("<4I", self._bytes, slot * PACKET + 4)
        if jump[0] >> 8 & 0xFF != PM4_INDIRECT_BUFFER:
            raise UnsupportedPacket(self._message(slot, "PM4 jump"), EC_QUEUE_PACKET_VENDOR_UNSUPPORTED)
        address, count = jump[1] & ~3 | (jump[2] & 0xFFFF) << 32, jump[3] & 0xFFFFF
        commands = ffi.cast("uint32_t *", self._space.pointer(self.gpu, address, count * 4, write=False))
        at = 0
        while at < count:
            header = commands[at]
            if header >> 30 != PM4_TYPE3 or header >> 8 & 0xFF not in (PM4_NOP, PM4_ACQUIRE_MEM):
                words = " ".join(f"{commands[i]:08x}" for i in range(at, min(count, at + 8)))
                raise UnsupportedPacket(
                    self._message(slot, f"PM4 command [{words}]"), EC_QUEUE_PACKET_VENDOR_UNSUPPORTED
                )
            at += (header >> 16 & 0x3FFF) + 2

    def report(self, code: int) -> None:
        """Tell the runtime why the queue stopped: a bit in its error payload, and its error event."""
        if not self._error_area:
            return
        # The save area is the process's own memory, which the thunk filled in before it created the queue.
        header = ffi.cast("struct kfd_context_save_area_header *", self._error_area)
        if header.err_payload_addr:
            payload = ffi.cast("uint64_t *", header.err_payload_addr)
            payload[0] |= 1 << (code - 1)
        if header.err_event_id:
            self._driver.events.set(header.err_event_id)
