"""Bytes that an engine moves: read when the copy begins, written when it ends.

They are not taken aside unless somebody writes to the source meanwhile: what the copy would have read is kept then.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .memory import PAGE, AddressSpace

SLICE = 4 << 20  # bytes until the node's other business is looked at
ROWS = 512  # the same for rectangles, whose cost is a row


LARGE = 1 << 20  # bytes: what is larger is sampled where that is asked for
PAGES = 16  # that are moved of it between its ends, or so many of its pieces


def _some(pieces: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Of a large copy its ends, and some pages or rows between them: the same ones whenever it has this size."""
    total = sum(nbytes for _, _, nbytes in pieces)
    if total <= LARGE:
        return pieces
    seeded = random.Random(total)
    if len(pieces) > 2:
        between = seeded.sample(range(1, len(pieces) - 1), min(PAGES, len(pieces) - 2))
        pieces = [pieces[0], *(pieces[i] for i in sorted(between)), pieces[-1]]
    some = []
    for to, source, nbytes in pieces:
        count = -(-nbytes // PAGE)
        pages = {0, count - 1, *(seeded.randrange(count) for _ in range(PAGES if len(pieces) == 1 else 0))}
        for page in sorted(pages):
            at = page * PAGE
            some.append((to + at, source + at, min(PAGE, nbytes - at)))
    return some


class Move:
    """``pieces``: (destination, source, bytes).  ``sampled``: of what is large, only some is moved."""

    def __init__(
        self, space: AddressSpace, gpu: int, pieces: list[tuple[int, int, int]], meanwhile: Callable[[], None],
        sampled: bool = False,
    ):  # fmt: skip
        self._space, self._gpu, self._meanwhile = space, gpu, meanwhile
        self._pieces = _some(pieces) if sampled else pieces
        self.nbytes = sum(nbytes for _, _, nbytes in pieces)
        self._kept: list[bytes] | None = None
        self.low = min(source for _, source, _ in pieces)
        self.end = max(source + nbytes for _, source, nbytes in pieces)

    def begin(self) -> None:
        self._space.readers[self] = None

    def close(self) -> None:
        self._space.readers.pop(self, None)
        self._kept = None

    def keep(self) -> None:
        """Somebody is about to write to the source."""
        self._space.readers.pop(self, None)
        self._kept = []
        for _, source, nbytes in self._pieces:
            self._kept.append(self._space.read(self._gpu, source, nbytes))

    def finish(self) -> None:
        """Write."""
        self._space.readers.pop(self, None)
        kept, self._kept = self._kept, None
        low = min(to for to, _, _ in self._pieces)
        self._space.before_write(low, max(to + nbytes for to, _, nbytes in self._pieces))
        rows = 0
        for i, (to, source, nbytes) in enumerate(self._pieces):
            if kept is not None:
                self._space.write(self._gpu, to, kept[i])
                continue
            for done in range(0, nbytes, SLICE):
                size = min(SLICE, nbytes - done)
                self._space.copy(self._gpu, to + done, source + done, size)
                rows += 1
                if size == SLICE or rows % ROWS == 0:
                    self._meanwhile()
