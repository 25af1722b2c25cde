"""Local data share: a workgroup's own memory (ISA guide, "LDS", "DS" format).

One array holds the LDS of all resident workgroups; a lane's address is an offset into its own workgroup's part.  An
address past what the dispatch asked for is refused (hardware reads 0 and drops writes, which hides the mistake).
"""

from __future__ import annotations

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


def lds_places(g, offsets: np.ndarray, nbytes: int) -> np.ndarray:
    """int64 positions, in the array of all LDS, of flat per-lane byte offsets (active lanes)."""
    limit = g.w.lds_size - nbytes
    at = offsets.astype(np.int64)
    if len(at) and int(at.max()) > limit:
        lane = int(np.flatnonzero(at > limit)[0])
        raise IllegalInstruction(
            f"LDS access to {nbytes} bytes at {int(at[lane])} of {g.w.lds_size} that the dispatch asked for", lane
        )
    base = g.w.workgroup[g.sel] * g.w.lds.shape[1]
    if g.full:
        return (at.reshape(g.n, LANES) + base[:, None]).reshape(-1)
    return at + np.broadcast_to(base[:, None], (g.n, LANES))[g.lanes]


def _unit(at: np.ndarray, nbytes: int) -> int:
    """The widest power of two that all places and the size allow."""
    unit = nbytes & -nbytes
    low = int(np.bitwise_or.reduce(at)) if len(at) else 0
    while low & unit - 1:
        unit >>= 1
    return min(unit, 8)


def lds_cells(g, offsets: np.ndarray, nbytes: int) -> Cells:
    """The words of 4 or 8 bytes at ``offsets``, for a read-modify-write."""
    at = lds_places(g, offsets, nbytes)
    bad = np.flatnonzero(at & nbytes - 1)
    if len(bad):
        lane = int(bad[0])
        raise IllegalInstruction(f"unaligned atomic on {nbytes} bytes of LDS at {int(offsets[lane])}", lane)
    return Cells(g.w.lds.reshape(-1).view(VIEWS[nbytes]), at // nbytes, 0)


VIEWS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def lds_load(g, offsets: np.ndarray, nbytes: int) -> np.ndarray:
    """[lanes, words] of uint32; below 4 bytes, zero-extended."""
    at = lds_places(g, offsets, nbytes)
    unit = _unit(at, nbytes)
    memory = g.w.lds.reshape(-1).view(VIEWS[unit])
    if unit == nbytes:
        got = memory[at // unit][:, None]
    else:
        got = memory[(at // unit)[:, None] + np.arange(nbytes // unit)]
    if nbytes < 4:
        return np.ascontiguousarray(got).view(VIEWS[nbytes]).astype(U32)
    return np.ascontiguousarray(got).view(U32)


def lds_store(g, offsets: np.ndarray, values: np.ndarray, nbytes: int) -> None:
    g.w.writes += 1
    at = lds_places(g, offsets, nbytes)
    unit = _unit(at, nbytes)
    memory = g.w.lds.reshape(-1).view(VIEWS[unit])
    data = np.ascontiguousarray(values if nbytes >= 4 else values.astype(VIEWS[nbytes])).view(VIEWS[unit])
    memory[(at // unit)[:, None] + np.arange(nbytes // unit)] = data


def lds_address(instruction: Instruction, o, key: str = "offset", scale: int = 1):
    read, add = vector(o, "u32"), U32(instruction.modifiers.get(key, 0) * scale)
    return lambda g: active(g, read(g)).astype(np.int64) + int(add)


@op(*(f"ds_read_{kind}" for kind in READS))
def ds_read(instruction: Instruction):
    only(instruction, "offset")
    nbytes, how = READS[instruction.name.removeprefix("ds_read_")]
    target, at = instruction.operands[0], lds_address(instruction, instruction.operands[1])

    def step(g):
        if g.lanes.any():
            scatter_registers(g, target, lds_load(g, at(g), nbytes), how)

    return step


@op(*(f"ds_write_{kind}" for kind in WRITES))
def ds_write(instruction: Instruction):
    only(instruction, "offset")
    nbytes, shift = WRITES[instruction.name.removeprefix("ds_write_")]
    at, data = lds_address(instruction, instruction.operands[0]), instruction.operands[1]

    def step(g):
        if g.lanes.any():
            lds_store(g, at(g), gather_registers(g, data, max(nbytes // 4, 1)) >> U32(shift), nbytes)

    return step


def _pair(instruction: Instruction) -> tuple[int, int]:
    """(bytes, scale of the two offsets) of a ds_read2/ds_write2 form."""
    nbytes = 8 if instruction.name.endswith("b64") else 4
    return nbytes, nbytes * 64 if "st64" in instruction.name else nbytes


@op("ds_read2_b32", "ds_read2_b64", "ds_read2st64_b32", "ds_read2st64_b64")
def ds_read2(instruction: Instruction):
    only(instruction, "offset0", "offset1")
    nbytes, scale = _pair(instruction)
    target, address = instruction.operands
    first, second = (lds_address(instruction, address, key, scale) for key in ("offset0", "offset1"))

    def step(g):
        if g.lanes.any():
            data = np.concatenate([lds_load(g, at(g), nbytes) for at in (first, second)], axis=1)
            scatter_registers(g, target, data)

    return step


@op("ds_write2_b32", "ds_write2_b64", "ds_write2st64_b32", "ds_write2st64_b64")
def ds_write2(instruction: Instruction):
    only(instruction, "offset0", "offset1")
    nbytes, scale = _pair(instruction)
    address, *data = instruction.operands
    places = [lds_address(instruction, address, key, scale) for key in ("offset0", "offset1")]

    def step(g):
        if g.lanes.any():
            for at, o in zip(places, data):
                lds_store(g, at(g), gather_registers(g, o, nbytes // 4), nbytes)

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
