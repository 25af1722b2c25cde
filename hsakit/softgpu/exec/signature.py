"""What makes two dispatches cost the same: code, geometry, scalar arguments, and whose memory pointers point into."""

from __future__ import annotations

import hashlib
import struct

from ..memory import AddressSpace, MemoryFault
from ..uapi import ffi

CODE = 16 << 10  # bytes from the kernel's entry on
LINE = 128


def signature(space: AddressSpace, gpu: int, descriptor: bytes, entry: int, geometry: tuple, kernarg: int) -> bytes:
    """``descriptor``: 64 bytes; it says how long the arguments are."""
    nbytes = struct.unpack_from("<I", descriptor, 8)[0]
    text = hashlib.blake2b(code(space, gpu, entry), digest_size=16)
    text.update(descriptor[:16] + descriptor[44:])
    text.update(repr(geometry).encode())
    arguments = read(space, gpu, kernarg, nbytes) if nbytes else b""
    first: dict[int, int] = {}  # pointer into each allocation
    for at in range(0, len(arguments), 8):
        word = arguments[at : at + 8]
        value = int.from_bytes(word, "little")
        where = space.find(value) if len(word) == 8 and value else None
        if where is not None and value < where.end:
            # for this GPU, which of the others is meant does not change what it costs, but it is accounted to that one
            whose = "own" if where.vram_of == gpu else where.vram_of
            # an end, or a second part, says how much there is
            word = f"{whose} {value % LINE} {value - first.setdefault(where.start, value)}".encode()
        text.update(word)
    return text.digest()


def code(space: AddressSpace, gpu: int, entry: int) -> bytes:
    """A digest of the code at ``entry``."""
    return hashlib.blake2b(read(space, gpu, entry, CODE), digest_size=16).digest()


def read(space: AddressSpace, gpu: int, address: int, nbytes: int) -> bytes:
    """As many of these bytes as there are."""
    where = space.find(address)
    if where is None or not where.start <= address < where.end:
        return b""
    nbytes = min(nbytes, where.end - address)
    try:
        return bytes(ffi.buffer(space.pointer(gpu, address, nbytes, write=False), nbytes))
    except MemoryFault:
        return b""
