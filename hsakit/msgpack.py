"""Decode MessagePack, as code objects carry their metadata in it. Format: msgpack/spec.md."""

from __future__ import annotations

import struct

# First byte -> how a value or its length follows.
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_NUMBERS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_STRINGS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_BYTES = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I"}
_ARRAYS = {0xDC: ">H", 0xDD: ">I"}
_MAPS = {0xDE: ">H", 0xDF: ">I"}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


class Error(ValueError):
    """The bytes are no MessagePack value, or end within one."""


def decode(data: bytes):
    """The one value in ``data``, bytes after it ignored (a note is padded). Extension types are refused."""
    reader = _Reader(data)
    try:
        return reader.value()
    except (UnicodeDecodeError, RecursionError, TypeError) as error:  # TypeError: a map as a map's key
        raise Error(f"MessagePack, byte {reader.at}: {error}") from None


class _Reader:
    def __init__(self, data: bytes):
        self.data = data
        self.at = 0

    def value(self):
        first = self.number(">B")
        if first <= 0x7F:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first <= 0x8F:
            return self.map(first & 0x0F)
        if first <= 0x9F:
            return self.array(first & 0x0F)
        if first <= 0xBF:
            return self.bytes(first & 0x1F).decode()
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            return self.number(_NUMBERS[first])
        if first in _STRINGS:
            return self.bytes(self.number(_STRINGS[first])).decode()
        if first in _BYTES:
            return self.bytes(self.number(_BYTES[first]))
        if first in _ARRAYS:
            return self.array(self.number(_ARRAYS[first]))
        if first in _MAPS:
            return self.map(self.number(_MAPS[first]))
        raise Error(f"MessagePack, byte {self.at - 1}: type 0x{first:02x} is not supported")

    def number(self, form: str):
        (number,) = struct.unpack(form, self.bytes(struct.calcsize(form)))
        return number

    def bytes(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise Error(f"MessagePack, byte {self.at}: {size} bytes announced, {len(self.data) - self.at} left")
        self.at += size
        return self.data[self.at - size : self.at]

    def array(self, count: int) -> list:
        return [self.value() for _ in range(count)]

    def map(self, count: int) -> dict:
        return {self.value(): self.value() for _ in range(count)}
