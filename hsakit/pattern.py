"""The bytes a rank sends: a function of (seed, rank, offset) that a host and a device compute alike.

The pattern is an endless sequence of 64-bit little-endian words. Word w of a rank is

    x = (rank * 2**36 + w) * STRIDE + key(seed)        (all modulo 2**64)
    x ^= x >> 32;  x *= FACTOR;  x ^= x >> 32

which is two multiplications and two shifts, cheap in numpy and in a kernel. Every step can be undone, so 8 bytes found
in the wrong place tell which rank and offset they were made for (`locate`); no two places of one seed share a word.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hsakit.ffi.errors import InvalidArgument

WORD_BITS = 36  # of a word's index: 512 GiB a rank, more than any GPU has
MAX_OFFSET = 1 << (WORD_BITS + 3)
MAX_RANK = 1024  # a counter's upper 18 bits stay 0, so that a random word is taken for a rank's once in 2**18

STRIDE = 0x9E3779B97F4A7C15  # odd: spreads neighbouring words over all bits
FACTOR = 0xD6E8FEB86659FD93  # odd
MASK = (1 << 64) - 1
_UNSTRIDE = pow(STRIDE, -1, 1 << 64)
_UNFACTOR = pow(FACTOR, -1, 1 << 64)

_CHUNK = 1 << 15  # words worked on at once: 256 KiB and its scratch stay in a core's second-level cache
_RAMP = np.arange(_CHUNK, dtype="<u8") * np.uint64(STRIDE)
_RAMP.flags.writeable = False
_SHIFT = np.uint64(32)
_FACTOR = np.uint64(FACTOR)


def _mix(x: int) -> int:
    x ^= x >> 32
    x = x * FACTOR & MASK
    return x ^ x >> 32


def _unmix(x: int) -> int:
    x ^= x >> 32  # a shift by half the width undoes itself
    x = x * _UNFACTOR & MASK
    return x ^ x >> 32


def seed_key(seed: int) -> int:
    """The 64-bit constant that `seed` adds to every word; a device needs only this and the rank."""
    return _mix(_mix(seed & MASK) * STRIDE + FACTOR & MASK)


@dataclass(frozen=True)
class Pattern:
    """The pattern of one rank under one seed. Offsets and lengths are in bytes and need no alignment."""

    seed: int
    rank: int

    def __post_init__(self):
        if not 0 <= self.rank < MAX_RANK:
            raise InvalidArgument(f"rank {self.rank}: a pattern's rank is 0 to {MAX_RANK - 1}")
        if not 0 <= self.seed <= MASK:
            raise InvalidArgument(f"seed {self.seed}: a pattern's seed is 0 to 2**64 - 1")

    @property
    def base(self) -> int:
        """What a device has to know of seed and rank: word w is made from w * STRIDE + base, as kernels_src does."""
        return seed_key(self.seed) + (self.rank << WORD_BITS) * STRIDE & MASK

    def bytes(self, offset: int, nbytes: int) -> np.ndarray:
        """The `nbytes` bytes from byte `offset` on, as a new uint8 array."""
        out = np.empty(nbytes, dtype=np.uint8)
        self.fill(out, offset)
        return out

    def fill(self, view: np.ndarray, offset: int = 0) -> None:
        """Write the bytes from `offset` on into a one-dimensional uint8 array."""
        if view.dtype != np.uint8 or view.ndim != 1:  # else a byte would become an element
            raise InvalidArgument(
                f"a {view.ndim}-dimensional {view.dtype} array: a pattern fills one-dimensional uint8"
            )
        for start, chunk in self.chunks(offset, view.size):
            view[start : start + chunk.size] = chunk

    def chunks(self, offset: int, nbytes: int):
        """Yield (index, bytes): the pattern from `offset` on in pieces of some 256 KiB. A piece is scratch memory,
        valid (and writable) until the next one is asked for."""
        if not 0 <= offset <= MAX_OFFSET - nbytes:
            raise InvalidArgument(f"bytes {offset} to {offset + nbytes}: a pattern has bytes 0 to 2**39")
        skip = offset % 8
        word = offset // 8
        words = (skip + nbytes + 7) // 8
        base = self.base
        x = np.empty(min(words, _CHUNK), dtype="<u8")
        y = np.empty_like(x)
        done = 0
        while done < nbytes:
            n = min(words, _CHUNK)
            x, y = x[:n], y[:n]
            np.add(_RAMP[:n], np.uint64((word * STRIDE + base) & MASK), out=x)
            np.right_shift(x, _SHIFT, out=y)
            np.bitwise_xor(x, y, out=x)
            np.multiply(x, _FACTOR, out=x)
            np.right_shift(x, _SHIFT, out=y)
            np.bitwise_xor(x, y, out=x)
            piece = x.view(np.uint8)[skip : skip + nbytes - done]
            yield done, piece
            done += piece.size
            skip = 0
            word += n
            words -= n


def locate(seed: int, word: bytes) -> tuple[int, int] | None:
    """Which (rank, byte offset) of `seed` the 8 bytes `word` were made for; None when they are nobody's.

    A random word passes for somebody's once in 2**18.
    """
    x = _unmix(int.from_bytes(word, "little"))
    counter = (x - seed_key(seed)) * _UNSTRIDE & MASK
    rank, index = counter >> WORD_BITS, counter & ((1 << WORD_BITS) - 1)
    return (rank, index * 8) if rank < MAX_RANK else None
