"""Bank conflicts of LDS: of patterns that are known, and of our GEMM, which is to have none."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest

from hsakit.gemm import TILES, Product
from hsakit.kernels import Kernels
from hsakit.softgpu.exec import families  # noqa: F401  (defines the instructions)
from hsakit.softgpu.exec.banks import conflicts, counted

LANE = np.arange(64)
ALL = np.ones(64, bool)
# lanes 0 to 3 and 20 to 23 at other words of the same banks, all others at words of the other banks
NEIGHBOURS_OF_0 = LANE % 4 * 16 + np.select([LANE < 4, LANE // 4 == 5], [0, 128], 64)


@pytest.mark.parametrize(
    "offsets, lanes, nbytes, read, expected",
    [
        (LANE * 4, ALL, 4, True, 0),
        (LANE * 8, ALL, 4, True, 2),  # every other bank: two words of each, in both halves
        (LANE * 128, ALL, 4, False, 62),  # one bank
        (LANE * 132, ALL, 4, False, 0),
        (LANE * 0, ALL, 4, True, 0),  # one word
        (LANE * 2, ALL, 2, True, 0),  # two lanes a word
        (LANE * 8, ALL, 8, True, 0),
        (LANE * 16, ALL, 16, True, 0),
        (LANE * 16, ALL, 16, False, 0),
        (LANE * 64, ALL, 16, True, 24),  # rows of 64 bytes: 2 of them fill the banks, 8 read together
        (LANE * 80, ALL, 16, True, 0),  # padded by 16 bytes
        (LANE * 64, LANE % 4 == 0, 16, True, 8),  # two of each group: 0 with 20, both in the same bank
        (LANE // 4 * 16 % 128 + LANE // 32 * 128 + LANE % 4 * 4, ALL, 4, True, 0),
        (NEIGHBOURS_OF_0, ALL, 16, True, 1),
        (NEIGHBOURS_OF_0, ALL, 16, False, 0),
    ],
)
def test_conflicts_of_one_access(offsets, lanes, nbytes, read, expected):
    assert conflicts(offsets[None].astype(np.uint32), lanes[None], nbytes, read) == expected
    twice = np.stack([offsets, offsets]).astype(np.uint32)
    assert conflicts(twice, np.stack([lanes, lanes]), nbytes, read) == 2 * expected  # waves do not meet


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("rows, columns", TILES["bf16"])
def test_the_gemm_has_none(runtime, rows, columns, layout):
    m, n, k = rows, columns, 256
    product, gpu = Product("bf16", m, n, k, seed=5), runtime.gpus[0]
    stored = (product.a if layout[0] == "n" else product.a.T, product.b if layout[1] == "n" else product.b.T)
    with ExitStack() as stack:
        accesses, found = stack.enter_context(counted())
        pool = runtime.cpus[0].pool("fine")
        memory = [stack.enter_context(pool.allocate(2 * size, access=gpu)) for size in (m * k, k * n, m * n)]
        for buffer, matrix in zip(memory, stored):
            buffer.view(np.uint16)[:] = matrix.reshape(-1)
        kernels = stack.enter_context(Kernels(gpu))
        queue, done = stack.enter_context(gpu.create_queue(64)), stack.enter_context(runtime.create_signal(1))
        kernels.gemm("bf16", layout, *memory, m, n, k, tile=(rows, columns)).launch(queue, done)
        done.wait(deadline=60)
        product.check(memory[2].view(np.uint16))
    turns = 4 + k // 32  # of which the first four only load, each of 4 waves
    assert accesses["ds_read_b128"] == turns * 4 * 2 * (rows + columns) // 2 // 32
    wide = rows * (layout[0] == "n") + columns * (layout[1] == "t")
    assert accesses["ds_write_b128"] == turns * 4 * wide // 64
    written = sum(number for name, number in accesses.items() if "write" in name)
    assert written == turns * 4 * (wide + 4 * (rows + columns - wide)) // 64
    assert sum(found.values()) == 0, found
