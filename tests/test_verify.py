"""Poison and comparison: nothing wrong is missed, and wrong bytes are named for what they are."""

import time

import numpy as np
import pytest

from hsakit.ffi.errors import HsakitError, InvalidArgument
from hsakit.pattern import Pattern
from hsakit.verify import VerifyError, check, compare, poison

SEED = 11
OWN = Pattern(SEED, 3)


def right(nbytes: int, offset: int = 0) -> np.ndarray:
    return OWN.bytes(offset, nbytes)


@pytest.mark.parametrize("nbytes", [1, 2, 7, 8, 9, 4095, 65537, (1 << 20) + 13])
@pytest.mark.parametrize("offset", [0, 1, 12345])
def test_right_bytes_pass(nbytes, offset):
    assert compare(right(nbytes, offset), OWN, offset) is None


def test_poison_differs_everywhere_so_that_no_missing_byte_can_hide():
    for offset in range(300):
        view = np.empty(1, dtype=np.uint8)
        poison(view, OWN, offset)
        assert view[0] != right(1, offset)[0]
        mismatch = compare(view, OWN, offset)
        assert mismatch.count == 1 and mismatch.origin.kind == "poison"
    view = np.empty(300_001, dtype=np.uint8)
    poison(view, OWN, 5)
    assert not np.any(view == right(300_001, 5))


def test_one_wrong_byte_anywhere_is_found():
    nbytes = 600_001
    for place in (0, 1, 7, 8, 262_143, 262_144, 599_999, 600_000):
        view = right(nbytes, 3)
        view[place] ^= 0x10
        mismatch = compare(view, OWN, 3)
        assert (mismatch.first, mismatch.pattern_offset, mismatch.count, mismatch.nbytes) == (
            place,
            place + 3,
            1,
            nbytes,
        )
        assert mismatch.expected == right(min(8, nbytes - place), place + 3).tobytes()
        assert mismatch.got[0] == mismatch.expected[0] ^ 0x10 and mismatch.got[1:] == mismatch.expected[1:]
        assert mismatch.origin.kind == "bit"


def test_all_wrong_bytes_are_counted_over_chunks():
    view = right(1_000_000)
    view[10:20] ^= 1
    view[700_000:900_000] ^= 0x80
    mismatch = compare(view, OWN)
    assert (mismatch.first, mismatch.count) == (10, 200_010)


def test_a_lost_tail_is_poison():
    view = np.empty(5000, dtype=np.uint8)
    poison(view, OWN, 100)
    view[:4997] = right(4997, 100)
    mismatch = compare(view, OWN, 100)
    assert (mismatch.first, mismatch.count, mismatch.origin.kind) == (4997, 3, "poison")
    assert "never written" in str(mismatch)


def test_a_hole_in_the_middle_is_poison():
    view = right(5000)
    poison(view[1000:1011], OWN, 1000)
    mismatch = compare(view, OWN)
    assert (mismatch.first, mismatch.count, mismatch.origin.kind, mismatch.origin.agree) == (1000, 11, "poison", 11)


@pytest.mark.parametrize("nbytes", [15, 16, 64, 4099])
@pytest.mark.parametrize("shift", [1, 2, 3, 8, 12, 4096, -5])
def test_another_offset_is_named(nbytes, shift):
    view = right(nbytes, 1000 + shift)
    origin = compare(view, OWN, 1000).origin
    first = compare(view, OWN, 1000).first
    assert (origin.kind, origin.pattern, origin.offset) == ("offset", OWN, 1000 + shift + first)


@pytest.mark.parametrize("rank", [0, 2, 7, 100])
def test_another_rank_is_named_without_being_told(rank):
    other = Pattern(SEED, rank)
    view = other.bytes(1003, 999)
    mismatch = compare(view, OWN, 1003)
    assert (mismatch.origin.kind, mismatch.origin.pattern) == ("rank", other)
    assert mismatch.origin.offset == 1003 + mismatch.first
    assert f"rank {rank}'s pattern" in str(mismatch) and "rank 3's pattern" in str(mismatch)


def test_another_rank_at_another_offset_inside_right_bytes():
    view = right(9000)
    view[4001:4025] = Pattern(SEED, 6).bytes(77, 24)
    origin = compare(view, OWN).origin
    first = compare(view, OWN).first
    assert (origin.kind, origin.pattern.rank, origin.offset) == ("rank", 6, 77 + first - 4001)


def test_a_few_bytes_of_another_rank_need_the_candidates():
    view = Pattern(SEED, 5).bytes(40, 3)
    assert compare(view, OWN, 40).origin.kind == "unknown"
    origin = compare(view, OWN, 40, others=[Pattern(SEED, rank) for rank in range(8)]).origin
    assert (origin.kind, origin.pattern.rank, origin.agree) == ("rank", 5, 3)


def test_the_pattern_of_an_earlier_run_is_named():
    earlier = Pattern(SEED - 1, 3)
    view = earlier.bytes(0, 500)
    assert compare(view, OWN).origin.kind == "unknown"
    origin = compare(view, OWN, others=[earlier]).origin
    assert (origin.kind, origin.pattern) == ("seed", earlier)
    assert "under seed 10" in str(origin)


def test_poison_that_was_sent_on_is_told_from_poison_that_stayed():
    stale = np.empty(300, dtype=np.uint8)
    poison(stale, Pattern(SEED, 6), 4000)
    mismatch = compare(stale, OWN, 0)
    assert mismatch.origin.kind == "moved poison"
    assert (mismatch.origin.pattern.rank, mismatch.origin.offset) == (6, 4000 + mismatch.first)


@pytest.mark.parametrize("fill", [0x00, 0xFF, 0xA5, None])
def test_strange_bytes_are_nobodys(fill):
    view = np.full(3000, fill or 0, dtype=np.uint8)
    if fill is None:
        view = np.random.default_rng(2).integers(0, 256, 3000, dtype=np.uint8)
    mismatch = compare(view, OWN)
    assert mismatch.origin.kind == "unknown" and "nobody's pattern" in str(mismatch)


def test_check_raises_with_the_mismatch_and_the_place():
    view = right(100)
    check(view, OWN)
    view[9] ^= 0xFF
    with pytest.raises(VerifyError, match=r"GPU 1: 1 of 100 bytes wrong, the first at offset 9") as caught:
        check(view, OWN, where="GPU 1")
    assert caught.value.mismatch.first == 9
    assert isinstance(caught.value, HsakitError)


@pytest.mark.parametrize("view", [np.zeros(4, dtype=np.uint16), np.zeros((2, 2), dtype=np.uint8)])
def test_other_arrays_are_refused(view):
    with pytest.raises(InvalidArgument, match="one-dimensional uint8"):
        compare(view, OWN)
    with pytest.raises(InvalidArgument, match="one-dimensional uint8"):
        poison(view, OWN)


def test_comparison_is_fast_when_bytes_are_right():
    """Some 1 to 2 GB/s on one core; the floor leaves room for a loaded machine."""
    view = right(64 << 20)
    best = 1e9
    for _ in range(3):
        start = time.perf_counter()
        assert compare(view, OWN) is None
        best = min(best, time.perf_counter() - start)
    assert view.size / best > 0.2e9
