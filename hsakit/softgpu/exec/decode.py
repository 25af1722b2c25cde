"""Machine code to instructions, by AMD's own disassembler (libamd_comgr), and its text to operands.

One instruction is decoded when it is first executed; the program remembers it.  The text form is LLVM's (AMDGPU operand
syntax); what is parsed here is its grammar, not the encodings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from cffi import FFI

ffi = FFI()
ffi.cdef("""
typedef struct { uint64_t handle; } amd_comgr_disassembly_info_t;
int amd_comgr_create_disassembly_info(const char *isa_name,
    uint64_t (*read_memory)(uint64_t from, char *to, uint64_t size, void *user),
    void (*print_instruction)(const char *text, void *user),
    void (*print_address)(uint64_t address, void *user), amd_comgr_disassembly_info_t *info);
int amd_comgr_disassemble_instruction(amd_comgr_disassembly_info_t info, uint64_t address, void *user, uint64_t *size);
""")

LONGEST = 16  # bytes of an instruction
# The kinds of encoding below, by their first bits, and source operands that stand for something else
VOP3, MUBUF, MTBUF = 0x34, 0x38, 0x3A
VOPC, VOP1 = 0x3E, 0x3F
SDWA, LITERAL = 0xF9, 0xFF

SONAMES = ("libamd_comgr.so.2", "libamd_comgr.so.3", "libamd_comgr.so")

VCC, M0, EXEC = 106, 124, 126
SPECIAL = {
    "vcc": (VCC, 2),
    "vcc_lo": (VCC, 1),
    "vcc_hi": (VCC + 1, 1),
    "exec": (EXEC, 2),
    "exec_lo": (EXEC, 1),
    "exec_hi": (EXEC + 1, 1),
    "m0": (M0, 1),
    "flat_scratch": (102, 2),
    "flat_scratch_lo": (102, 1),
    "flat_scratch_hi": (103, 1),
    "xnack_mask": (104, 2),
}
REGISTER = re.compile(r"(ttmp|[vsa])(?:(\d+)|\[(\d+):(\d+)\])$")
INTEGER = re.compile(r"-?(0x[0-9a-f]+|\d+)$", re.I)
FLOAT = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?$", re.I)
ENCODING = re.compile(r"_(e32|e64|sdwa|dpp|e64_dpp)$")


@dataclass(frozen=True)
class Operand:
    """kind: v, a, s (``index``, ``count`` registers); int, float (``value``); name (``value``: off, hwreg(...))."""

    kind: str
    index: int = 0
    count: int = 1
    value: Any = None
    neg: bool = False
    abs: bool = False
    sext: bool = False


@dataclass(frozen=True)
class Instruction:
    address: int
    size: int
    text: str
    name: str
    """mnemonic without its encoding suffix"""
    encoding: str
    operands: tuple[Operand, ...]
    modifiers: dict[str, Any] = field(hash=False, default_factory=dict)

    @property
    def next(self) -> int:
        return self.address + self.size

    def at(self, address: int) -> Instruction:
        """The same at another address."""
        return Instruction(address, self.size, self.text, self.name, self.encoding, self.operands, self.modifiers)


class Undecodable(Exception):
    """Bytes that are no instruction of this target."""


@lru_cache(maxsize=1)
def _library():
    errors = []
    for name in SONAMES:
        try:
            return ffi.dlopen(name)
        except OSError as exc:
            errors.append(str(exc))
    raise OSError("the software node executes kernels with libamd_comgr as decoder: " + "; ".join(errors))


def _deadly(code: bytes) -> bool:
    """Encodings at which the disassembler crashes: of VOP3 and MUBUF those with a literal, which GFX9 does not have
    there; of SDWA those with reserved values; of MTBUF, which nothing here executes, unknown ones.

    Found by giving it random bytes: LLVM 17 minds SDWA and MTBUF, LLVM 21 all of them."""
    first, second = int.from_bytes(code[:4], "little"), int.from_bytes(code[4:8], "little")
    kind = first >> 26
    if kind == MTBUF:
        return True
    if kind == MUBUF:
        return second >> 24 == LITERAL
    if kind == VOP3:
        return LITERAL in (second & 0x1FF, second >> 9 & 0x1FF, second >> 18 & 0x1FF)
    if first >> 31 or first & 0x1FF != SDWA:
        return False
    if second >> 16 & 7 == 7 or (first >> 25 != VOP1 and second >> 24 & 7 == 7):  # what is selected of the sources
        return True
    return first >> 25 != VOPC and (second >> 8 & 7 == 7 or second >> 11 & 3 == 3)  # and of the destination


# By target, what was decoded from an instruction's bytes and those behind it: GPUs, and code objects loaded again, have
# the same code at other addresses.
_known: dict[str, dict[bytes, Instruction]] = {}


class Decoder:
    """``read(address, size) -> bytes`` reads code, as the GPU fetches it."""

    def __init__(self, target: str, read):
        self._read = read
        self._known = _known.setdefault(target, {})
        self._code = b""
        self._text = ""

        @ffi.callback("uint64_t(uint64_t, char *, uint64_t, void *)")
        def read_memory(_address, to, size, _user):
            ffi.memmove(to, self._code[:size].ljust(size, b"\0"), size)
            return size

        @ffi.callback("void(const char *, void *)")
        def print_instruction(text, _user):
            self._text = ffi.string(text).decode()

        @ffi.callback("void(uint64_t, void *)")
        def print_address(_address, _user):
            pass

        self._keep = (read_memory, print_instruction, print_address)
        self._size = ffi.new("uint64_t *")
        info = ffi.new("amd_comgr_disassembly_info_t *")
        name = f"amdgcn-amd-amdhsa--{target}".encode()
        status = _library().amd_comgr_create_disassembly_info(name, *self._keep, info)
        if status:
            raise OSError(f"libamd_comgr knows no target {target} (status {status})")
        self._info = info[0]

    def decode(self, address: int) -> Instruction:
        self._code = code = self._read(address, LONGEST)
        known = self._known.get(code)
        if known is not None:
            return known.at(address)
        if _deadly(code) or (
            _library().amd_comgr_disassemble_instruction(self._info, address, ffi.NULL, self._size)
            or self._size[0] > len(code)
        ):
            raise Undecodable(f"no instruction at {address:#x}")
        instruction = self._known[code] = parse(self._text.strip(), address, self._size[0])
        return instruction


def parse(text: str, address: int = 0, size: int = 4) -> Instruction:
    mnemonic, _, rest = text.partition(" ")
    suffix = ENCODING.search(mnemonic)
    encoding = suffix[1] if suffix else ""
    name = mnemonic[: suffix.start()] if suffix else mnemonic
    modifiers: dict[str, Any] = {}
    if name == "s_waitcnt":
        rest = ""
    parts = _split(rest.strip())
    if parts:
        # what follows the last operand, after blanks, are modifiers
        head, *tail = _words(parts[-1])
        parts[-1] = head
        for word in tail:
            key, colon, value = word.partition(":")
            modifiers[key] = _modifier(value) if colon else True
    return Instruction(address, size, text, name, encoding, tuple(operand(part) for part in parts), modifiers)


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "([" or -(c in ")]")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    if text[start:].strip():
        parts.append(text[start:].strip())
    return parts


def _words(text: str) -> list[str]:
    """At blanks outside of brackets."""
    words, depth, word = [], 0, ""
    for c in text:
        depth += c in "([" or -(c in ")]")
        if c == " " and depth == 0:
            if word:
                words.append(word)
            word = ""
        else:
            word += c
    return words + [word] if word else words


def _modifier(value: str):
    if INTEGER.match(value):
        return int(value, 0)
    if value.startswith("["):
        return tuple(int(x, 0) for x in value[1:-1].split(","))
    return value


def operand(text: str) -> Operand:
    neg = abs_ = sext = False
    if text.startswith("sext("):
        sext, text = True, text[5:-1]
    if text.startswith("-") and not INTEGER.match(text) and not FLOAT.match(text):
        neg, text = True, text[1:]
    if text.startswith("neg("):
        neg, text = True, text[4:-1]
    if text.startswith(("|", "abs(")):
        abs_, text = True, text[1:-1] if text.startswith("|") else text[4:-1]
    flags = {"neg": neg, "abs": abs_, "sext": sext}
    register = REGISTER.match(text)
    if register:
        kind, one, low, high = register.groups()
        index, count = (int(one), 1) if one is not None else (int(low), int(high) - int(low) + 1)
        if kind == "ttmp":
            kind, index = "s", index + 108
        return Operand(kind, index, count, **flags)
    if text in SPECIAL:
        index, count = SPECIAL[text]
        return Operand("s", index, count, **flags)
    if INTEGER.match(text):
        return Operand("int", value=int(text, 0), **flags)
    if FLOAT.match(text):
        return Operand("float", value=float(text), **flags)
    return Operand("name", value=text, **flags)
