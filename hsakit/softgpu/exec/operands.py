"""Operands of instructions as functions of a group: typed reads and writes of registers, constants and lane masks.

Types are named as the ISA names them: u32 i32 f32, u64 i64 f64 (register pairs), u16 i16 f16 (the low half of a
register), and b32: bits that may have a float's sign changed.  Vector reads give [n, 64] or, for scalars and constants,
something that broadcasts to it; scalar reads give [n] or a constant.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from .decode import EXEC, VCC, Instruction, Operand
from .program import IllegalInstruction
from .state import Group, join64

TYPES: dict[str, type[Any]] = {
    "u32": np.uint32,
    "i32": np.int32,
    "f32": np.float32,
    "u64": np.uint64,
    "i64": np.int64,
    "f64": np.float64,
    "u16": np.uint16,
    "i16": np.int16,
    "f16": np.float16,
    "b32": np.uint32,
}
FLOATS = {"f16": ("<e", np.float16, "<H"), "f32": ("<f", np.float32, "<I"), "f64": ("<d", np.float64, "<Q")}
WIDE = ("u64", "i64", "f64")
HALF = ("u16", "i16", "f16")
SIGN_BIT = {
    "f16": np.uint16(0x8000),
    "f32": np.uint32(0x80000000),
    "b32": np.uint32(0x80000000),
    "f64": np.uint64(1 << 63),
}
# the value LLVM prints for the inline constant 1/(2 pi) is exact only in the type it is used as
INV_2PI = {"f16": 0x3118, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}

Read = Callable[[Group], np.ndarray]


def constant(o: Operand, type_: str):
    """A literal or inline constant as a numpy scalar of the type.  Integers are bits, also where a float is read."""
    dtype = TYPES[type_]
    size = dtype().itemsize
    if o.kind == "int":
        value = o.value
        if size == 8 and not -16 <= value <= 64:  # a literal has 32 bits: the high ones of a float, else the low ones
            signed = type_ == "i64" and value >= 1 << 31
            value = value << 32 if type_ == "f64" else value - (1 << 32) if signed else value
        bits = value & ((1 << 8 * size) - 1)
    elif type_ in FLOATS and o.kind == "float":
        if abs(o.value - 0.15915494) < 1e-6:
            bits = INV_2PI[type_] | (0 if o.value > 0 else 1 << 8 * size - 1)
        else:
            bits = int.from_bytes(struct.pack(FLOATS[type_][0], o.value), "little")
    elif o.kind == "float":  # a float constant read by an integer instruction: the bits of its f32 (or f64)
        bits = int.from_bytes(struct.pack("<d" if size == 8 else "<f", o.value), "little") & ((1 << 8 * size) - 1)
    else:
        raise IllegalInstruction(f"operand {o.value!r} is not implemented")
    return np.frombuffer(bits.to_bytes(size, "little"), dtype=dtype)[0]


def scalar(o: Operand, type_: str) -> Read:
    """Read a scalar source: [n]."""
    dtype = TYPES[type_]
    if o.kind == "s":
        if type_ in WIDE:
            return lambda g: g.s64(o.index).view(dtype)
        if type_ in HALF:
            return lambda g: g.s(o.index).astype(np.uint16).view(dtype)
        return lambda g: g.s(o.index, dtype)
    if o.kind == "name" and o.value in FLAGS:
        flag = FLAGS[o.value]
        return lambda g: flag(g).astype(dtype)
    if o.kind == "name" and o.value in APERTURES:
        which = APERTURES[o.value]

        def aperture(g):
            high = g.w.apertures[which]
            return np.uint64(high << 32).astype(dtype) if type_ in WIDE else np.uint32(high).astype(dtype)

        return aperture
    value = constant(o, type_)
    return lambda g: value


APERTURES = {"src_shared_base": 0, "src_private_base": 1}
FLAGS = {
    "src_scc": lambda g: g.scc,
    "src_vccz": lambda g: g.s64(VCC) == 0,
    "src_execz": lambda g: g.s64(EXEC) == 0,
}


def vector(o: Operand, type_: str, high: bool = False) -> Read:
    """Read a vector source, with its neg and abs: broadcastable to [n, 64].  ``high``: the high half (16-bit types)."""
    dtype = TYPES[type_]
    if high:
        both = halves(o, type_)
        return modified(lambda g: (both(g) >> np.uint32(16)).astype(np.uint16).view(dtype), o, type_)
    if o.kind in "va":
        i, file = o.index, o.kind
        if type_ in WIDE:
            read = (lambda g: g.v64(i).view(dtype)) if file == "v" else (lambda g: _acc64(g, i).view(dtype))
        elif type_ in HALF:
            read = lambda g: _file(g, file)[np.uint32][i][g.sel].astype(np.uint16).view(dtype)  # noqa: E731
        elif file == "v":
            read = lambda g: g.w.v[dtype][i][g.sel]  # noqa: E731
        else:
            read = lambda g: g.w.a[dtype][i][g.sel]  # noqa: E731
    else:
        inner = scalar(o, type_)
        if o.kind == "s" or o.value in FLAGS:
            read = lambda g: inner(g)[:, None]  # noqa: E731
        else:
            read = inner
    return modified(read, o, type_)


def pair(o: Operand) -> tuple[Read, Read]:
    """The low and the high half of a 64-bit integer source, each broadcastable to [n, 64]."""
    if o.kind in "vas":
        return vector(Operand(o.kind, o.index), "u32"), vector(Operand(o.kind, o.index + 1), "u32")
    low, high = np.frombuffer(constant(o, "u64").tobytes(), np.uint32)
    return lambda g: low, lambda g: high


def halves(o: Operand, type_: str) -> Read:
    """Read the 32 bits of a source of which the halves are 16-bit values; a float constant stands in the low half."""
    if o.kind == "float" and type_ == "f16":
        value = np.uint32(constant(o, type_).view(np.uint16))
        return lambda g: value
    return vector(Operand(o.kind, o.index, o.count, o.value), "u32")


def modified(read: Read, o: Operand, type_: str) -> Read:
    if not (o.neg or o.abs):
        return read
    if type_ not in SIGN_BIT:
        raise IllegalInstruction(f"neg or abs of an operand read as {type_}")
    bit = SIGN_BIT[type_]
    bits, dtype = bit.dtype, TYPES[type_]

    def apply(g):
        value = np.asarray(read(g)).view(bits)
        if o.abs:
            value = value & ~bit
        if o.neg:
            value = value ^ bit
        return value.view(dtype)

    return apply


def _file(g: Group, file: str):
    return g.w.v if file == "v" else g.w.a


def _acc64(g: Group, i: int) -> np.ndarray:
    return join64(g.w.acc[i][g.sel], g.w.acc[i + 1][g.sel])


def write_vector(o: Operand, type_: str) -> Callable[[Group, np.ndarray], None]:
    """Write the active lanes of a vector destination."""
    if o.kind not in "va":
        raise IllegalInstruction(f"destination {o} of a vector instruction")
    i, file = o.index, o.kind
    if type_ in WIDE:
        return lambda g, value: g.set_v64(i, value, file)
    if type_ in HALF:  # GFX9: 16-bit results zero the upper half
        return lambda g, value: g.set_v(i, value.view(np.uint16).astype(np.uint32), file)
    return lambda g, value: g.set_v(i, value, file)


def write_scalar(o: Operand, type_: str) -> Callable[[Group, np.ndarray], None]:
    if o.kind != "s":
        raise IllegalInstruction(f"destination {o} of a scalar instruction")
    i = o.index
    if type_ in WIDE:
        return lambda g, value: g.set_s64(i, np.broadcast_to(value, (g.n,)).astype(TYPES[type_]))
    return lambda g, value: g.set_s(i, value)


def read_mask(o: Operand) -> Read:
    """A lane mask: a pair of SGPRs, or the constants 0 and -1."""
    if o.kind == "s":
        return lambda g: g.mask(o.index)
    value = bool(constant(o, "i32"))
    return lambda g: np.full((1, 64), value)


def parse_signature(signature: str) -> tuple[str, list[str]]:
    """ "f32 = f32 f32" -> ("f32", ["f32", "f32"])."""
    out, _, ins = signature.partition("=")
    return out.strip(), ins.split()


def check_count(instruction: Instruction, count: int) -> None:
    if len(instruction.operands) != count:
        raise IllegalInstruction(f"{instruction.text}: {len(instruction.operands)} operands, expected {count}")
