"""What a library of column-major matrices is to multiply, for C = A B of row-major ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hsakit.ffi.errors import InvalidArgument
from hsakit.gemm import FORMATS

if TYPE_CHECKING:
    from hsakit.hsa.memory import Span

_INT_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class Operand:
    """A matrix in memory as column-major ``rows`` x ``columns`` without gaps, multiplied as it is or ``transposed``."""

    memory: Span
    rows: int
    columns: int
    transposed: bool = False


@dataclass(frozen=True)
class Product:
    """C = A B as ``Kernels.gemm`` has it, for a library: a row-major matrix is its transpose in column-major order, and
    C's transpose is B's times A's. So B comes first."""

    dtype: str
    layout: str
    a: Span
    b: Span
    c: Span
    m: int
    n: int
    k: int

    def __post_init__(self):
        if self.dtype not in FORMATS or self.layout not in ("nn", "nt", "tn", "tt"):
            raise InvalidArgument(f"gemm {self.dtype!r} {self.layout!r}: {', '.join(FORMATS)}, and nn, nt, tn, tt")
        if not 1 <= min(self.m, self.n, self.k) <= max(self.m, self.n, self.k) <= _INT_MAX:
            raise InvalidArgument(f"gemm of {self}: each is at least 1 and less than 2**31")
        size = FORMATS[self.dtype].element.itemsize
        for name, operand in (("a", self.second), ("b", self.first), ("c", self.result)):
            needed = operand.rows * operand.columns * size
            if operand.memory.nbytes < needed:
                raise InvalidArgument(f"{name}: {operand.memory!r} is smaller than the {needed} bytes of the matrix")

    def __str__(self) -> str:
        return f"{self.dtype} {self.layout} m={self.m} n={self.n} k={self.k}"

    @property
    def first(self) -> Operand:
        """B: the library's A."""
        straight = self.layout[1] == "n"
        return Operand(self.b, *((self.n, self.k) if straight else (self.k, self.n)), transposed=not straight)

    @property
    def second(self) -> Operand:
        """A: the library's B."""
        straight = self.layout[0] == "n"
        return Operand(self.a, *((self.k, self.m) if straight else (self.m, self.k)), transposed=not straight)

    @property
    def result(self) -> Operand:
        """C: n x m."""
        return Operand(self.c, self.n, self.m)
