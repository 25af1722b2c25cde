"""A kernel dispatch: from an AQL packet and a kernel descriptor to waves with their registers set up.

Workgroups are handed to the XCCs in turn, and within an XCC to the CUs that the queue's mask allows, in turn
(round robin, as the hardware's dispatchers do).  Waves are executed in batches: as many at once as numpy likes, more
when what is resident only waits for others, up to what the part can hold.

Sources: LLVM's AMDGPU usage guide (kernel descriptor, initial register state); HSA specification (dispatch packet).
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import numpy as np

from ..uapi import ffi
from . import families  # noqa: F401  (defines the instructions)
from .batch import DONE, IDLE, Batch, WaveError
from .buffer import SCRATCH_BUFFER
from .memory import LaneMemory
from .program import Program
from .state import EXEC, LANES, Waves
from .symbols import kernel_name

if TYPE_CHECKING:
    from ..driver import Driver

WAVES_AT_ONCE = 512  # numpy is at its best from 128 to 512 waves
TURN = 0.002  # seconds a dispatch runs before the other queues get their turn
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
    """One AQL kernel dispatch packet in execution."""

    def __init__(self, driver: Driver, program: Program, gpu: int, packet: bytes, packet_address: int, queue: int,
                 placement):  # fmt: skip
        self._driver, self._program, self._gpu = driver, program, gpu
        self._space = driver.space
        (self._setup, wx, wy, wz, _, gx, gy, gz, self._private, self._group, self.kernel_object, self._kernarg) = (
            struct.unpack_from("<H3HH3I2I2Q", packet, 2)
        )
        self._packet_address, self._queue = packet_address, queue
        self._workgroup, self._grid = (wx, wy, wz), (gx, gy, gz)
        self._placement = placement  # (xcc, se, cu) of the n-th workgroup
        self._check()
        raw = bytes(ffi.buffer(self._space.pointer(gpu, self.kernel_object, 64, write=False), 64))
        self._descriptor = Descriptor(self.kernel_object, raw)
        self._counts = [-(-g // w) for g, w in zip(self._grid, self._workgroup)]
        self._total = self._counts[0] * self._counts[1] * self._counts[2]
        self._next = 0
        self._batches: list[Batch] = []
        self._memory = LaneMemory(driver.space, gpu, driver.coherence)
        self._spare: list[Waves] = []
        self._shapes: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}
        self._places = driver.spec.gpu.total_cus * self._places_of_cu()
        self._resident = 0  # workgroups
        self.steps = 0

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

    def step(self) -> tuple[bool, bool]:
        """One turn: (finished, whether anything moved but waiting)."""
        moved = False
        if all(batch.idle for batch in self._batches):
            moved = self._admit()
        for batch in list(self._batches):
            outcome = batch.run(time.perf_counter() + TURN / len(self._batches))
            batch.idle = outcome == IDLE
            moved |= not batch.idle
            if outcome == DONE:
                self._batches.remove(batch)
                self.steps += batch.waves.steps
                self._resident -= len(batch.workgroups)
                self._spare.append(batch.waves)
        return not self._batches and self._next == self._total, moved

    # -- admission -------------------------------------------------------------------------------------------------

    def _admit(self) -> bool:
        """Make the next workgroups resident."""
        members: list[tuple[tuple[int, int, int], np.ndarray, np.ndarray]] = []
        waves = 0
        while self._next < self._total:
            x = self._next % self._counts[0]
            y = self._next // self._counts[0] % self._counts[1]
            z = self._next // (self._counts[0] * self._counts[1])
            ids, exec_ = self._shape((x, y, z))
            if members and waves + len(exec_) > WAVES_AT_ONCE or self._resident + len(members) == self._places:
                break
            members.append(((x, y, z), ids, exec_))
            waves += len(exec_)
            self._next += 1
        if not members:
            return False
        self._batches.append(self._make_batch(members, waves))
        self._resident += len(members)
        return True

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

    def _waves(self, n: int) -> Waves:
        for i, waves in enumerate(self._spare):
            if waves.n == n:
                del self._spare[i]
                waves.status[:] = 0
                waves.scc[:] = False
                waves.steps = 0
                return waves
        return Waves(n, self._descriptor.vgprs, self._descriptor.agprs)

    def _make_batch(self, members, n: int) -> Batch:
        d, w = self._descriptor, self._waves(n)
        w.memory, w.clock = self._memory, self._driver.ticks
        w.apertures = self._driver.apertures
        w.lds, w.lds_size = np.zeros((len(members), self._group + 15 & ~15), np.uint8), self._group
        private = max(self._private, d.private_size)
        w.scratch = np.zeros((n, LANES, private + 3 & ~3), np.uint8) if private else None
        w.pc[:] = d.entry
        w.mode[:] = d.mode
        counts = [len(exec_) for _, _, exec_ in members]
        w.workgroup[:] = np.repeat(np.arange(len(members)), counts)
        w.vgpr[0] = np.concatenate([ids for _, ids, _ in members])
        at = self._set_user_sgprs(w, private)
        ids = np.repeat(np.array([m[0] for m in members], dtype=np.uint32), counts, axis=0)
        for axis in range(3):
            if d.workgroup_ids[axis]:
                w.sgpr[at] = ids[:, axis]
                at += 1
        for wanted in (d.workgroup_info, d.scratch_offset):
            if wanted:
                w.sgpr[at] = 0
                at += 1
        first = self._next - len(members)
        placed = np.array([self._placement(first + i) for i in range(len(members))], dtype=np.uint32)
        xcc, se, cu = np.repeat(placed, counts, axis=0).T
        w.xcc_id[:] = xcc
        w.hw_id[:] = cu << np.uint32(8) | se << np.uint32(13)  # CU_ID in bits 8-11, SE_ID in bits 13-15
        group_exec = np.concatenate([exec_ for _, _, exec_ in members])
        w.sgpr[EXEC], w.sgpr[EXEC + 1] = group_exec.astype(np.uint32), (group_exec >> np.uint64(32)).astype(np.uint32)
        w.lanes[:] = np.unpackbits(group_exec.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little").view(bool)
        return Batch(self._program, w, np.array([place for place, _, _ in members]))

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
