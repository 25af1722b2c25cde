"""What a dispatch packet and a kernel descriptor ask for, and the registers with which waves begin.

Sources: LLVM's AMDGPU usage guide (kernel descriptor, initial register state); HSA specification (dispatch packet).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from ..uapi import ffi
from .buffer import SCRATCH_BUFFER
from .state import EXEC, LANES, Waves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..driver import Driver

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


class Launch:
    """A kernel on a GPU, its grid and arguments.  Raises BadDispatch for what no part could run."""

    def __init__(self, driver: Driver, gpu: int, packet: bytes, packet_address: int, queue: int):
        self._driver, self._gpu, self._queue = driver, gpu, queue
        (self._setup, wx, wy, wz, _, gx, gy, gz, private, self.group, self.kernel_object, self.kernarg) = (
            struct.unpack_from("<H3HH3I2I2Q", packet, 2)
        )
        self.packet_address = packet_address
        self._workgroup, self._grid = (wx, wy, wz), (gx, gy, gz)
        self._check()
        self.raw = bytes(ffi.buffer(driver.space.pointer(gpu, self.kernel_object, 64, write=False), 64))
        self.descriptor = Descriptor(self.kernel_object, self.raw)
        self._private = max(private, self.descriptor.private_size)
        x, y, z = (-(-g // w) for g, w in zip(self._grid, self._workgroup))
        self.counts = x, y, z
        self.workgroups = x * y * z
        self.per_cu = self._places_of_cu()
        self.geometry = (self._grid, self._workgroup, self.group, private)
        self._shapes: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}

    def _check(self) -> None:
        dims = self._setup & 3
        items = self._workgroup[0] * self._workgroup[1] * self._workgroup[2]
        if not 1 <= dims <= 3 or 0 in self._grid:
            raise BadDispatch(f"grid {self._grid} of {dims} dimensions", EC_DIM_INVALID)
        if not 1 <= items <= MAX_WORKGROUP:
            raise BadDispatch(f"workgroup {self._workgroup} of {items} work-items", EC_WORKGROUP_SIZE_INVALID)
        if self.group > self._driver.spec.gpu.lds_kib << 10:
            raise BadDispatch(f"{self.group} bytes of LDS", EC_GROUP_SIZE_INVALID)
        if not self.kernel_object:
            raise BadDispatch("no kernel object", EC_CODE_INVALID)

    def _places_of_cu(self) -> int:
        """Workgroups that a CU holds at a time, by their waves, registers and LDS."""
        part, d = self._driver.spec.gpu, self.descriptor
        waves = -(-self._workgroup[0] * self._workgroup[1] * self._workgroup[2] // LANES)
        slots = part.simds_per_cu * min(part.waves_per_simd, REGISTERS // d.registers)
        if waves > slots:
            raise BadDispatch(
                f"workgroup of {waves} waves with {d.registers} vector registers each: a CU holds {slots}",
                EC_WORKGROUP_SIZE_INVALID,
            )
        return min(slots // waves, (part.lds_kib << 10) // max(self.group, 1))

    def place(self, number: int) -> tuple[int, int, int]:
        """Where in the grid a workgroup is."""
        x, y = self.counts[:2]
        return number % x, number // x % y, number // (x * y)

    def number(self, x: int, y: int, z: int) -> int:
        """The workgroup at a place in the grid."""
        return x + self.counts[0] * (y + self.counts[1] * z)

    def waves_of(self, number: int) -> int:
        return len(self._shape(self.place(number))[1])

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

    @property
    def packet_registers(self) -> int | None:
        """The first of the two scalar registers in which a wave is told where its packet is."""
        return 4 * (self.descriptor.properties & 1) if self.descriptor.properties & 2 else None

    def begin(self, places: Sequence[tuple[int, int, int]], cus: Sequence[tuple[int, int, int]]) -> tuple[Waves, int]:
        """The waves of workgroups at these places in the grid, on these CUs (XCC, shader engine, CU), but for what they
        access memory with; and how many scalar registers are set."""
        shapes = [self._shape(at) for at in places]
        counts = [len(exec_) for _, exec_ in shapes]
        d = self.descriptor
        w = self._driver.executor.registers.take(sum(counts), d.vgprs, d.agprs)
        w.apertures = self._driver.apertures
        w.lds, w.lds_size = np.zeros((len(places), self.group + 15 & ~15), np.uint8), self.group
        w.scratch = np.zeros((w.n, LANES, self._private + 3 & ~3), np.uint8) if self._private else None
        w.pc[:] = d.entry
        w.mode[:] = d.mode
        w.workgroup[:] = np.repeat(np.arange(len(places)), counts)
        w.vgpr[0] = np.concatenate([ids for ids, _ in shapes])
        at = self._set_user_sgprs(w)
        ids = np.repeat(np.array(places, dtype=np.uint32), counts, axis=0)
        for axis in range(3):
            if d.workgroup_ids[axis]:
                w.sgpr[at] = ids[:, axis]
                at += 1
        for wanted in (d.workgroup_info, d.scratch_offset):
            if wanted:
                w.sgpr[at] = 0
                at += 1
        xcc, se, cu = np.repeat(np.array(cus, dtype=np.uint32), counts, axis=0).T
        w.xcc_id[:] = xcc
        w.hw_id[:] = cu << np.uint32(8) | se << np.uint32(13)  # CU_ID in bits 8-11, SE_ID in bits 13-15
        group_exec = np.concatenate([exec_ for _, exec_ in shapes])
        w.sgpr[EXEC], w.sgpr[EXEC + 1] = group_exec.astype(np.uint32), (group_exec >> np.uint64(32)).astype(np.uint32)
        w.lanes[:] = np.unpackbits(group_exec.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little").view(bool)
        return w, at

    def _set_user_sgprs(self, w: Waves) -> int:
        """The user SGPRs in their fixed order; returns where the system SGPRs begin."""
        d, at = self.descriptor, 0

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
            pair(self.packet_address)
        if p & 4:
            pair(self._queue)
        if p & 8:
            pair(self.kernarg)
        if p & 16:
            pair(0)
        if p & 32:
            pair(0)
        if p & 64:
            put(self._private)
        for axis in range(3):  # grid workgroup counts, only in old objects
            if p >> 7 + axis & 1:
                put(self.counts[axis])
        if d.preload_length:
            start = self.kernarg + 4 * d.preload_offset
            where = self._driver.space.pointer(self._gpu, start, 4 * d.preload_length, write=False)
            words = ffi.cast("uint32_t *", where)
            put(*(words[i] for i in range(d.preload_length)))
            w.pc[:] = d.entry + 256  # code that need not load them begins there
        return max(at, d.user_sgprs)
