"""The bytes that ranks send, and those that must come out.

What moves is every rank's pattern (``hsakit.pattern``). So it is where i32 is summed, which wraps around. Floats are
small whole numbers drawn from the pattern: their sums are exact in every format and in every order, so that results
compare byte for byte whatever the way that they took.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hsakit.collectives.operation import ITEMSIZE, Block, Operation
from hsakit.gemm import decode, encode
from hsakit.pattern import Pattern

_SPAN = 15  # floats are -7 to 7: 18 of them add up to less than 128, all that bf16 counts to


def plain(operation: Operation) -> bool:
    """Whether what is sent is the pattern itself."""
    return not operation.reduces or operation.dtype == "i32"


def sent(operation: Operation, pattern: Pattern, offset: int, nbytes: int) -> np.ndarray:
    """Bytes ``offset`` and on of what the pattern's rank sends."""
    raw = pattern.bytes(offset, nbytes)
    if plain(operation):
        return raw
    numbers = raw[:: ITEMSIZE[operation.dtype]].astype(np.float32) % _SPAN - _SPAN // 2
    return encode(operation.dtype, numbers).view(np.uint8)


def result(operation: Operation, block: Block, patterns: Sequence[Pattern]) -> np.ndarray:
    """The bytes of a block of a result; ``patterns`` by rank."""
    parts = [sent(operation, patterns[rank], block.src_offset, block.nbytes) for rank in block.src]
    if len(parts) == 1:
        return parts[0]
    if operation.dtype == "i32":
        return np.array(sum(part.view(np.uint32) for part in parts), np.uint32).view(np.uint8)
    numbers = [decode(operation.dtype, _elements(operation.dtype, part)) for part in parts]
    return encode(operation.dtype, np.sum(numbers, axis=0)).view(np.uint8)


def _elements(dtype: str, raw: np.ndarray) -> np.ndarray:
    return raw.view({"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[dtype])
