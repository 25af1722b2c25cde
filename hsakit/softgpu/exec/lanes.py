"""Per-lane values between registers and flat lists of active lanes, as memory accesses take them."""

from __future__ import annotations

import numpy as np

from .decode import Operand

U32 = np.uint32


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


def combine(how: str | None, loaded: np.ndarray) -> np.ndarray:
    """Make the destination dword of a narrow load.  What is loaded into one half makes the other zero: where SRAM has
    ECC, as on these parts, no half is written alone."""
    if how is None:
        return loaded
    if "sext8" in how:
        loaded = loaded.astype(np.int8).astype(np.int32).view(U32)
    elif "sext16" in how:
        loaded = loaded.astype(np.int16).astype(np.int32).view(U32)
    if "low" in how:
        return loaded & U32(0xFFFF)
    if "high" in how:
        return loaded << U32(16)
    return loaded


def register_file(g, o: Operand):
    return g.w.vgpr if o.kind == "v" else g.w.acc


def gather_registers(g, o: Operand, words: int) -> np.ndarray:
    """[active lanes, words] of consecutive registers."""
    registers = register_file(g, o)
    first = active(g, registers[o.index][g.sel])
    if words == 1:
        return first[:, None]
    out = np.empty((len(first), words), U32)
    out[:, 0] = first
    for i in range(1, words):
        out[:, i] = active(g, registers[o.index + i][g.sel])
    return out


def scatter_registers(g, o: Operand, data: np.ndarray, how: str | None = None) -> None:
    """Write [active lanes, words] to consecutive registers."""
    for i in range(data.shape[1]):
        value = spread(g, data[:, i])
        if how is not None:
            value = combine(how, value)
        g.set_v(o.index + i, value, o.kind)
