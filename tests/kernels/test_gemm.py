"""GEMM against float64, on shapes that are no multiples of a tile, at addresses that are not aligned."""

import numpy as np
import pytest

from hsakit.gemm import TILES

SHAPES = [  # m, n, k, elements beyond a line, elements before the first
    (1, 1, 1, 0, 0),
    (129, 65, 33, 3, 1),
    (7, 200, 31, 0, 1),
    (130, 3, 100, 5, 0),
    (192, 130, 64, 0, 0),
    (260, 133, 235, 3, 1),  # where the 16-bit kernels have tiles that are inside, and edges on all sides
]


def bf16(x: np.ndarray) -> np.ndarray:
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


# to the type's bits, back to float64, half an ulp of the result relative to it, bound on the norm
TYPES = {
    "f32": (lambda x: x.astype(np.float32), lambda x: x.astype(np.float64), 0.0, 1e-6),
    "f16": (lambda x: x.astype(np.float16), lambda x: x.astype(np.float64), 2.0**-11, 4e-3),
    "bf16": (bf16, from_bf16, 2.0**-8, 4e-3),
}
KINDS = [(kind, *tile) for kind, tiles in TILES.items() for tile in tiles]


def stored(x: np.ndarray, rows: bool, extra: int, before: int, filler) -> tuple[np.ndarray, int]:
    """The matrix in memory, and its leading dimension. What is no element is ``filler``; the last element ends it."""
    lines = x if rows else x.T
    padded = np.full((lines.shape[0], lines.shape[1] + extra), filler, x.dtype)
    padded[:, : lines.shape[1]] = lines
    flat = np.concatenate([np.full(before, filler, x.dtype), padded.reshape(-1)])
    return flat[: flat.size - extra], padded.shape[1]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("kind, rows, columns", KINDS)
def test_against_float64(bench, kind, rows, columns, layout):
    encode, decode, rounding, bound = TYPES[kind]
    rng = np.random.default_rng(7)
    for m, n, k, extra, before in SHAPES:
        a, b = encode(rng.standard_normal((m, k))), encode(rng.standard_normal((k, n)))
        nan = encode(np.array([np.nan]))[0]
        flat_a, lda = stored(a, layout[0] == "n", extra, before, nan)
        flat_b, ldb = stored(b, layout[1] == "n", extra, before, nan)
        poison = np.frombuffer(b"\xa5" * a.itemsize, a.dtype)[0]
        ldc = n + extra
        out = bench.put(np.full(before + m * ldc, poison, a.dtype))
        skip = before * a.itemsize
        grid = (-(-n // columns), -(-m // rows))
        operands = (bench.put(flat_a)[skip:], bench.put(flat_b)[skip:], out[skip:])
        bench.run("gemm", f"gemm_{kind}_{layout}_{rows}x{columns}", grid, *operands, m, n, k, lda, ldb, ldc)

        got = bench.get(out, a.dtype)
        assert (got[:before] == poison).all()
        got = got[before:].reshape(m, ldc)
        assert (got[:, n:] == poison).all()
        da, db = decode(a), decode(b)
        reference = da @ db
        error = np.abs(decode(got[:, :n].copy()) - reference)
        assert np.linalg.norm(error) <= bound * np.linalg.norm(reference), (m, n, k)
        allowed = (k + 2) * 2.0**-23 * (np.abs(da) @ np.abs(db)) + rounding * np.abs(reference)
        assert (error <= allowed).all(), (m, n, k)


def test_bf16_rounds_to_nearest_even_and_keeps_nans(bench):
    """A is a column and B one element, so that each element of C is one product, exact in f32 before it is rounded."""
    a = bf16(np.concatenate([1 + np.arange(128) / 128, [3.3e38, np.inf, np.nan]]))
    for factor in (1 + 1 / 128, 1 + 3 / 128, -1.5, 1.0):  # products beyond, before and at ties of both kinds
        b = bf16(np.array([factor]))
        out = bench.put(np.zeros(a.size, np.uint16))
        grid = (1, -(-a.size // 128))
        bench.run("gemm", "gemm_bf16_nn_128x128", grid, bench.put(a), bench.put(b), out, a.size, 1, 1, 1, 1, 1)
        got = bench.get(out, np.uint16)
        with np.errstate(over="ignore"):
            want = bf16(from_bf16(a) * from_bf16(b))
        assert (got[:-1] == want[:-1]).all(), factor
        assert np.isnan(from_bf16(got[-1:]))
