"""Scratch: a lane's private memory (ISA guide, "SCRATCH"; LLVM AMDGPU usage, "Private").

The node keeps it itself, an array [waves, lanes, bytes], and not in the backing memory that the runtime may have given
the queue: nobody but the lane can see it.
"""

from __future__ import annotations

import numpy as np

from .decode import Instruction
from .lanes import active, gather_registers, scatter_registers
from .lds import READS, VIEWS, WRITES
from .operands import scalar, vector
from .program import IllegalInstruction, only, op
from .rmw import Cells
from .state import LANES

U32 = np.uint32

LOADS = {
    "ubyte": READS["u8"],
    "sbyte": READS["i8"],
    "ushort": READS["u16"],
    "sshort": READS["i16"],
    "dword": READS["b32"],
    "dwordx2": READS["b64"],
    "dwordx3": READS["b96"],
    "dwordx4": READS["b128"],
    "ubyte_d16": READS["u8_d16"],
    "ubyte_d16_hi": READS["u8_d16_hi"],
    "sbyte_d16": READS["i8_d16"],
    "sbyte_d16_hi": READS["i8_d16_hi"],
    "short_d16": READS["u16_d16"],
    "short_d16_hi": READS["u16_d16_hi"],
}
STORES = {
    "byte": WRITES["b8"],
    "byte_d16_hi": WRITES["b8_d16_hi"],
    "short": WRITES["b16"],
    "short_d16_hi": WRITES["b16_d16_hi"],
    "dword": WRITES["b32"],
    "dwordx2": WRITES["b64"],
    "dwordx3": WRITES["b96"],
    "dwordx4": WRITES["b128"],
}


def scratch_places(g, offsets: np.ndarray, nbytes: int) -> np.ndarray:
    """int64 positions of per-lane byte offsets (active lanes, flat) in the scratch array."""
    size = 0 if g.w.scratch is None else g.w.scratch.shape[2]
    at = offsets.astype(np.int64)
    bad = (at < 0) | (at + nbytes > size)
    if bad.any():
        lane = int(np.flatnonzero(bad)[0])
        raise IllegalInstruction(f"scratch access to {nbytes} bytes at {int(at[lane])} of {size} that a lane has", lane)
    waves = np.arange(g.w.n)[g.sel]
    start = (waves[:, None] * LANES + np.arange(LANES)) * size
    return at + active(g, start)


def scratch_load(g, offsets: np.ndarray, nbytes: int) -> np.ndarray:
    at = scratch_places(g, offsets, nbytes)
    got = g.w.scratch.reshape(-1)[at[:, None] + np.arange(nbytes)]
    if nbytes < 4:
        return got.view(np.uint8 if nbytes == 1 else np.uint16).astype(U32)
    return got.view(U32)


def scratch_store(g, offsets: np.ndarray, values: np.ndarray, nbytes: int) -> None:
    at = scratch_places(g, offsets, nbytes)
    data = np.ascontiguousarray(values)
    if nbytes < 4:
        data = data.astype(np.uint8 if nbytes == 1 else np.uint16)
    g.w.scratch.reshape(-1)[at[:, None] + np.arange(nbytes)] = data.view(np.uint8)


def scratch_cells(g, offsets: np.ndarray, nbytes: int) -> Cells:
    """The words of 4 or 8 bytes at ``offsets``, for a read-modify-write through a flat address."""
    at = scratch_places(g, offsets, nbytes)
    bad = np.flatnonzero(at & nbytes - 1)
    if len(bad):
        lane = int(bad[0])
        raise IllegalInstruction(f"unaligned atomic on {nbytes} bytes of scratch at {int(offsets[lane])}", lane)
    return Cells(g.w.scratch.reshape(-1).view(VIEWS[nbytes]), at // nbytes, 0)


def _offset(instruction: Instruction, address, base):
    """Per-lane offsets: vector + scalar + immediate; either may be ``off``."""
    add = instruction.modifiers.get("offset", 0)
    parts = []
    if address.value != "off":
        parts.append(vector(address, "i32"))
    if base is not None and base.value != "off":
        inner = scalar(base, "i32")
        parts.append(lambda g: np.asarray(inner(g)).reshape(-1, 1))

    def read(g):
        total = np.full((g.n, LANES), add, np.int64)
        for part in parts:
            total += part(g)
        return active(g, total)

    return read


HINTS = ("glc", "slc", "dlc", "sc0", "sc1", "nt")


@op(*(f"scratch_load_{kind}" for kind in LOADS))
def load(instruction: Instruction):
    only(instruction, "offset", *HINTS)
    nbytes, how = LOADS[instruction.name.removeprefix("scratch_load_")]
    target, address, *base = instruction.operands
    at = _offset(instruction, address, base[0] if base else None)

    def step(g):
        if g.lanes.any():
            scatter_registers(g, target, scratch_load(g, at(g), nbytes), how)

    return step


@op(*(f"scratch_store_{kind}" for kind in STORES))
def store(instruction: Instruction):
    only(instruction, "offset", *HINTS)
    nbytes, shift = STORES[instruction.name.removeprefix("scratch_store_")]
    address, data, *base = instruction.operands
    at = _offset(instruction, address, base[0] if base else None)

    def step(g):
        if g.lanes.any():
            scratch_store(g, at(g), gather_registers(g, data, max(nbytes // 4, 1)) >> U32(shift), nbytes)

    return step
