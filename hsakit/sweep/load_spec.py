"""Loads as a person writes them: `bf16:1024x1024x512`, `64M/304`, and the arguments of any kernel."""

from __future__ import annotations

from pathlib import Path

from hsakit.ffi.errors import InvalidArgument
from hsakit.gemm import FORMATS
from hsakit.sweep.loads import Argument, Copy, Gemm
from hsakit.sweep.sizes import parse_size


def parse_gemm(text: str) -> Gemm:
    """``bf16:1024x1024x512``, or with the letters of A and B ``bf16:1024x1024x512:nt``."""
    dtype, _, rest = text.partition(":")
    shape, _, layout = rest.partition(":")
    sizes = shape.split("x")
    if dtype not in FORMATS or len(sizes) != 3 or not all(size.isdecimal() and int(size) for size in sizes):
        raise InvalidArgument(f"gemm {text!r}: expected TYPE:MxNxK, as bf16:1024x1024x512; {', '.join(FORMATS)}")
    if layout not in ("", "nn", "nt", "tn", "tt"):
        raise InvalidArgument(f"gemm {text!r}: A and B are n (row-major) or t (column-major), as bf16:64x64x64:nt")
    m, n, k = map(int, sizes)
    return Gemm(dtype, m, n, k, layout or "nn")


def parse_copy(text: str) -> Copy:
    """``64M``, or with the number of workgroups ``64M/304``."""
    size, slash, workgroups = text.partition("/")
    if slash and not (workgroups.isdecimal() and int(workgroups)):
        raise InvalidArgument(f"copy {text!r}: expected SIZE or SIZE/WORKGROUPS, as 64M/304")
    return Copy(parse_size(size), int(workgroups) if slash else None)


def parse_argument(text: str) -> Argument:
    """``5``, ``0x10``, ``1.5``, ``in:4K``, ``out:4K``, ``inout:4K``, or with files ``in:@a.bin``, ``out:@c.bin``."""
    kind, colon, what = text.partition(":")
    if colon and kind in ("in", "out", "inout"):
        if what.startswith("@"):
            return Argument(kind, file=parse_file(what[1:]))
        return Argument(kind, nbytes=parse_size(what))
    for parse in (lambda word: int(word, 0), float):
        try:
            return Argument("value", value=parse(text))
        except ValueError:
            pass
    raise InvalidArgument(
        f"argument {text!r}: expected a number (5, 0x10, 1.5) or memory (in:4K, out:4K, inout:4K, in:@FILE, out:@FILE)"
    )


def parse_extent(text: str) -> tuple[int, ...]:
    """``304`` or ``16x19``: sizes along x, y and z."""
    sizes = text.split("x")
    if not 1 <= len(sizes) <= 3 or not all(size.isdecimal() and int(size) for size in sizes):
        raise InvalidArgument(f"{text!r}: expected X, XxY or XxYxZ, each at least 1")
    return tuple(map(int, sizes))


def parse_file(text: str) -> Path:
    """A file that is there."""
    if not Path(text).is_file():
        raise InvalidArgument(f"there is no file {text!r}")
    return Path(text)
