"""Point a loaded library's calls at functions of ours, by rewriting its global offset table.

Only the calls that this library makes change: the rest of the process, Python included, keeps the real functions.
Debian links with BIND_NOW and RELRO, so every slot is filled and read-only by the time we come: a slot's page is made
writable for the write.  The layout is the System V ABI's (x86-64 supplement, "Relocation").
"""

from __future__ import annotations

import os
from typing import NamedTuple

from .uapi import C, ffi

PT_DYNAMIC = 2
DT_PLTRELSZ, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_JMPREL = 2, 5, 6, 7, 8, 23
R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT = 6, 7
PROT_READ, PROT_WRITE = 1, 2
PAGE = 4096

_elf = type(ffi)()
_elf.cdef("""
typedef struct { uint32_t type, flags; uint64_t offset, vaddr, paddr, filesz, memsz, align; } Phdr;
typedef struct { int64_t tag; uint64_t value; } Dyn;
typedef struct { uint64_t offset, info; int64_t addend; } Rela;
typedef struct { uint32_t name; uint8_t info, other; uint16_t shndx; uint64_t value, size; } Sym;
""")


class Patch(NamedTuple):
    slot: int
    original: int


class Library(NamedTuple):
    path: str
    base: int
    headers: int
    header_count: int


def loaded(prefixes: tuple[str, ...]) -> list[Library]:
    """The libraries of this process whose file name starts with one of ``prefixes``."""
    found: list[Library] = []

    @ffi.callback("int(struct dl_phdr_info *, size_t, void *)")
    def note(info, _size, _data):
        path = os.fsdecode(ffi.string(info.dlpi_name)) if info.dlpi_name else ""
        if os.path.basename(path).startswith(prefixes):
            found.append(Library(path, info.dlpi_addr, int(ffi.cast("uintptr_t", info.dlpi_phdr)), info.dlpi_phnum))
        return 0

    C.dl_iterate_phdr(note, ffi.NULL)
    return found


def _slots(library: Library):
    """Yield (symbol name, address of its slot) for every imported function of one library."""
    base, headers = library.base, _elf.cast("Phdr *", library.headers)
    dynamic = next(base + headers[i].vaddr for i in range(library.header_count) if headers[i].type == PT_DYNAMIC)
    table: dict[int, int] = {}
    entry = _elf.cast("Dyn *", dynamic)
    while entry.tag:
        table[entry.tag] = entry.value
        entry += 1

    def address(tag: int) -> int:  # glibc relocates these in place; other loaders leave offsets
        return table[tag] if table[tag] >= base else base + table[tag]

    symbols = _elf.cast("Sym *", address(DT_SYMTAB))
    strings = address(DT_STRTAB)
    for start, size in ((DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)):
        if start not in table:
            continue
        relocations = _elf.cast("Rela *", address(start))
        for i in range(table[size] // _elf.sizeof("Rela")):
            info = relocations[i].info
            if info & 0xFFFFFFFF in (R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT):
                name = _elf.string(_elf.cast("char *", strings + symbols[info >> 32].name)).decode()
                yield name, base + relocations[i].offset


def patch(libraries: list[Library], replacements: dict[str, int]) -> list[Patch]:
    """Redirect the named functions where these libraries call them.  Returns what to hand to :func:`restore`."""
    done: list[Patch] = []
    for library in libraries:
        for symbol, slot in list(_slots(library)):
            if symbol in replacements:
                done.append(Patch(slot, _write(slot, replacements[symbol])))
    return done


def restore(patches: list[Patch]) -> None:
    for slot, original in patches:
        _write(slot, original)


def _write(slot: int, value: int) -> int:
    page = ffi.cast("void *", slot & ~(PAGE - 1))
    if C.mprotect(page, PAGE, PROT_READ | PROT_WRITE):
        raise OSError(ffi.errno, "mprotect of a global offset table")
    cell = ffi.cast("uint64_t *", slot)
    before, cell[0] = cell[0], value
    return before  # the page stays writable: libraries linked without RELRO bind lazily into the same page
