"""Stores that are done but not yet visible: held back until the modelled time at which they are released.

A batch has one log, in the order of its stores.  It is applied when the batch stops for a release, an atomic or a flag,
and at its end; earlier where the batch itself reads what it wrote, or where it wrote a great deal: hardware may let go
of stores at any time before the release, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

LIMIT = 256 << 20  # bytes that are held back at most
BOXES = 16  # ranges of addresses that are told apart


class StoreLog:
    def __init__(self) -> None:
        self._stores: list[Callable[[], None]] = []
        self._boxes: list[list[int]] = []  # [first, behind the last] address
        self.nbytes = 0

    def __bool__(self) -> bool:
        return bool(self._stores)

    def add(self, store: Callable[[], None], ranges: Iterable[tuple[int, int]], nbytes: int) -> None:
        """``store`` will write ``nbytes`` somewhere in these [low, end)."""
        self._stores.append(store)
        self.nbytes += nbytes
        for low, end in ranges:
            self._enclose(low, end)
        if self.nbytes > LIMIT:
            self.apply()

    def _enclose(self, low: int, end: int) -> None:
        for box in reversed(self._boxes):
            if low <= box[1] and end >= box[0]:
                box[0], box[1] = min(low, box[0]), max(end, box[1])
                return
        self._boxes.append([low, end])
        if len(self._boxes) > BOXES:  # all in one: more loads than necessary will apply the log
            self._boxes = [[min(b[0] for b in self._boxes), max(b[1] for b in self._boxes)]]

    def holds(self, low: int, end: int) -> bool:
        """Whether it may hold a store into [low, end)."""
        return any(low < box[1] and end > box[0] for box in self._boxes)

    def apply(self) -> None:
        stores, self._stores, self._boxes, self.nbytes = self._stores, [], [], 0
        for store in stores:
            store()

    def discard(self) -> None:
        self._stores, self._boxes, self.nbytes = [], [], 0
