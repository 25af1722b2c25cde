"""The pattern's bytes: the same from any offset, by any chunking, and as a kernel would compute them."""

import time

import numpy as np
import pytest

from hsakit import pattern as module
from hsakit.ffi.errors import InvalidArgument
from hsakit.pattern import MAX_OFFSET, MAX_RANK, Pattern, locate, seed_key

MASK = (1 << 64) - 1


def word_by_the_definition(seed: int, rank: int, index: int) -> int:
    """The module's text in plain integers, as a kernel would have it."""
    x = (((rank << 36) + index) * 0x9E3779B97F4A7C15 + seed_key(seed)) & MASK
    x ^= x >> 32
    x = x * 0xD6E8FEB86659FD93 & MASK
    return x ^ x >> 32


@pytest.mark.parametrize("seed, rank", [(0, 0), (1, 7), (MASK, MAX_RANK - 1)])
def test_words_follow_the_definition(seed, rank):
    first = 12_345_678_901
    words = Pattern(seed, rank).bytes(first * 8, 40 * 8).view("<u8")
    assert [int(word) for word in words] == [word_by_the_definition(seed, rank, first + i) for i in range(40)]


def test_any_offset_and_length_cut_the_same_sequence():
    pattern = Pattern(5, 2)
    whole = pattern.bytes(1000, 400)
    for offset in range(17):
        for nbytes in (0, 1, 2, 7, 8, 9, 63, 380):
            assert pattern.bytes(1000 + offset, nbytes).tobytes() == whole[offset : offset + nbytes].tobytes()


def test_chunks_join_to_the_same_bytes():
    pattern = Pattern(9, 1)
    nbytes = 3 * 8 * module._CHUNK + 5
    whole = pattern.bytes(3, nbytes)
    assert whole.size == nbytes
    for cut in (1, 8 * module._CHUNK - 3, 8 * module._CHUNK, 8 * module._CHUNK + 1, nbytes - 1):
        joined = np.concatenate([pattern.bytes(3, cut), pattern.bytes(3 + cut, nbytes - cut)])
        assert np.array_equal(joined, whole)


def test_fill_writes_the_view_and_nothing_beside_it():
    memory = np.full(100, 0xEE, dtype=np.uint8)
    Pattern(1, 1).fill(memory[3:90], 11)
    assert memory[3:90].tobytes() == Pattern(1, 1).bytes(11, 87).tobytes()
    assert memory[:3].tobytes() == b"\xee" * 3 and memory[90:].tobytes() == b"\xee" * 10


def test_bytes_tell_places_ranks_and_seeds_apart():
    """By chance 1 byte in 256 is equal. A shifted or old pattern is no more alike than that, another rank's hardly."""
    n = 1 << 18
    own = Pattern(3, 4).bytes(0, n)
    strangers = [Pattern(3, 4).bytes(shift, n) for shift in (1, 2, 3, 4, 7, 8, 16, 64, 4096, 1 << 20, 1 << 32, 1 << 38)]
    strangers += [Pattern(seed, 4).bytes(0, n) for seed in (0, 2, 4)]
    for stranger in strangers:
        assert abs(np.count_nonzero(own == stranger) / n - 1 / 256) < 0.001
    for rank in (0, 1, 2, 3, 5, 6, 7, 8, MAX_RANK - 1):
        assert np.count_nonzero(own == Pattern(3, rank).bytes(0, n)) / n < 2 / 256
    for lane in range(8):  # each byte of the word takes all values
        assert np.bincount(own[lane::8], minlength=256).min() > 0.5 * n / 8 / 256


@pytest.mark.parametrize("rank", [0, 1, 8, MAX_RANK - 1])
@pytest.mark.parametrize("offset", [0, 8, 4096, (1 << 38) - 8, MAX_OFFSET - 8])
def test_locate_inverts_a_word(rank, offset):
    assert locate(77, Pattern(77, rank).bytes(offset, 8).tobytes()) == (rank, offset)


def test_locate_knows_a_stranger():
    words = np.random.default_rng(1).integers(0, 256, size=(1000, 8), dtype=np.uint8)
    assert not [word for word in words if locate(77, word.tobytes())]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Pattern(0, MAX_RANK),
        lambda: Pattern(0, -1),
        lambda: Pattern(-1, 0),
        lambda: Pattern(1 << 64, 0),
        lambda: Pattern(0, 0).bytes(-1, 4),
        lambda: Pattern(0, 0).bytes(MAX_OFFSET - 3, 4),
    ],
)
def test_out_of_range_is_refused(make):
    with pytest.raises(InvalidArgument):
        make()


def test_generation_is_fast_enough_to_verify_every_run():
    """Some 2 to 4 GB/s on one core; the floor leaves room for a loaded machine."""
    memory = np.ones(64 << 20, dtype=np.uint8)
    best = 1e9
    for _ in range(3):
        start = time.perf_counter()
        Pattern(1, 2).fill(memory)
        best = min(best, time.perf_counter() - start)
    assert memory.size / best > 0.3e9


@pytest.mark.parametrize("view", [np.zeros(8, np.float32), np.zeros((2, 4), np.uint8), np.zeros(8, np.int8)])
def test_only_bytes_in_a_row_are_filled(view):
    with pytest.raises(InvalidArgument, match="a pattern fills one-dimensional uint8"):
        Pattern(1, 1).fill(view)
    assert not view.any()
