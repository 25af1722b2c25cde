"""Local data share: a workgroup's own memory (ISA guide, "LDS", "DS" format).

One array holds the LDS of all resident workgroups; a lane's address is an offset into its own workgroup's part.  An
address past what the dispatch asked for is refused (hardware reads 0 and drops writes, which hides the mistake).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .decode import Instruction
from .lanes import active, gather_registers, scatter_registers
from .operands import vector
from .program import IllegalInstruction, only, op
from .rmw import Cells
from .state import LANES

U32, U64 = np.uint32, np.uint64

# name: (bytes, how the dword is made of them: see lanes.combine)
READS = {
    "u8": (1, None),
    "i8": (1, "sext8"),
    "u16": (2, None),
    "i16": (2, "sext16"),
    "b32": (4, None),
    "b64": (8, None),
    "b96": (12, None),
    "b128": (16, None),
    "u8_d16": (1, "low"),
    "u8_d16_hi": (1, "high"),
    "i8_d16": (1, "sext8 low"),
    "i8_d16_hi": (1, "sext8 high"),
    "u16_d16": (2, "low"),
    "u16_d16_hi": (2, "high"),
}
WRITES = {
    "b8": (1, 0),
    "b8_d16_hi": (1, 16),
    "b16": (2, 0),
    "b16_d16_hi": (2, 16),
    "b32": (4, 0),
    "b64": (8, 0),
    "b96": (12, 0),
    "b128": (16, 0),
}


VIEWS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


def lds_places(g, offsets: np.ndarray, nbytes: int, add: int = 0) -> np.ndarray:
    """int64 positions, in the array of all LDS, of flat per-lane byte offsets (active lanes) + ``add``; a new array."""
    limit = g.w.lds_size - nbytes - add
    if int(offsets.max()) > limit:
        lane = int(np.flatnonzero(offsets > limit)[0]) if limit >= 0 else 0
        at = int(offsets[lane]) + add
        why = f"LDS access to {nbytes} bytes at {at} of {g.w.lds_size} that the dispatch asked for"
        raise IllegalInstruction(why, lane)
    base = (g.w.workgroup[g.sel] * g.w.lds.shape[1] + add)[:, None]
    if g.full:
        return np.add(offsets.reshape(g.n, LANES), base, dtype=np.int64, casting="unsafe").reshape(-1)
    return offsets.astype(np.int64) + np.broadcast_to(base, (g.n, LANES))[g.lanes]


def _elements(g, at: np.ndarray, nbytes: int) -> tuple[np.ndarray, np.ndarray]:
    """All LDS, as elements as large as places and size allow, and where in it each lane's are."""
    unit = min(nbytes & -nbytes, 16)
    low = int(np.bitwise_or.reduce(at)) & unit - 1
    if low:
        unit = low & -low
    if unit > 1:
        at >>= unit.bit_length() - 1
    memory = g.w.lds.reshape(-1).view(VIEWS[unit])
    return memory, at if unit == nbytes else at[:, None] + np.arange(nbytes // unit)


def lds_load(g, offsets: np.ndarray, nbytes: int, add: int = 0) -> np.ndarray:
    """[lanes, words] of uint32; below 4 bytes, zero-extended."""
    memory, index = _elements(g, lds_places(g, offsets, nbytes, add), nbytes)
    got = memory[index]
    if nbytes < 4:
        return got.reshape(-1).view(VIEWS[nbytes]).astype(U32)[:, None]
    return got.view(U32).reshape(len(offsets), nbytes // 4)


def lds_store(g, offsets: np.ndarray, values: np.ndarray, nbytes: int, add: int = 0) -> None:
    memory, index = _elements(g, lds_places(g, offsets, nbytes, add), nbytes)
    if nbytes < 4:
        values = values.astype(VIEWS[nbytes])
    memory[index] = np.ascontiguousarray(values).view(memory.dtype).reshape(index.shape)


def lds_cells(g, offsets: np.ndarray, nbytes: int, add: int = 0) -> Cells:
    """The words of 4 or 8 bytes at ``offsets`` + ``add``, for a read-modify-write."""
    at = lds_places(g, offsets, nbytes, add)
    bad = np.flatnonzero(at & nbytes - 1)
    if len(bad):
        lane = int(bad[0])
        raise IllegalInstruction(f"unaligned atomic on {nbytes} bytes of LDS at {int(offsets[lane]) + add}", lane)
    return Cells(g.w.lds.reshape(-1).view(VIEWS[nbytes]), at // nbytes, 0)


@op(*(f"ds_read_{kind}" for kind in READS))
def ds_read(instruction: Instruction):
    only(instruction, "offset")
    nbytes, how = READS[instruction.name.removeprefix("ds_read_")]
    (target, address), add = instruction.operands, instruction.modifiers.get("offset", 0)

    def step(g):
        if g.lanes.any():
            scatter_registers(g, target, lds_load(g, active(g, g.v(address.index)), nbytes, add), how)

    return step


@op(*(f"ds_write_{kind}" for kind in WRITES))
def ds_write(instruction: Instruction):
    only(instruction, "offset")
    nbytes, shift = WRITES[instruction.name.removeprefix("ds_write_")]
    (address, data), add = instruction.operands, instruction.modifiers.get("offset", 0)

    def step(g):
        if g.lanes.any():
            values = gather_registers(g, data, max(nbytes // 4, 1))
            lds_store(g, active(g, g.v(address.index)), values >> U32(shift) if shift else values, nbytes, add)

    return step


def pair(instruction: Instruction) -> tuple[int, list[int]]:
    """(bytes, the two offsets) of a ds_read2/ds_write2 form."""
    nbytes = 8 if instruction.name.endswith("b64") else 4
    scale = nbytes * 64 if "st64" in instruction.name else nbytes
    return nbytes, [instruction.modifiers.get(key, 0) * scale for key in ("offset0", "offset1")]


@op("ds_read2_b32", "ds_read2_b64", "ds_read2st64_b32", "ds_read2st64_b64")
def ds_read2(instruction: Instruction):
    only(instruction, "offset0", "offset1")
    nbytes, adds = pair(instruction)
    target, address = instruction.operands
    targets = target, replace(target, index=target.index + nbytes // 4)

    def step(g):
        if g.lanes.any():
            at = active(g, g.v(address.index))
            loaded = [lds_load(g, at, nbytes, add) for add in adds]  # both before the address may be overwritten
            for o, data in zip(targets, loaded):
                scatter_registers(g, o, data)

    return step


@op("ds_write2_b32", "ds_write2_b64", "ds_write2st64_b32", "ds_write2st64_b64")
def ds_write2(instruction: Instruction):
    only(instruction, "offset0", "offset1")
    nbytes, adds = pair(instruction)
    address, *data = instruction.operands

    def step(g):
        if g.lanes.any():
            at = active(g, g.v(address.index))
            for o, add in zip(data, adds):
                lds_store(g, at, gather_registers(g, o, nbytes // 4), nbytes, add)

    return step


# -- between lanes, through the LDS crossbar ---------------------------------------------------------------------------


@op("ds_bpermute_b32")
def ds_bpermute(instruction: Instruction):
    target, index, data = instruction.operands
    add = instruction.modifiers.get("offset", 0)
    read_index, read = vector(index, "u32"), vector(data, "u32")

    def step(g):
        lane = (np.broadcast_to(read_index(g), (g.n, LANES)) + U32(add)) >> U32(2) & U32(63)
        source = np.where(g.lanes, np.broadcast_to(read(g), (g.n, LANES)), U32(0))  # an inactive source reads as 0
        g.set_v(target.index, np.take_along_axis(source, lane.astype(np.int64), axis=1), target.kind)

    return step


@op("ds_permute_b32")
def ds_permute(instruction: Instruction):
    target, index, data = instruction.operands
    add = instruction.modifiers.get("offset", 0)
    read_index, read = vector(index, "u32"), vector(data, "u32")

    def step(g):
        lane = ((np.broadcast_to(read_index(g), (g.n, LANES)) + U32(add)) >> U32(2) & U32(63)).astype(np.int64)
        value = np.broadcast_to(read(g), (g.n, LANES))
        out = np.zeros((g.n, LANES), U32)
        wave, source = np.nonzero(g.lanes)  # in lane order: the highest writer wins
        out[wave, lane[wave, source]] = value[wave, source]
        g.set_v(target.index, out, target.kind)

    return step


def _swizzle(pattern: int) -> np.ndarray:
    lane = np.arange(LANES)
    if pattern & 0x8000:
        return (lane & ~3) + np.array([pattern >> 2 * i & 3 for i in range(4)])[lane & 3]
    and_, or_, xor = pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31
    return (lane & 32) + (((lane & 31) & and_ | or_) ^ xor)


@op("ds_swizzle_b32")
def ds_swizzle(instruction: Instruction):
    target, data = instruction.operands
    read = vector(data, "u32")
    offset = instruction.modifiers.get("offset", 0)
    if isinstance(offset, str):
        offset = parse_swizzle(offset)
    lanes = _swizzle(offset)

    def step(g):
        value = np.broadcast_to(read(g), (g.n, LANES))[:, lanes]
        g.set_v(target.index, np.where(g.lanes[:, lanes], value, U32(0)), target.kind)

    return step


def parse_swizzle(text: str) -> int:
    """LLVM prints the pattern as swizzle(MODE, ...)."""
    mode, *numbers = [part.strip() for part in text[len("swizzle(") : -1].split(",")]
    if mode == "QUAD_PERM":
        return 0x8000 | sum(int(n) << 2 * i for i, n in enumerate(numbers))
    if mode == "SWAP":
        return int(numbers[0]) << 10 | 31
    if mode == "REVERSE":
        return int(numbers[0]) - 1 << 10 | 31
    if mode == "BROADCAST":
        size, lane = int(numbers[0]), int(numbers[1])
        return 32 - size | lane << 5
    if mode == "BITMASK_PERM":
        mask = numbers[0].strip('"')
        and_ = or_ = xor = 0
        for c in mask:
            and_, or_, xor = and_ << 1, or_ << 1, xor << 1
            if c in "pi":
                and_ |= 1
                xor |= c == "i"
            elif c == "1":
                or_ |= 1
        return and_ | or_ << 5 | xor << 10
    raise IllegalInstruction(f"ds_swizzle {text}")
