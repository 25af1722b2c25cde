"""The pattern made and compared by the device is the pattern of hsakit.pattern."""

import numpy as np
import pytest

from hsakit.pattern import MASK, MAX_OFFSET, Pattern

# place of the first byte in its 8-byte unit, bytes, offset in the pattern
RANGES = [
    (0, 4096, 0),
    (0, 4096, 8),
    (3, 4000, 5),
    (5, 7, 3),
    (7, 1, 9),
    (4, 3, MAX_OFFSET - 3),
    (1, 15, (1 << 38) + 2),
    (0, 8, 7),
    (2, 20_001, 12345),
]
NOTHING = np.array([0, MASK], np.uint64)


@pytest.mark.parametrize("place, nbytes, offset", RANGES)
def test_fill_and_compare(bench, place, nbytes, offset):
    pattern = Pattern(seed=42, rank=1023)
    margin = 16 + (-place - nbytes) % 8  # what follows the range to the end of a page
    out = bench.put(np.full(nbytes + margin, 0xEE, np.uint8))
    assert out.address % 8 == place
    bench.run("pattern", "pattern_poison", 3, out, nbytes, offset, pattern.base)
    assert (bench.get(out)[:nbytes] == ~pattern.bytes(offset, nbytes)).all()
    bench.run("pattern", "pattern_fill", 3, out, nbytes, offset, pattern.base)
    got = bench.get(out)
    assert (got[:nbytes] == pattern.bytes(offset, nbytes)).all()
    assert (got[nbytes:] == 0xEE).all()

    found = bench.put(NOTHING)
    bench.run("pattern", "pattern_compare", 3, out, nbytes, offset, pattern.base, found)
    assert (bench.get(found, np.uint64) == NOTHING).all()
    wrong = np.random.default_rng(nbytes).permutation(nbytes)[:5]
    got[wrong] ^= 0x80
    damaged = bench.put(got)
    bench.run("pattern", "pattern_compare", 3, damaged, nbytes, offset, pattern.base, found)
    assert list(bench.get(found, np.uint64)) == [len(wrong), min(wrong)]


def test_every_byte_wrong(bench):
    nbytes = 10_003
    zeros = bench.put(np.zeros(nbytes, np.uint8))
    found = bench.put(NOTHING)
    pattern = Pattern(seed=1, rank=0)
    bench.run("pattern", "pattern_compare", 2, zeros, nbytes, 77, pattern.base, found)
    differs = np.flatnonzero(pattern.bytes(77, nbytes))
    assert list(bench.get(found, np.uint64)) == [differs.size, differs[0]]
