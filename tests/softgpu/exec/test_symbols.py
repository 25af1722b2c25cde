"""The name of a kernel from the ELF image in memory around its descriptor."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from hsakit.softgpu.exec.symbols import kernel_name
from tests.softgpu.exec.machine import Memory

SYMTAB, HASH, STRTAB, DYNAMIC, KERNELS = 0x200, 0x300, 0x400, 0x1100, 0x600
NAMES = ["copy.kd", "copy", "a_kernel.kd"]


def image(**damage) -> bytes:
    """The loaded segments of a code object: descriptors at KERNELS + 64 i."""
    out = bytearray(0x2000)
    out[:4] = b"\x7fELF"
    struct.pack_into("<Q", out, 32, 64)
    struct.pack_into("<2H", out, 54, 56, 2)
    struct.pack_into("<2I2Q", out, 64, 1, 4, 0, 0)
    struct.pack_into("<2I2Q", out, 64 + 56, damage.get("segment", 2), 6, 0, DYNAMIC)
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in NAMES)
    out[STRTAB : STRTAB + len(strings)] = strings
    struct.pack_into("<2I", out, HASH, 1, damage.get("symbols", 1 + len(NAMES)))
    for i, name in enumerate(NAMES):
        at = SYMTAB + 24 * (i + 1)
        struct.pack_into("<I2BHQQ", out, at, strings.index(name.encode() + b"\0"), 0x11, 3, 6, KERNELS + 64 * i, 64)
    tags = ((5, STRTAB), (6, damage.get("symtab", SYMTAB)), (4, HASH), (0, 0))
    for i, tag in enumerate(tags):
        struct.pack_into("<2Q", out, DYNAMIC + 16 * i, *tag)
    return bytes(out)


def load(*images: bytes, before: int = 0):
    memory = Memory()
    size = before + sum(map(len, images))
    address, pages = memory.allocate(size)
    pages[before:] = np.frombuffer(b"".join(images), np.uint8)
    return memory, address + before


def test_a_name():
    memory, address = load(image())
    assert kernel_name(memory.space, address + KERNELS) == "copy"
    assert kernel_name(memory.space, address + KERNELS + 128) == "a_kernel"
    assert kernel_name(memory.space, address + KERNELS + 192) is None


def test_the_nearest_object_below_counts():
    memory, address = load(image(), image(segment=1), image(), before=0x3000)
    assert kernel_name(memory.space, address + 0x4000 + KERNELS) == "copy"
    assert kernel_name(memory.space, address + 0x2000 + KERNELS) is None
    assert kernel_name(memory.space, address - 64) is None


@pytest.mark.parametrize("damage", [{"symtab": 1 << 40}, {"symbols": 1 << 30}, {"segment": 7}])
def test_a_damaged_image_has_no_names(damage):
    memory, address = load(image(**damage))
    assert kernel_name(memory.space, address + KERNELS + 192) is None


def test_addresses_without_code():
    memory, address = load(bytes(0x2000))
    assert kernel_name(memory.space, address + KERNELS) is None
    assert kernel_name(memory.space, address + 0x2000) is None
    assert kernel_name(memory.space, 0x1000) is None
