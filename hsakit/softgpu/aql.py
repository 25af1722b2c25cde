"""An AQL queue: the packet processor's side of the HSA queue protocol.

Packets are taken in order, each at its time on the clock.  A packet is taken when the doorbell has announced it *and*
its header is no longer INVALID; afterwards its header is INVALID again and the read index has moved.  Barrier packets
hold the queue until their signals are zero.  Completing a packet writes its times into the completion signal, counts
the signal down, and wakes who waits through the signal's mailbox.  Layouts: HSA runtime specification 1.2, 2.8 and 2.9;
amd_hsa_queue.h, amd_hsa_signal.h.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .exec.batch import WaveError
from .exec.dispatch import Dispatch
from .exec.launch import BadDispatch
from .memory import MemoryFault, read_process, write_process
from .stopped import Stopped
from .uapi import (
    EC_QUEUE_PACKET_UNSUPPORTED,
    EC_QUEUE_PACKET_VENDOR_UNSUPPORTED,
    EC_QUEUE_WAVE_ILLEGAL_INSTRUCTION,
    atomic_add64,
    ffi,
)

if TYPE_CHECKING:
    from .clock import Running
    from .driver import Driver

VENDOR_SPECIFIC, INVALID, KERNEL_DISPATCH, BARRIER_AND, AGENT_DISPATCH, BARRIER_OR = 0, 1, 2, 3, 4, 5
AMD_FORMAT_PM4_IB, AMD_FORMAT_BARRIER_VALUE = 1, 2
CONDITIONS = (operator.eq, operator.ne, operator.lt, operator.ge)  # hsa_signal_condition_t
PM4_TYPE3 = 3
PM4_NOP, PM4_INDIRECT_BUFFER, PM4_ACQUIRE_MEM = 0x10, 0x3F, 0x58
PACKET = 64
BARRIER_BIT = 1 << 8

READ_INDEX = 128  # in amd_queue_t
SIGNAL_VALUE = 8  # in amd_signal_t; mailbox pointer, event id, start and end ticks are the words that follow


class UnsupportedPacket(Exception):
    """A packet the processor refuses: the queue stops and reports ``code`` to the runtime."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


HEADER, SIGNALS = "header", "signals"


class Kernel:
    """A dispatch in execution: a job of the clock's machine."""

    def __init__(self, queue: AqlQueue, packet: int, dispatch: Dispatch, completion: int, header: int):
        self._queue, self.packet, self.dispatch = queue, packet, dispatch
        self.completion, self.header = completion, header
        self.workgroups, self.per_cu = dispatch.workgroups, dispatch.per_cu
        self.cus: Sequence[int] = dispatch.cus
        self.start: int | None = None
        self.end = 0
        self.running: Running | None = None

    def begin(self, cohort):
        if self.start is None:
            self.start = self._queue.ticks()
        return self._call(self.dispatch.begin, cohort)

    def resume(self, cohort):
        return self._call(self.dispatch.resume, cohort)

    def _call(self, action, cohort):
        def act():
            try:
                return action(cohort)
            except WaveError as error:
                raise self._queue.kernel_error(self, error) from error

        return self._queue.act(act)  # None if it failed: then all of the kernel was cancelled

    def done(self) -> None:
        self.end = self._queue.ticks()
        self._queue.ended(self)


class AqlQueue:
    call = "packet"  # what the host does when it rings

    def __init__(self, driver: Driver, queue_id: int, gpu: int, args):
        self._driver, self.id, self.gpu = driver, queue_id, gpu
        self._space, self._counters = driver.space, driver.counters[gpu]
        self._ring_at, self._ring_size = args.ring_base_address, args.ring_size
        self._rptr_at, self._write_at = args.read_pointer_address, args.write_pointer_address
        self._packets = args.ring_size // PACKET
        self._cells: dict[int, object] = {}  # words of memory by address
        self._resolve()
        self._read = 0
        self._running: list[Kernel] = []  # launched, in order; they may end in another
        self._busy = False  # a packet is being processed
        self.waits = 0  # how often it has waited: tells one wait from another
        self._waits: str | None = None  # for its next packet's HEADER to be written, or for its SIGNALS
        self.doorbell = -1  # index of the last packet announced
        self._error_area = args.ctx_save_restore_address
        self.cu_mask: bytes | None = None
        self.priority = args.queue_priority
        save = self._space.find(self._error_area)
        self.save_area = (save.start, save.end) if save is not None and not save.handle else (0, 0)
        self.halted = self.evicted = self.closed = False
        costs = driver.constants
        self._launch_ps, self._barrier_ps = int(costs.launch_ns * 1000), int(costs.barrier_ns * 1000)
        self._complete_ps = int(costs.complete_ns * 1000)

    def _resolve(self) -> None:
        """Look the ring up in the page tables.  It and the signals found are good for one generation of the address
        space, as long as nothing is freed."""
        self._generation = self._space.generation
        self._cells.clear()
        ring = ffi.buffer(self._space.pointer(self.gpu, self._ring_at, self._ring_size, write=True), self._ring_size)
        self._bytes = memoryview(ring).cast("B")
        self._words, self._halves = self._bytes.cast("Q"), self._bytes.cast("H")
        self._rptr = ffi.cast("uint64_t *", self._space.pointer(self.gpu, self._rptr_at, 8, write=True))

    @property
    def pending(self) -> bool:
        return (self._read <= self.doorbell or bool(self._running)) and not self.halted and not self.evicted

    def ticks(self) -> int:
        return self._driver.ticks()

    def act(self, action):
        return self._driver.processor.act(self, action)

    def close(self) -> None:
        """Stop for good, whatever it was doing."""
        self.closed = True
        self._stop_kernels()

    def halt(self) -> None:
        """Something went wrong: it stays where it is."""
        self.halted = True
        self._stop_kernels()

    def _stop_kernels(self) -> None:
        for kernel in self._running:
            kernel.dispatch.forget()
            if kernel.running is not None:
                kernel.running.cancel()

    def describe(self) -> str:
        return f"AQL queue {self.id} (GPU {self.gpu})"

    def ring_doorbell(self, value: int) -> None:
        # Two producers may ring out of order: what was announced stays announced, and a lower number may have
        # overwritten a higher one before it was seen. So a ring announces all that the write index has, too: more than
        # hardware would take, see Q10 in docs/ledger.md.
        self.doorbell = max(self.doorbell, value)
        place = self._space.find(self._write_at)
        if place is not None and self.gpu in place.gpus:
            write = ffi.cast("uint64_t *", self._space.pointer(self.gpu, self._write_at, 8, write=False))
            self.doorbell = max(self.doorbell, write[0] - 1)

    def ring(self, value: int) -> None:
        self.ring_doorbell(value)
        self.advance()

    def advance(self) -> None:
        """Take the next packet if it can be taken now."""
        if self._generation != self._space.generation:
            self._resolve()
        while not self._busy and not self.halted and not self.evicted and self._read <= self.doorbell:
            slot = self._read % self._packets
            header = self._halves[slot * 32]
            if header & 0xFF == INVALID:  # announced by a later packet's producer, not written yet
                self._wait(HEADER)
                return
            if header & BARRIER_BIT and self._running:
                return
            self._busy, self._waits = True, None
            self._take(slot, header & 0xFF)

    def _wait(self, what: str) -> None:
        self._waits = what
        self.waits += 1
        self._driver.processor.wait(self)

    def _take(self, slot: int, kind: int) -> None:
        """Begin with a packet: it waits for memory, or it has all that it needs."""
        words, base = self._words, slot * 8
        if kind in (BARRIER_AND, BARRIER_OR):
            for signal in words[base + 1 : base + 6]:
                if signal:
                    self._wait(SIGNALS)
                    return
        elif kind == VENDOR_SPECIFIC:
            if words[base] >> 16 & 0xFF == AMD_FORMAT_BARRIER_VALUE and words[base + 1]:
                self._wait(SIGNALS)
                return
        elif kind != KERNEL_DISPATCH:
            raise UnsupportedPacket(self._message(slot, f"packet of type {kind}"), EC_QUEUE_PACKET_UNSUPPORTED)
        self._begin(slot, kind)

    def ready(self) -> bool:
        """Whether what the next packet waits for has come."""
        if self._generation != self._space.generation:
            self._resolve()
        if self.evicted or self._waits is None:
            return self._waits is None  # it went on by itself
        slot = self._read % self._packets
        kind = self._halves[slot * 32] & 0xFF
        if self._waits == HEADER:
            return kind != INVALID
        if kind == VENDOR_SPECIFIC:
            return self._condition_met(slot)
        base = slot * 8
        met = [self._word(s + SIGNAL_VALUE)[0] == 0 for s in self._words[base + 1 : base + 6] if s]
        return all(met) if kind == BARRIER_AND else any(met)

    def proceed(self, wait: int) -> None:
        """What it waited for in this wait has come."""
        if wait != self.waits:
            return
        waits, self._waits = self._waits, None
        if waits == HEADER:
            self.advance()
        elif waits == SIGNALS:
            if self.evicted:
                self._wait(SIGNALS)
                return
            slot = self._read % self._packets
            self._begin(slot, self._halves[slot * 32] & 0xFF)

    def _begin(self, slot: int, kind: int) -> None:
        """The packet has all that it needs."""
        if kind == KERNEL_DISPATCH:
            self._driver.processor.at(self, self._launch_ps, lambda: self._launch(slot))
            return
        start = self.ticks()
        self._driver.processor.at(self, self._barrier_ps, lambda: self._finish(slot, start))

    def _finish(self, slot: int, start: int) -> None:
        """The end of a packet that launches nothing."""
        if self._generation != self._space.generation:
            self._resolve()
        words, base, kind = self._words, slot * 8, self._halves[slot * 32] & 0xFF
        if kind == VENDOR_SPECIFIC:
            self._vendor(slot, words[base] >> 16 & 0xFF)
            self._counters.add("aql_vendor")
        else:
            self._counters.add("aql_barrier_and" if kind == BARRIER_AND else "aql_barrier_or")
        if self._driver.coherence is not None:
            self._driver.coherence.kernel_begins(self.gpu, self._halves[slot * 32])
            self._driver.coherence.kernel_ends(self.gpu, self._halves[slot * 32])
        completion = words[base + 7]
        if completion:
            self._complete(completion, start, self.ticks())
        self._retire(slot)

    def _retire(self, slot: int) -> None:
        self._halves[slot * 32] = INVALID
        self._read += 1
        self._publish_read()
        self._busy = False
        self.advance()

    def _publish_read(self) -> None:
        """A kernel may read its dispatch packet for as long as it runs: its slot is not given back before."""
        self._rptr[0] = self._running[0].packet if self._running else self._read

    def _launch(self, slot: int) -> None:
        if self._generation != self._space.generation:
            self._resolve()
        packet = bytes(self._bytes[slot * PACKET : (slot + 1) * PACKET])
        where = self._ring_at + slot * PACKET
        queue = self._rptr_at - READ_INDEX
        try:
            dispatch = self._driver.executor.launch(self.gpu, packet, where, queue, self.cu_mask, self._meanwhile)
        except BadDispatch as bad:
            raise UnsupportedPacket(self._message(slot, f"dispatch ({bad})"), bad.code) from None
        header = self._halves[slot * 32]
        if self._driver.coherence is not None:
            self._driver.coherence.kernel_begins(self.gpu, header)
        kernel = Kernel(self, self._read, dispatch, self._words[slot * 8 + 7], header)
        self._running.append(kernel)
        self._counters.add("aql_dispatch")
        kernel.running = self._driver.machine.dispatch(self.gpu, kernel, self.priority)
        self._retire(slot)

    def _meanwhile(self) -> None:
        self._driver.processor.meanwhile()
        if self.closed or self.halted:
            raise Stopped

    def ended(self, kernel: Kernel) -> None:
        self._driver.processor.at(self, self._complete_ps, lambda: self._end(kernel))

    def _end(self, kernel: Kernel) -> None:
        if self._generation != self._space.generation:
            self._resolve()
        self._running.remove(kernel)
        if self._driver.coherence is not None:
            self._driver.coherence.kernel_ends(self.gpu, kernel.header)
        if kernel.completion:
            assert kernel.start is not None
            self._complete(kernel.completion, kernel.start, kernel.end)
        self._publish_read()
        self.advance()

    def kernel_error(self, kernel: Kernel, error: WaveError) -> Exception:
        text = kernel.dispatch.describe(error)
        if isinstance(error.cause, MemoryFault):
            return error.cause.told(text)
        return UnsupportedPacket(f"{self.describe()}: {text}", EC_QUEUE_WAVE_ILLEGAL_INSTRUCTION)

    def _message(self, slot: int, what: str) -> str:
        return (
            f"{self.describe()}: the software node does not execute this {what} (packet {self._read}): "
            + self._bytes[slot * PACKET : (slot + 1) * PACKET].hex(" ", 4)
        )

    def _word(self, address: int):
        """A word that the packet processor may write, of a signal or a mailbox; looked up once."""
        cell = self._cells.get(address)
        if cell is None:
            cell = ffi.cast("uint64_t *", self._space.pointer(self.gpu, address, 8, write=True))
            self._cells[address] = cell
        return cell

    def _complete(self, signal: int, start: int, end: int) -> None:
        value = self._word(signal + SIGNAL_VALUE)
        mailbox, event = value[1], value[2] & 0xFFFFFFFF  # read before the count: afterwards the signal may be gone
        value[3], value[4] = start, end
        atomic_add64(value, -1)
        if mailbox:
            self._word(mailbox)[0] = event
            self._driver.events.set(event)
        self._driver.processor.wrote()

    def _vendor(self, slot: int, format_: int) -> None:
        """A packet of AMD's own."""
        if format_ == AMD_FORMAT_PM4_IB:
            self._indirect_buffer(slot)
        elif format_ == AMD_FORMAT_BARRIER_VALUE:
            self._condition(slot)
        else:
            raise UnsupportedPacket(self._message(slot, "vendor packet"), EC_QUEUE_PACKET_VENDOR_UNSUPPORTED)

    def _condition(self, slot: int) -> tuple[int, int, int, int]:
        """(signal, value, mask, condition) of a barrier on a value, with which HIP orders its streams on gfx90a."""
        signal, value, mask, condition = struct.unpack_from("<QqqI", self._bytes, slot * PACKET + 8)
        if condition >= len(CONDITIONS):
            message = self._message(slot, f"barrier with condition {condition}")
            raise UnsupportedPacket(message, EC_QUEUE_PACKET_VENDOR_UNSUPPORTED)
        return signal, value, mask, condition

    def _condition_met(self, slot: int) -> bool:
        signal, value, mask, condition = self._condition(slot)
        now = ffi.cast("int64_t *", self._word(signal + SIGNAL_VALUE))[0]
        return CONDITIONS[condition](now & mask, value)

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
        # The thunk filled the save area in before it created the queue; it is the process's, which may have freed it.
        area = read_process(self._error_area, ffi.sizeof("struct kfd_context_save_area_header"))
        if area is None:
            return
        header = ffi.from_buffer("struct kfd_context_save_area_header *", area)
        payload = read_process(header.err_payload_addr, 8)
        if payload is not None:
            reasons = int.from_bytes(payload, "little") | 1 << (code - 1)
            write_process(header.err_payload_addr, reasons.to_bytes(8, "little"))
        if header.err_event_id:
            self._driver.events.set(header.err_event_id)
