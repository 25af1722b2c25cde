"""The name of a kernel, for messages: from the code object that the runtime loaded, which is an ELF image in memory."""

from __future__ import annotations

import struct

from ..memory import PAGE, AddressSpace
from ..uapi import ffi

PT_DYNAMIC = 2
DT_HASH, DT_STRTAB, DT_SYMTAB = 4, 5, 6
SYMBOL = 24  # bytes of an Elf64_Sym
FAR = 64 << 20  # how far below a descriptor its object's beginning is looked for


def kernel_name(space: AddressSpace, kernel_object: int) -> str | None:
    """The symbol of the kernel descriptor at ``kernel_object``; None where there is none (code without a file)."""
    allocation = space.find(kernel_object)
    if allocation is None or kernel_object >= allocation.end or allocation.foreign:
        return None
    at = kernel_object - allocation.start
    memory = memoryview(ffi.buffer(ffi.cast("void *", allocation.host), allocation.end - allocation.start)).cast("B")
    # Objects share an allocation, each from a page's beginning on.
    for base in range(at // PAGE * PAGE, max(at - FAR, 0) - 1, -PAGE):
        if memory[base : base + 4] == b"\x7fELF":
            try:
                return _symbol(memory[base:], at - base)
            except (struct.error, IndexError, ValueError):  # its pages may be anything by now
                return None
    return None


def _symbol(image: memoryview, value: int) -> str | None:
    (headers,) = struct.unpack_from("<Q", image, 32)
    size, count = struct.unpack_from("<2H", image, 54)
    dynamic = None
    for i in range(count):
        kind, _, _, address = struct.unpack_from("<2I2Q", image, headers + i * size)
        if kind == PT_DYNAMIC:
            dynamic = address
    if dynamic is None:
        return None
    tags = {}
    while (tag := struct.unpack_from("<2Q", image, dynamic))[0]:
        tags[tag[0]] = tag[1]
        dynamic += 16
    if not {DT_HASH, DT_STRTAB, DT_SYMTAB} <= tags.keys():
        return None
    (symbols,) = struct.unpack_from("<I", image, tags[DT_HASH] + 4)
    for i in range(symbols):
        name, _, _, _, address = struct.unpack_from("<I2BHQ", image, tags[DT_SYMTAB] + i * SYMBOL)
        if address == value and name:
            start = tags[DT_STRTAB] + name
            text = bytes(image[start : start + 4096])
            return text[: text.index(0)].decode().removesuffix(".kd")
    return None
