"""Copies by compute units: every byte arrives, no other byte changes."""

import numpy as np
import pytest

SIZES = [1, 15, 16, 255, 4096, 16384, 16385, 70001]  # 16384 is a workgroup's tile
MARGIN = 64


def random_bytes(seed: int, nbytes: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def expected(data: np.ndarray, offset: int) -> np.ndarray:
    out = np.full(data.size + MARGIN, 0xEE, np.uint8)
    out[offset : offset + data.size] = data
    return out


@pytest.mark.parametrize("to, source", [(0, 0), (1, 1), (3, 8), (16, 5)])
@pytest.mark.parametrize("groups", [1, 3])
def test_copy(bench, groups, to, source):
    for nbytes in SIZES:
        data = random_bytes(nbytes, nbytes)
        src = bench.put(np.concatenate([np.zeros(source, np.uint8), data]))
        dst = bench.put(np.full(nbytes + MARGIN, 0xEE, np.uint8))
        bench.run("copy", "copy", groups, dst[to:], src[source:], nbytes)
        assert (bench.get(dst) == expected(data, to)).all(), nbytes
