"""Bytes before numbers: poison a destination, run, compare byte for byte, and say whose the wrong bytes are.

Poison is the complement of the bytes that should arrive. So every byte that was never written is wrong for certain, be
it the only one of a 1-byte copy, and a stretch of poison found elsewhere still tells for which place it was written.
Views are one-dimensional contiguous uint8 arrays; offsets are bytes of the pattern.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hsakit.ffi.errors import HsakitError, InvalidArgument
from hsakit.pattern import MAX_OFFSET, Pattern, locate

_WINDOW = 64  # wrong bytes looked at to find out whose they are
_SHOWN = 8  # bytes shown of what was expected and what came


@dataclass(frozen=True)
class Origin:
    """Where wrong bytes come from, as far as their values tell.

    kind: "poison" (never written), "offset" (this rank's pattern from another offset), "rank" (another rank's pattern),
    "seed" (another run's pattern), "moved poison" (poison of another place: stale bytes were sent), "bit" (one bit
    differs), "unknown".
    pattern, offset: whose pattern, and which byte of it the first wrong byte is; None where the kind has none.
    agree, wrong: how many bytes from the first wrong one on fit this account, and how many are wrong before the first
    right one (64 are looked at). Few may be chance.
    """

    kind: str
    pattern: Pattern | None = None
    offset: int | None = None
    agree: int = 0
    wrong: int = 0

    def __str__(self) -> str:
        if self.kind == "bit":
            return "which differs in one bit"
        if self.pattern is None:
            return "which is nobody's pattern"
        whose = f"rank {self.pattern.rank}'s pattern at {self.offset}"
        text = {
            "poison": "poison: never written",
            "offset": f"which is {whose}",
            "rank": f"which is {whose}",
            "seed": f"which is {whose} under seed {self.pattern.seed}",
            "moved poison": f"poison of {whose}: stale bytes were sent",
        }[self.kind]
        return f"{text} (on {self.agree} bytes)"


@dataclass(frozen=True)
class Mismatch:
    """What a comparison found wrong.

    first: index in the view of the first wrong byte; pattern_offset: the pattern's offset there; count: wrong bytes in
    all, of nbytes compared; expected, got: up to 8 bytes from the first wrong one on.
    """

    first: int
    pattern_offset: int
    count: int
    nbytes: int
    rank: int
    expected: bytes
    got: bytes
    origin: Origin

    def __str__(self) -> str:
        return (
            f"{self.count} of {self.nbytes} bytes wrong, the first at offset {self.first}: "
            f"expected {self.expected.hex(' ')} (rank {self.rank}'s pattern at {self.pattern_offset}), "
            f"got {self.got.hex(' ')}, {self.origin}"
        )


class VerifyError(HsakitError):
    """Bytes are not what they should be; `mismatch` says how."""

    def __init__(self, mismatch: Mismatch, where: str = ""):
        super().__init__(f"{where}: {mismatch}" if where else str(mismatch))
        self.mismatch = mismatch


def poison(view: np.ndarray, pattern: Pattern, offset: int = 0) -> None:
    """Fill `view` with bytes of which each differs from the one that should arrive there."""
    _refuse_other_views(view)
    for start, chunk in pattern.chunks(offset, view.size):
        np.invert(chunk, out=view[start : start + chunk.size])


def compare(view: np.ndarray, pattern: Pattern, offset: int = 0, others: Iterable[Pattern] = ()) -> Mismatch | None:
    """Compare every byte of `view` with `pattern` from `offset` on; None when all are right.

    `others` are patterns the bytes may have been mixed up with: they are needed only to name another rank when fewer
    than 8 bytes are wrong, or a pattern of another seed.
    """
    _refuse_other_views(view)
    count, first = 0, -1
    for start, chunk in pattern.chunks(offset, view.size):
        wrong = view[start : start + chunk.size] != chunk
        found = int(np.count_nonzero(wrong))
        if found and first < 0:
            first = start + int(np.argmax(wrong))
        count += found
    if not count:
        return None
    window = view[first : first + _WINDOW].copy()
    expected = pattern.bytes(offset + first, window.size)
    return Mismatch(
        first=first,
        pattern_offset=offset + first,
        count=count,
        nbytes=view.size,
        rank=pattern.rank,
        expected=expected[:_SHOWN].tobytes(),
        got=window[:_SHOWN].tobytes(),
        origin=_origin(window, expected, count, pattern, offset + first, others),
    )


def check(view: np.ndarray, pattern: Pattern, offset: int = 0, where: str = "", others: Iterable[Pattern] = ()) -> None:
    """Raise VerifyError unless every byte of `view` is the pattern's. `where` begins the message."""
    mismatch = compare(view, pattern, offset, others)
    if mismatch:
        raise VerifyError(mismatch, where)


def _refuse_other_views(view: np.ndarray) -> None:
    if view.dtype != np.uint8 or view.ndim != 1:
        raise InvalidArgument(
            f"a {view.ndim}-dimensional {view.dtype} array: bytes are compared as one-dimensional uint8"
        )


def _agreement(got: np.ndarray, supposed: np.ndarray) -> int:
    """How many leading bytes agree."""
    wrong = got != supposed
    return int(np.argmax(wrong)) if wrong.any() else got.size


def _origin(got, expected, count: int, pattern: Pattern, offset: int, others: Iterable[Pattern]) -> Origin:
    """Whose the bytes `got` are, where `expected` (the pattern from `offset` on) should be. The first one is wrong."""
    differs = got != expected
    run = got.size if differs.all() else int(np.argmin(differs))
    if count == 1 and (int(got[0]) ^ int(expected[0])).bit_count() == 1:
        return Origin("bit", wrong=1)
    if _agreement(got, ~expected) == run:  # poison as far as bytes are wrong: no other account can fit better
        return Origin("poison", pattern, offset, run, run)
    best = Origin("unknown", wrong=run)
    for moved, data in ((False, got), (True, ~got)):
        for other, at in _candidates(data, pattern, offset, others):
            agree = _agreement(data, other.bytes(at, data.size))
            # All of the wrong bytes, or a whole word of them at the least: less is chance.
            if agree > best.agree and agree >= min(run, 8):
                best = Origin(_kind(moved, other, at, pattern, offset), other, at, agree, run)
    return best


def _kind(moved: bool, other: Pattern, at: int, pattern: Pattern, offset: int) -> str:
    if moved:
        return "poison" if (other, at) == (pattern, offset) else "moved poison"
    if other.seed != pattern.seed:
        return "seed"
    return "rank" if other.rank != pattern.rank else "offset"


def _candidates(data: np.ndarray, pattern: Pattern, offset: int, others: Iterable[Pattern]):
    """Patterns and offsets that the bytes could be: what their words decode to at each of 8 alignments, then the
    same offset of the patterns named."""
    others = tuple(others)
    for seed in dict.fromkeys([pattern.seed, *(other.seed for other in others)]):
        for skip in range(min(8, data.size - 7)):
            found = locate(seed, data[skip : skip + 8].tobytes())
            if found and skip <= found[1] <= MAX_OFFSET - _WINDOW:
                yield Pattern(seed, found[0]), found[1] - skip
    for other in others:
        if other != pattern:
            yield other, offset
