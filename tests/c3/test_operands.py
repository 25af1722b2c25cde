"""Results of GEMMs of any size: what is right passes, what is not does not."""

import numpy as np
import pytest

from hsakit.c3.operands import PERIOD, Operands
from hsakit.c3.scenario import parse
from hsakit.gemm import GemmError, decode, encode


def matrices(scenario):
    """A and B as numbers, and C as a GPU would leave it."""
    operands = Operands(scenario)
    size = np.dtype(np.float32 if scenario.dtype == "f32" else np.uint16).itemsize
    a, b = np.zeros(scenario.m * scenario.k * size, np.uint8), np.zeros(scenario.k * scenario.n * size, np.uint8)
    operands.fill_a(a)
    operands.fill_b(b)

    def numbers(view, rows, columns, letter):
        stored = (rows, columns) if letter == "n" else (columns, rows)
        found = decode(scenario.dtype, view.view(np.uint16 if size == 2 else np.float32)).reshape(stored)
        return found if letter == "n" else found.T

    a = numbers(a, scenario.m, scenario.k, scenario.layout[0])
    b = numbers(b, scenario.k, scenario.n, scenario.layout[1])
    c = np.ascontiguousarray(encode(scenario.dtype, (a @ b).astype(np.float32)))
    return operands, c


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("shape", ["bf16:700x650x16", "f32:64x48x8", "bf16:330x20x8"])
def test_the_right_product_passes(layout, shape):
    operands, c = matrices(parse(f"{shape}:{layout}+all-gather:1K"))
    operands.check(c.view(np.uint8).reshape(-1))


@pytest.mark.parametrize("at", [(0, 0), (PERIOD, 0), (0, PERIOD), (699, 649)])
def test_a_skipped_tile_shows_wherever_it_is(at):
    operands, c = matrices(parse("bf16:700x650x16+all-gather:1K"))
    poisoned = c.view(np.uint8).reshape(-1).copy()
    operands.poison(poisoned)
    poisoned = poisoned.view(np.uint16).reshape(c.shape)
    row, column = (each // 128 * 128 for each in at)
    c[row : row + 128, column : column + 128] = poisoned[row : row + 128, column : column + 128]
    with pytest.raises(GemmError):
        operands.check(c.view(np.uint8).reshape(-1))


def test_tiles_in_each_others_places_show():
    operands, c = matrices(parse("bf16:700x650x16+all-gather:1K"))
    c[:128, :128], c[128:256, :128] = c[128:256, :128].copy(), c[:128, :128].copy()
    with pytest.raises(GemmError):
        operands.check(c.view(np.uint8).reshape(-1))
    operands, c = matrices(parse("bf16:700x650x16+all-gather:1K"))
    c[384:512, :128], c[512:640, :128] = c[512:640, :128].copy(), c[384:512, :128].copy()
    with pytest.raises(GemmError, match="the first at element"):
        operands.check(c.view(np.uint8).reshape(-1))
