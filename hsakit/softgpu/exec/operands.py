"""Operands of instructions as functions of a group: typed reads and writes of registers, constants and lane masks.

Types are named as the ISA names them: u32 i32 f32, u64 i64 f64 (register pairs), u16 i16 f16 (the low half of a
register).  Vector reads give [n, 64] or, for scalars and constants, something that broadcasts to it; scalar reads give
[n] or a constant.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from .decode import Instruction, Operand
from .program import IllegalInstruction
from .state import Group, join64

TYPES = {
    "u32": np.uint32,
    "i32": np.int32,
    "f32": np.float32,
    "u64": np.uint64,
    "i64": np.int64,
    "f64": np.float64,
    "u16": np.uint16,
    "i16": np.int16,
    "f16": np.float16,
}
FLOATS = {"f16": ("<e", np.float16, "<H"), "f32": ("<f", np.float32, "<I"), "f64": ("<d", np.float64, "<Q")}
WIDE = ("u64", "i64", "f64")
HALF = ("u16", "i16", "f16")
SIGN_BIT = {"f16": np.uint16(0x8000), "f32": np.uint32(0x80000000), "f64": np.uint64(1 << 63)}
# the value LLVM prints for the inline constant 1/(2 pi) is exact only in the type it is used as
INV_2PI = {"f16": 0x3118, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}

Read = Callable[[Group], np.ndarray]


def constant(o: Operand, type_: str):
    """A literal or inline constant as a numpy scalar of the type.  Integers are bits, also where a float is read."""
    dtype = TYPES[type_]
    size = dtype().itemsize
    if o.kind == "int":
        bits = o.value & ((1 << 8 * size) - 1)
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
    if o.kind == "name" and o.value == "scc":
        return lambda g: g.scc.astype(dtype)
    if o.kind == "name" and o.value in APERTURES:
        which = APERTURES[o.value]

        def aperture(g):
            high = g.w.apertures[which]
            return np.uint64(high << 32).astype(dtype) if type_ in WIDE else np.uint32(high).astype(dtype)

        return aperture
    value = constant(o, type_)
    return lambda g: value


APERTURES = {"src_shared_base": 0, "src_private_base": 1}


def vector(o: Operand, type_: str) -> Read:
    """Read a vector source, with its neg, abs and sext: broadcastable to [n, 64]."""
    dtype = TYPES[type_]
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
        if o.kind == "s" or (o.kind == "name" and o.value == "scc"):
            read = lambda g: inner(g)[:, None]  # noqa: E731
        else:
            read = inner
    return modified(read, o, type_)


def modified(read: Read, o: Operand, type_: str) -> Read:
    if not (o.neg or o.abs):
        return read
    if type_ not in FLOATS:
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
    """"f32 = f32 f32" -> ("f32", ["f32", "f32"])."""
    out, _, ins = signature.partition("=")
    return out.strip(), ins.split()


def check_count(instruction: Instruction, count: int) -> None:
    if len(instruction.operands) != count:
        raise IllegalInstruction(f"{instruction.text}: {len(instruction.operands)} operands, expected {count}")
