"""Vector loads and stores to global and flat addresses (ISA guide, "FLAT", "GLOBAL").

Flat addresses reach LDS and scratch through their apertures; :mod:`lds` and :mod:`scratch` serve those lanes.
"""

from __future__ import annotations

import numpy as np

from .decode import Instruction, Operand
from .operands import scalar, vector
from .program import IllegalInstruction, op, only

U32, U64 = np.uint32, np.uint64
CACHE_HINTS = ("glc", "slc", "dlc", "sc0", "sc1", "nt")

# name: (bytes in memory, how the dword of a load is made of them)
LOADS = {
    "ubyte": (1, None),
    "sbyte": (1, "sext8"),
    "ushort": (2, None),
    "sshort": (2, "sext16"),
    "dword": (4, None),
    "dwordx2": (8, None),
    "dwordx3": (12, None),
    "dwordx4": (16, None),
    "ubyte_d16": (1, "low"),
    "ubyte_d16_hi": (1, "high"),
    "sbyte_d16": (1, "sext8 low"),
    "sbyte_d16_hi": (1, "sext8 high"),
    "short_d16": (2, "low"),
    "short_d16_hi": (2, "high"),
}
STORES = {
    "byte": (1, 0),
    "byte_d16_hi": (1, 16),
    "short": (2, 0),
    "short_d16_hi": (2, 16),
    "dword": (4, 0),
    "dwordx2": (8, 0),
    "dwordx3": (12, 0),
    "dwordx4": (16, 0),
}


def address_of(instruction: Instruction, address: Operand, base: Operand | None):
    """uint64 [n, 64] (or broadcastable): vector address + scalar base + immediate offset."""
    add = U64(instruction.modifiers.get("offset", 0) & (1 << 64) - 1)
    if base is None or base.value == "off":
        read = vector(address, "u64")
        return (lambda g: read(g) + add) if add else read
    offset, start = vector(address, "u32"), scalar(base, "u64")

    def read(g):
        # sext: the 32-bit offset is unsigned (ISA guide, "Global addressing with SGPR base")
        return start(g)[:, None] + offset(g).astype(U64) + add

    return read


def active(g, value: np.ndarray) -> np.ndarray:
    """The active lanes of a per-lane value, flat."""
    if value.shape != (g.n, 64):
        value = np.broadcast_to(value, (g.n, 64))
    return value.reshape(-1) if g.full else value[g.lanes]


def spread(g, values: np.ndarray) -> np.ndarray:
    """Flat values of the active lanes back to [n, 64]; zero elsewhere."""
    if g.full:
        return values.reshape(g.n, 64)
    out = np.zeros((g.n, 64), values.dtype)
    out[g.lanes] = values
    return out


def combine(how: str | None, loaded: np.ndarray, old) -> np.ndarray:
    """Make the destination dword of a narrow load; ``old()`` gives its present value."""
    if how is None:
        return loaded
    if "sext8" in how:
        loaded = loaded.astype(np.int8).astype(np.int32).view(U32)
    elif "sext16" in how:
        loaded = loaded.astype(np.int16).astype(np.int32).view(U32)
    if "low" in how:
        return old() & U32(0xFFFF0000) | loaded & U32(0xFFFF)
    if "high" in how:
        return old() & U32(0xFFFF) | loaded << U32(16)
    return loaded


def register_file(g, o: Operand):
    return g.w.vgpr if o.kind == "v" else g.w.acc


def _split(instruction: Instruction, operands):
    """(address operand, base operand) of a flat or global access."""
    return operands if instruction.name.startswith("global_") else (operands[0], None)


@op(*(f"{space}_load_{kind}" for space in ("global", "flat") for kind in LOADS))
def load(instruction: Instruction):
    only(instruction, "offset", *CACHE_HINTS)
    space, _, kind = instruction.name.partition("_load_")
    nbytes, how = LOADS[kind]
    target, *rest = instruction.operands
    address = address_of(instruction, *_split(instruction, rest))
    flat = space == "flat"

    def step(g):
        if not g.lanes.any():
            return
        at = active(g, address(g))
        data = flat_load(g, at, nbytes) if flat else g.w.memory.load(at, nbytes)
        for i in range(max(nbytes // 4, 1)):
            values = spread(g, np.ascontiguousarray(data[:, i]))
            values = combine(how, values, lambda: register_file(g, target)[target.index][g.sel])
            g.set_v(target.index + i, values, target.kind)

    return step


@op(*(f"{space}_store_{kind}" for space in ("global", "flat") for kind in STORES))
def store(instruction: Instruction):
    only(instruction, "offset", *CACHE_HINTS)
    space, _, kind = instruction.name.partition("_store_")
    nbytes, shift = STORES[kind]
    address_operand, data, *base = instruction.operands
    address = address_of(instruction, address_operand, base[0] if base else None)
    words = max(nbytes // 4, 1)
    flat = space == "flat"

    def step(g):
        if not g.lanes.any():
            return
        at = active(g, address(g))
        values = np.empty((len(at), words), U32)
        for i in range(words):
            values[:, i] = active(g, register_file(g, data)[data.index + i][g.sel])
        if shift:
            values >>= U32(shift)
        if flat:
            flat_store(g, at, values, nbytes)
        else:
            g.w.memory.store(at, values, nbytes)

    return step


# -- flat: which lanes mean LDS or scratch -----------------------------------------------------------------------------


def _special(g, at: np.ndarray) -> bool:
    high = at >> U64(32)
    return bool(((high == U64(g.w.apertures[0])) | (high == U64(g.w.apertures[1]))).any())


def flat_load(g, at: np.ndarray, nbytes: int) -> np.ndarray:
    if _special(g, at):
        raise IllegalInstruction("flat access to LDS or scratch")
    return g.w.memory.load(at, nbytes)


def flat_store(g, at: np.ndarray, values: np.ndarray, nbytes: int) -> None:
    if _special(g, at):
        raise IllegalInstruction("flat access to LDS or scratch")
    g.w.memory.store(at, values, nbytes)
