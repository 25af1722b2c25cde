"""Vector loads and stores to global and flat addresses (ISA guide, "FLAT", "GLOBAL").

Flat addresses reach LDS and scratch through their apertures; :mod:`lds` and :mod:`scratch` serve those lanes.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from .addresses import Address
from .decode import Instruction
from .lanes import active, gather_registers, scatter_registers
from .lds import lds_load, lds_store
from .memory import LaneFault
from .program import COHERENT, IllegalInstruction, only, op
from .scratch import scratch_load, scratch_store

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


def beyond_gpu(instruction: Instruction) -> bool:
    """Whether other agents see it at once, in memory that allows that: glc until gfx90a, sc0 and sc1 since gfx942."""
    return "glc" in instruction.modifiers or {"sc0", "sc1"} <= set(instruction.modifiers)


def split(instruction: Instruction, operands):
    """(address operand, base operand) of a flat or global access."""
    return operands if instruction.name.startswith("global_") else (operands[0], None)


@op(*(f"{space}_load_{kind}" for space in ("global", "flat") for kind in LOADS))
def load(instruction: Instruction):
    only(instruction, "offset", *CACHE_HINTS)
    space, _, kind = instruction.name.partition("_load_")
    nbytes, how = LOADS[kind]
    target, *rest = instruction.operands
    address = Address(instruction, *split(instruction, rest))
    access = flat_load if space == "flat" else global_load
    looks = bool(COHERENT & set(instruction.modifiers))
    past_caches = beyond_gpu(instruction)

    def step(g):
        if not g.lanes.any():
            return
        g.w.memory.past_caches = past_caches
        at, loaded = address.waves(g, nbytes), None
        if at is not None:
            loaded = g.w.memory.load_waves(at, nbytes)
        if loaded is None:
            at = active(g, address.lanes(g))
            loaded = access(g, at, nbytes)
        scatter_registers(g, target, loaded, how)
        if looks:
            g.w.look(g, instruction.address, at, loaded, nbytes)
        elif g.w.trace is not None:
            g.w.trace.note(g, at, nbytes, False)

    return step


@op(*(f"{space}_store_{kind}" for space in ("global", "flat") for kind in STORES))
def store(instruction: Instruction):
    only(instruction, "offset", *CACHE_HINTS)
    space, _, kind = instruction.name.partition("_store_")
    nbytes, shift = STORES[kind]
    address_operand, data, *base = instruction.operands
    address = Address(instruction, address_operand, base[0] if base else None)
    words = max(nbytes // 4, 1)
    access = flat_store if space == "flat" else global_store
    past_caches = beyond_gpu(instruction)
    flag = bool(COHERENT & set(instruction.modifiers))  # visible at once, as all before it are since the waves stopped

    def step(g):
        if not g.lanes.any():
            return
        g.w.memory.past_caches = past_caches
        values = gather_registers(g, data, words)
        if shift:
            values = values >> U32(shift)
        at = address.waves(g, nbytes)
        if at is None or not g.w.memory.store_waves(at, values, nbytes):
            at = active(g, address.lanes(g))
            access(g, at, values, nbytes)
        g.w.work(g)
        if flag:
            g.w.memory.release()
        elif g.w.trace is not None:
            g.w.trace.note(g, at, nbytes, True)

    return step


def global_load(g, at: np.ndarray, nbytes: int) -> np.ndarray:
    return g.w.memory.load(at, nbytes)


def global_store(g, at: np.ndarray, values: np.ndarray, nbytes: int) -> None:
    g.w.memory.store(at, values, nbytes)


# -- flat: lanes whose address lies in an aperture mean LDS or scratch -------------------------------------------------

GLOBAL, LDS, PRIVATE = 0, 1, 2
_LOADS = (global_load, lds_load, scratch_load)
_STORES = (global_store, lds_store, scratch_store)


def windows(g, at: np.ndarray):
    """(kind of memory, which of the lanes it serves, their group, their addresses in it) for each kind that any lane
    means; None where all are global."""
    lds, private = (U64(high) for high in g.w.apertures)
    if int(at.max()) >> 32 < min(int(lds), int(private)):  # the apertures lie above all memory
        return None
    high = at >> U64(32)
    kinds = np.where(high == lds, LDS, np.where(high == private, PRIVATE, GLOBAL))
    return [_window(g, at, kind, kinds == kind) for kind in np.unique(kinds).tolist()]


def _window(g, at: np.ndarray, kind: int, chosen: np.ndarray):
    lanes = g.lanes.copy()
    lanes[g.lanes] = chosen
    return kind, chosen, g.among(lanes), at[chosen] if kind == GLOBAL else at[chosen] & U64(0xFFFFFFFF)


@contextmanager
def lanes_of_group(chosen: np.ndarray):
    """A fault of one of the chosen lanes is told by its place among all of them."""
    try:
        yield
    except (LaneFault, IllegalInstruction) as exc:
        if exc.lane is not None:
            exc.lane = int(np.flatnonzero(chosen)[exc.lane])
        raise


def flat_load(g, at: np.ndarray, nbytes: int) -> np.ndarray:
    parts = windows(g, at)
    if parts is None:
        return global_load(g, at, nbytes)
    out = np.empty((len(at), max(nbytes // 4, 1)), U32)
    for kind, lanes, part, local in parts:
        with lanes_of_group(lanes):
            out[lanes] = _LOADS[kind](part, local, nbytes)
    return out


def flat_store(g, at: np.ndarray, values: np.ndarray, nbytes: int) -> None:
    parts = windows(g, at)
    if parts is None:
        global_store(g, at, values, nbytes)
        return
    for kind, lanes, part, local in parts:
        with lanes_of_group(lanes):
            _STORES[kind](part, local, values[lanes], nbytes)
