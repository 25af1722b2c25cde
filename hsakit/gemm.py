"""The numbers of a matrix product: operands of a type, what may come out, and the tiles that it is made of."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod

import numpy as np

from hsakit.ffi.errors import HsakitError, InvalidArgument


def _to_bf16(x: np.ndarray) -> np.ndarray:
    """The bits of the nearest bfloat16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True)
class Format:
    """How elements of a type are stored and how exact a product is. norm: bound on ||C-R||_F / ||R||_F; rounding: half
    a unit in the last place of a result, relative to it, where results are rounded from f32."""

    element: np.dtype
    norm: float
    rounding: float


FORMATS = {
    "f32": Format(np.dtype(np.float32), 1e-6, 0.0),
    "f16": Format(np.dtype(np.float16), 4e-3, 2.0**-11),
    "bf16": Format(np.dtype(np.uint16), 4e-3, 2.0**-8),
}


# Rows and columns of C that a workgroup of kernels_src/gemm.hip makes, by type, the smallest first.
TILES = {
    "f32": ((64, 64),),
    "f16": ((128, 128), (256, 128)),
    "bf16": ((128, 128), (256, 128)),
}


def choose_tile(dtype: str, m: int, n: int, cus: int) -> tuple[int, int]:
    """The tile for C of m x n on so many CUs: the one in which the busiest CU has the least of C to make, the larger
    of equals.

    A CU multiplies at one rate whatever the tile, so its share counts, in whole tiles. The larger tile reads a quarter
    less of A and B, but leaves CUs idle where there are few tiles.
    """
    return min(reversed(TILES[dtype]), key=lambda tile: -(-(-(-m // tile[0]) * -(-n // tile[1])) // cus) * prod(tile))


class GemmError(HsakitError):
    """A product is not what it should be."""


def encode(dtype: str, x: np.ndarray) -> np.ndarray:
    """Numbers as elements of a type; those of bf16 are their bits."""
    return _to_bf16(x) if dtype == "bf16" else x.astype(FORMATS[dtype].element)


def decode(dtype: str, elements: np.ndarray) -> np.ndarray:
    """Elements of a type as float64."""
    return (_from_bf16(elements) if dtype == "bf16" else elements).astype(np.float64)


class Product:
    """A product of random operands in a type, with its result in float64. ``a`` is m x k, ``b`` is k x n.

    InvalidArgument if the host has no memory for that: without the question Linux ends the process in the middle."""

    def __init__(self, dtype: str, m: int, n: int, k: int, seed: int):
        needed = 8 * (2 * (m + n) * k + 3 * m * n)  # in float64: a, b, |a|, |b|, the result, its bound, |a||b|
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > there:
            raise InvalidArgument(
                f"{dtype} {m} x {n} x {k}: the right result takes {needed / 2**30:.4g} GiB of the host's memory; "
                f"it has {there / 2**30:.4g}"
            )
        rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.a = encode(dtype, rng.standard_normal((m, k), np.float32))
        self.b = encode(dtype, rng.standard_normal((k, n), np.float32))
        a, b = decode(dtype, self.a), decode(dtype, self.b)
        self.result = a @ b
        # A sum of k products in f32 may lose a unit in the last place of |A||B| with each; then it is rounded.
        self._allowed = (k + 2) * 2.0**-23 * (np.abs(a) @ np.abs(b))
        self._allowed += FORMATS[dtype].rounding * np.abs(self.result)

    @property
    def allowed(self) -> np.ndarray:
        """What each element of C may be off."""
        return self._allowed

    def check(self, elements: np.ndarray) -> None:
        """Raise GemmError unless the elements of C, m x n, are right: their norm of error, and each for itself."""
        error = np.abs(decode(self.dtype, elements).reshape(self.result.shape) - self.result)
        wrong = ~(error <= self._allowed)  # also what is no number
        if wrong.any():
            at = tuple(map(int, np.argwhere(wrong)[0]))
            raise GemmError(
                f"{np.count_nonzero(wrong)} of {error.size} elements of C wrong, the first at {at}: "
                f"{decode(self.dtype, elements).reshape(self.result.shape)[at]:.9g} where {self.result[at]:.9g} is "
                f"right, within {self._allowed[at]:.3g}"
            )
        norm = float(np.linalg.norm(error) / np.linalg.norm(self.result))
        if not norm <= FORMATS[self.dtype].norm:
            raise GemmError(f"||C-R||/||R|| is {norm:.3g}: more than {FORMATS[self.dtype].norm:g}")
