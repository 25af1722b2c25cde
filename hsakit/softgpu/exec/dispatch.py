"""A kernel dispatch: from an AQL packet and a kernel descriptor to waves with their registers set up, and on.

The machine of the clock (:mod:`..clock`) says which workgroups become resident where and when, and when a segment's
time is over; here they are executed, and what that costs is counted.  They run in batches, as many waves at once as
numpy likes.

Sources: LLVM's AMDGPU usage guide (kernel descriptor, initial register state); HSA specification (dispatch packet).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..clock import PARKED, Cost
from ..uapi import ffi
from . import batch as batches
from . import (
    beginning,
    costing,
    families,  # noqa: F401  (defines the instructions)
    sampling,
)
from .batch import Batch, WaveError
from .buffer import SCRATCH_BUFFER
from .fastforward import FastForward
from .log import StoreLog
from .memory import LaneMemory
from .placement import Placement
from .program import Program
from .residents import Residents
from .sampling import Sample
from .signature import signature
from .state import EXEC, LANES, Waves
from .symbols import kernel_name
from .tally import Count
from .trace import Trace

if TYPE_CHECKING:
    from ..clock import Cohort
    from ..driver import Driver

WAVES_AT_ONCE = 512  # numpy is at its best from 128 to 512 waves
MAX_WORKGROUP = 1024
REGISTERS = 512  # vector registers of a lane that the waves of a SIMD share (CDNA 2 and 3)

EC_DIM_INVALID, EC_GROUP_SIZE_INVALID, EC_CODE_INVALID, EC_WORKGROUP_SIZE_INVALID = 16, 17, 18, 21


class BadDispatch(Exception):
    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


class Descriptor:
    """kernel_descriptor_t; the fields used here stand at the same places in the older amd_kernel_code_t."""

    def __init__(self, address: int, raw: bytes):
        self.group_size, self.private_size = struct.unpack_from("<2I", raw, 0)
        (offset,) = struct.unpack_from("<q", raw, 16)
        rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<3I2H", raw, 44)
        self.entry = address + offset
        # MODE as a wave begins: rounding and denormals, DX10_CLAMP, IEEE, FP16_OVFL
        self.mode = rsrc1 >> 12 & 0xFF | (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9 | (rsrc1 >> 26 & 1) << 23
        self.registers = registers = ((rsrc1 & 0x3F) + 1) * 8
        accum_offset = ((rsrc3 & 0x3F) + 1) * 4
        # one register file: vector registers below accum_offset, accumulators above; old objects say nothing (0)
        self.vgprs = accum_offset if rsrc3 & 0x3F else registers
        self.agprs = max(registers - accum_offset, 0)
        self.user_sgprs = rsrc2 >> 1 & 0x1F
        self.scratch_offset = bool(rsrc2 & 1)
        self.workgroup_ids = [bool(rsrc2 >> bit & 1) for bit in (7, 8, 9)]
        self.workgroup_info = bool(rsrc2 >> 10 & 1)
        self.properties = properties
        self.preload_length, self.preload_offset = preload & 0x7F, preload >> 7


class Dispatch:
    """One AQL kernel dispatch packet in execution: a job of the clock's machine, but for what its end means."""

    def __init__(self, driver: Driver, program: Program, gpu: int, packet: bytes, packet_address: int, queue: int,
                 placement: Placement, meanwhile: Callable[[], None] = lambda: None):  # fmt: skip
        """``meanwhile`` is called every few milliseconds of execution; what it raises ends that."""
        self._driver, self._program, self._gpu = driver, program, gpu
        self._space, self._meanwhile = driver.space, meanwhile
        (self._setup, wx, wy, wz, _, gx, gy, gz, self._private, self._group, self.kernel_object, self._kernarg) = (
            struct.unpack_from("<H3HH3I2I2Q", packet, 2)
        )
        self._packet_address, self._queue = packet_address, queue
        self._workgroup, self._grid = (wx, wy, wz), (gx, gy, gz)
        self._placement = placement
        self._check()
        raw = bytes(ffi.buffer(self._space.pointer(gpu, self.kernel_object, 64, write=False), 64))
        self._descriptor = Descriptor(self.kernel_object, raw)
        self._counts = [-(-g // w) for g, w in zip(self._grid, self._workgroup)]
        self._shapes: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}
        self.workgroups = self._counts[0] * self._counts[1] * self._counts[2]
        self.per_cu = self._places_of_cu()
        self.cus = placement.allowed
        geometry = (self._grid, self._workgroup, self._group, self._private)
        alike = signature(self._space, gpu, raw, self._descriptor.entry, geometry, self._kernarg)
        self._alike = alike + bytes([gpu])
        self._signature = alike + repr(self.cus).encode()
        self._known = driver.executor.known
        self._reuse: costing.Reuse | None = self._known.get(self._signature)
        self._sampled: bytes | None = None  # what it is known by if some workgroups stand for the rest
        if driver.sampled and self.workgroups > sampling.WORKGROUPS and driver.executor.independent(
            program, gpu, self._descriptor.entry
        ):  # fmt: skip
            self._sampled = alike
        self._each: Cost | None = None  # what a workgroup costs then
        self._held: list[Batch] = []  # what those have stored
        on_an_xcc = sum(cus.bit_count() for cus in self.cus) / len(self.cus) * self.per_cu
        self._together = min(on_an_xcc, self.workgroups / len(self.cus))

    def describe(self, error: WaveError) -> str:
        """Where and why a wave stopped, for the queue's error."""
        d = self._descriptor
        name = kernel_name(self._space, self.kernel_object) or f"at {self.kernel_object:#x}"
        return (
            f"kernel {name}, {error.instruction!r} at +{error.address - d.entry:#x}, wave {error.wave} of workgroup "
            f"{error.workgroup}: {error}"
        )

    def _check(self) -> None:
        dims = self._setup & 3
        items = self._workgroup[0] * self._workgroup[1] * self._workgroup[2]
        if not 1 <= dims <= 3 or 0 in self._grid:
            raise BadDispatch(f"grid {self._grid} of {dims} dimensions", EC_DIM_INVALID)
        if not 1 <= items <= MAX_WORKGROUP:
            raise BadDispatch(f"workgroup {self._workgroup} of {items} work-items", EC_WORKGROUP_SIZE_INVALID)
        if self._group > self._driver.spec.gpu.lds_kib << 10:
            raise BadDispatch(f"{self._group} bytes of LDS", EC_GROUP_SIZE_INVALID)
        if not self.kernel_object:
            raise BadDispatch("no kernel object", EC_CODE_INVALID)

    def _places_of_cu(self) -> int:
        """Workgroups that a CU holds at a time, by their waves, registers and LDS."""
        part, d = self._driver.spec.gpu, self._descriptor
        waves = -(-self._workgroup[0] * self._workgroup[1] * self._workgroup[2] // LANES)
        slots = part.simds_per_cu * min(part.waves_per_simd, REGISTERS // d.registers)
        if waves > slots:
            raise BadDispatch(
                f"workgroup of {waves} waves with {d.registers} vector registers each: a CU holds {slots}",
                EC_WORKGROUP_SIZE_INVALID,
            )
        return min(slots // waves, (part.lds_kib << 10) // max(self._group, 1))

    # -- a job of the machine --------------------------------------------------------------------------------------

    def begin(self, cohort: Cohort):
        """These workgroups have just become resident."""
        if self._each is None and self._sampled is not None:
            sample = self._sample(cohort, self._sampled)
            if sample.large:
                self._each = self._price(sample.executed.seen_by(self._gpu, sample.gpu), sample.reuse, waits=2)
            else:
                self._sampled = None
        if self._each is not None:
            return self._each
        residents = cohort.data = Residents()
        return self._segment(cohort, residents, self._make_batches(cohort, residents), first=True)

    def _make_batches(self, cohort: Cohort, residents: Residents) -> Iterator[Batch]:
        """One after the other: most end in their first segment, and the next takes its registers."""
        members: list[tuple[int, int]] = []
        waves = 0
        order = sorted((number, position) for position, (number, _, _) in enumerate(cohort.placed))
        traced = [] if self._reuse else self._neighbours([number for number, _ in order])
        order.sort(key=lambda member: member[0] not in traced)  # those first, so that one batch has them
        for number, position in order:
            n = len(self._shape(self._place_in_grid(number))[1])
            if waves and waves + n > WAVES_AT_ONCE:
                yield residents.add(self._make_batch(cohort, members, traced))
                members, waves, traced = [], 0, []
            members.append((number, position))
            waves += n
        yield residents.add(self._make_batch(cohort, members, traced))

    def _neighbours(self, numbers: list[int]) -> list[int | None]:
        """The first workgroup, and those that differ from it by one in x, y or z."""
        first, there = numbers[0], set(numbers)
        x, y, z = self._place_in_grid(first)
        steps = ((x, 1), (y, self._counts[0]), (z, self._counts[0] * self._counts[1]))
        found: list[int | None] = [first]
        for (at, step), count in zip(steps, self._counts):
            found.append(first + step if at + 1 < count and first + step in there else None)
        return found

    def resume(self, cohort: Cohort):
        """The last segment's time is over, or memory has changed that it waited for."""
        if self._sampled is not None:
            for batch in self._held:
                batch.waves.memory.release()
            if self._held:
                self._held = []
                self._driver.processor.wrote()
            return None
        residents = cohort.data
        assert isinstance(residents, Residents)
        mine = residents.of(cohort)
        stopped = [batch for batch in mine if batch.outcome == batches.STOP]
        if stopped:
            host, now = self._driver.host, self._driver.timeline.now
            self._driver.processor.see_doorbells()
            if host.ahead:  # memory may already show what the host has yet to do
                return Cost(delay_ps=float(host.ahead))
            # A clock is read as it ticks.  So what a kernel times from there (a gate's offsets) has the same ticks in
            # every run, whenever the host's store came that let it go on.
            tick = host.aligned(now)
            if now < tick and any(batch.at_clock for batch in stopped):
                return Cost(delay_ps=float(tick - now))
        self._unpark(mine)
        for batch in mine:
            batch.waves.memory.release()
        self._driver.processor.wrote()
        if residents.ended(cohort):
            return None
        return self._segment(cohort, residents, [batch for batch in mine if batch.outcome != batches.DONE])

    def _sample(self, cohort: Cohort, key: bytes) -> Sample:
        """What some workgroups execute now, or did in an earlier dispatch on any GPU."""
        samples = self._driver.executor.samples
        if key in samples:
            return samples[key]
        count = Count()
        batches_of: list[Batch] = []
        for size, places in sampling.representatives((self._counts[0], self._counts[1], self._counts[2])):
            numbers = [x + self._counts[0] * (y + self._counts[1] * z) for x, y, z in places]
            traced = self._neighbours(numbers) if not batches_of else []
            batch = self._make_batch(cohort, [(number, 0) for number in numbers], traced)
            while batch.run(self._meanwhile) != batches.DONE:
                pass
            count.add(self._program, batch, size / len(numbers))
            self._learn(batch)
            self._put_back(batch)
            batches_of.append(batch)
        sample = samples[key] = Sample(self._gpu, count, self._reuse or costing.ALONE)
        if sample.large:
            self._held = batches_of
        else:  # all of it will be executed
            for batch in batches_of:
                batch.waves.memory.discard()
        return sample

    def _segment(self, cohort: Cohort, residents: Residents, some: Iterable[Batch], first: bool = False):
        count, mine = Count(), []
        cut = not first  # only the length of a segment made it end
        for batch in some:
            mine.append(batch)
            cut &= batch.outcome == batches.MORE
            if first and batch.key is not None:
                count.include(self._begin(batch, batch.key))
            else:
                batch.run(self._meanwhile)
                count.add(self._program, batch)
            self._learn(batch)
            if batch.outcome == batches.DONE:
                self._put_back(batch)
            elif batch.outcome == batches.PARKED:
                self._driver.executor.parked[batch] = None
        # The latency of one access is there whatever else a segment does; before the first one its code is fetched.
        waits = count.meets_memory + first if not cut else 0
        cost = self._price(count, self._reuse or costing.ALONE, waits)
        self._driver.processor.wrote()
        return residents.outcome(cohort, mine, cost, PARKED)

    def _begin(self, batch: Batch, key: bytes) -> Count:
        """The first segment of a batch."""
        known = self._driver.executor.beginnings
        count = known.recall(key, self._gpu, batch, self._packet_address) if batch.trace is None else None
        if count is None:
            batch.waves.memory.reads = []
            batch.run(self._meanwhile)
            again = beginning.same_each_time(self._program, batch.waves.executed)
            count = Count()
            count.add(self._program, batch)
            if again:
                known.keep(key, batch, self._packet_address, count, self.workgroups)
            batch.waves.memory.reads = None
        return count

    def _price(self, count: Count, reuse: costing.Reuse, waits: int) -> Cost:
        grid = self._counts[0], self._counts[1], self._counts[2]
        return costing.cost(
            self._driver.spec, self._driver.constants, self._gpu, count, reuse, grid, self._together, waits
        )

    def _learn(self, batch: Batch) -> None:
        """How the kernel's workgroups share what they load: from what some of them have loaded so far."""
        trace = batch.trace
        if trace is not None and (trace.loaded or trace.stored):
            self._reuse = self._known[self._signature] = costing.reuse(self._space, self._gpu, trace)
            batch.trace = batch.waves.trace = None

    def _unpark(self, some: Iterable[Batch]) -> None:
        for batch in some:
            self._driver.executor.parked.pop(batch, None)

    def forget(self) -> None:
        """It was cancelled."""
        parked = self._driver.executor.parked
        self._unpark([batch for batch in parked if batch.dispatch is self])

    def _put_back(self, batch: Batch) -> None:
        """Give the registers to others; what is left of the batch is its stores."""
        waves = batch.waves
        self._driver.executor.registers.give(waves)
        batch.waves = waves.ended()

    def _place_in_grid(self, number: int) -> tuple[int, int, int]:
        x, y = self._counts[:2]
        return number % x, number // x % y, number // (x * y)

    def _shape(self, at: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
        """(packed work-item ids [waves, 64], EXEC [waves]) of a workgroup; those at the grid's edge are smaller."""
        size = tuple(min(w, g - i * w) for w, g, i in zip(self._workgroup, self._grid, at))
        if size not in self._shapes:
            items = size[0] * size[1] * size[2]
            waves = -(-items // LANES)
            n = np.arange(waves * LANES, dtype=np.uint32)
            x, y, z = n % size[0], n // size[0] % size[1], n // (size[0] * size[1])
            packed = (x | y << np.uint32(10) | z << np.uint32(20)).reshape(waves, LANES)
            left = np.minimum(items - LANES * np.arange(waves), LANES)
            mask = np.array([(1 << int(k)) - 1 for k in left], dtype=np.uint64)
            self._shapes[size] = packed, mask
        return self._shapes[size]

    def _make_batch(self, cohort: Cohort, members: list[tuple[int, int]], traced: list[int | None]) -> Batch:
        """``members``: (workgroup, position in the cohort)."""
        places = [self._place_in_grid(number) for number, _ in members]
        shapes = [self._shape(at) for at in places]
        counts = [len(exec_) for _, exec_ in shapes]
        d = self._descriptor
        w = self._driver.executor.registers.take(sum(counts), d.vgprs, d.agprs)
        w.memory, w.clock = LaneMemory(self._space, self._gpu, StoreLog(), self._driver.coherence), self._driver.ticks
        w.apertures = self._driver.apertures
        w.lds, w.lds_size = np.zeros((len(members), self._group + 15 & ~15), np.uint8), self._group
        private = max(self._private, d.private_size)
        w.scratch = np.zeros((w.n, LANES, private + 3 & ~3), np.uint8) if private else None
        w.pc[:] = d.entry
        w.mode[:] = d.mode
        w.workgroup[:] = np.repeat(np.arange(len(members)), counts)
        w.vgpr[0] = np.concatenate([ids for ids, _ in shapes])
        at = self._set_user_sgprs(w, private)
        ids = np.repeat(np.array(places, dtype=np.uint32), counts, axis=0)
        for axis in range(3):
            if d.workgroup_ids[axis]:
                w.sgpr[at] = ids[:, axis]
                at += 1
        for wanted in (d.workgroup_info, d.scratch_offset):
            if wanted:
                w.sgpr[at] = 0
                at += 1
        cus = [cohort.placed[position][1:] for _, position in members]
        placed = np.array([(xcc, *self._placement.cus[xcc][cu]) for xcc, cu in cus], dtype=np.uint32)
        xcc, se, cu = np.repeat(placed, counts, axis=0).T
        w.xcc_id[:] = xcc
        w.hw_id[:] = cu << np.uint32(8) | se << np.uint32(13)  # CU_ID in bits 8-11, SE_ID in bits 13-15
        group_exec = np.concatenate([exec_ for _, exec_ in shapes])
        w.sgpr[EXEC], w.sgpr[EXEC + 1] = group_exec.astype(np.uint32), (group_exec >> np.uint64(32)).astype(np.uint32)
        w.lanes[:] = np.unpackbits(group_exec.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little").view(bool)
        batch = Batch(self._program, w, np.array(places), [number for number, _ in members], self)
        if self._driver.sampled:
            batch.forward = FastForward(self._program)
            if self._driver.coherence is None:  # which has to see every access
                packet = 4 * (d.properties & 1) if d.properties & 2 else None
                batch.key = beginning.key(self._alike, batch.numbers, w, at, packet)
        if traced:
            where = {number: i for i, number in enumerate(batch.numbers)}
            chosen = [None if t is None else where.get(t) for t in traced]
            batch.trace = w.trace = Trace(w.workgroup, chosen, self._driver.sampled)
        return batch

    def _set_user_sgprs(self, w: Waves, private: int) -> int:
        """The user SGPRs in their fixed order; returns where the system SGPRs begin."""
        d, at = self._descriptor, 0

        def put(*words: int) -> None:
            nonlocal at
            for word in words:
                w.sgpr[at] = word & 0xFFFFFFFF
                at += 1

        def pair(value: int) -> None:
            put(value, value >> 32)

        p = d.properties
        if p & 1:
            put(*SCRATCH_BUFFER)
        if p & 2:
            pair(self._packet_address)
        if p & 4:
            pair(self._queue)
        if p & 8:
            pair(self._kernarg)
        if p & 16:
            pair(0)
        if p & 32:
            pair(0)
        if p & 64:
            put(private)
        for axis in range(3):  # grid workgroup counts, only in old objects
            if p >> 7 + axis & 1:
                put(self._counts[axis])
        if d.preload_length:
            start = self._kernarg + 4 * d.preload_offset
            words = ffi.cast("uint32_t *", self._space.pointer(self._gpu, start, 4 * d.preload_length, write=False))
            put(*(words[i] for i in range(d.preload_length)))
            w.pc[:] = d.entry + 256  # code that need not load them begins there
        return max(at, d.user_sgprs)


__all__ = ["BadDispatch", "Descriptor", "Dispatch", "WaveError"]
