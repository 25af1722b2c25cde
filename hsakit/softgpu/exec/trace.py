"""Which lines of memory a few workgroups of a kernel touch: what they share, the L2 need not fetch again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .state import LANES, Group

LINE = 7  # log2 of a line's bytes
SECTOR = 5  # of a part of it
LIMIT = 1 << 20  # addresses until duplicates are removed


class Lines:
    """Numbers of lines, a set."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self._many = 0

    def add(self, lines: np.ndarray) -> None:
        self._parts.append(lines)
        self._many += len(lines)
        if self._many > LIMIT:
            self._parts = [self.all()]
            self._many = len(self._parts[0]) // 2

    def all(self) -> np.ndarray:
        return np.unique(np.concatenate(self._parts)) if self._parts else np.empty(0, np.int64)


class Trace:
    """Takes down the lines of some workgroups of a batch: ``places`` in it, the first is the one that the others are
    compared with, and differs from each of them in x, y or z (None: there is none).

    ``sampled``: iterations of loops may be skipped.  Lines that are touched right before and behind those count only as
    far as they were touched: what was skipped would have touched the rest."""

    def __init__(self, workgroup: np.ndarray, places: list[int | None], sampled: bool = False):
        self.places = places
        self._grain = SECTOR if sampled else LINE
        self._iteration: list[np.ndarray] = []  # what was touched since one began
        self._edges = [np.empty(0, np.int64)]
        self._left = 0  # how many of the next accesses are right behind a gap
        self._of_wave = np.full(len(workgroup), -1)
        for i, place in enumerate(places):
            if place is not None:
                self._of_wave[workgroup == place] = i
        self._last = int(np.flatnonzero(self._of_wave >= 0).max())
        self.loads = [Lines() for _ in places]
        self.stores = Lines()
        self.loaded = self.stored = 0  # bytes that the first one asked for

    def note(self, g: Group, at: np.ndarray, nbytes: int, write: bool) -> None:
        """``at``: where each of the group's waves begins, or each of its active lanes."""
        first = g.sel.start if g.view else int(g.sel[0])
        if first > self._last:
            return
        which = self._of_wave[g.sel]
        waves = np.flatnonzero(which == 0 if write else which >= 0)
        if not len(waves):
            return
        whole = len(at) == g.n and g.full  # a place for each wave, not for each lane
        if whole:
            reach, starts = LANES * nbytes, at[waves].view(np.int64)
            owner = which[waves]
        else:
            of_lane = np.repeat(np.arange(g.n), LANES) if g.full else np.nonzero(g.lanes)[0]
            chosen = np.isin(of_lane, waves)
            reach, starts, owner = nbytes, at[chosen].view(np.int64), which[of_lane[chosen]]
        asked = int(np.count_nonzero(owner == 0)) * reach
        if write:
            self.stored += asked
        else:
            self.loaded += asked
        grain = self._grain
        lines = starts >> grain
        more = int((starts[0] & (1 << grain) - 1) + reach - 1 >> grain) if whole else int(nbytes > 1)
        for i in range(len(self.places)):
            mine = owner == i
            if not mine.any():
                continue
            lines_of = lines[mine]
            if whole:
                lines_of = (lines_of[:, None] + np.arange(more + 1)).reshape(-1)
            elif more:
                lines_of = np.unique(np.concatenate([lines_of, starts[mine] + reach - 1 >> grain]))
            (self.stores if write else self.loads[i]).add(lines_of)
            if grain == SECTOR:
                self._iteration.append(lines_of)
                if self._left:
                    self._left -= 1
                    self._edges.append(lines_of)

    def iteration(self) -> None:
        """One begins, of a loop of which some may be skipped."""
        self._iteration = []

    def skip(self) -> None:
        """Others like the last one are skipped."""
        self._edges += self._iteration
        self._left = len(self._iteration)

    def footprint(self, own: Callable[[np.ndarray], np.ndarray]) -> dict[str, float]:
        """Bytes that the first workgroup touches, by who else loads them.  ``own``: which of these lines are in the
        GPU's own memory."""
        mine, nbytes = self._lines(self.loads[0])
        chosen = own(mine)
        mine, nbytes = mine[chosen], nbytes[chosen]
        there = [
            np.isin(mine, self._lines(other)[0])
            for other, place in zip(self.loads[1:], self.places[1:])
            if place is not None
        ]
        axes = [axis for axis, place in zip("xyz", self.places[1:]) if place is not None]
        bytes_of = {}
        left = np.ones(len(mine), bool)
        if len(axes) > 1:
            everywhere = np.logical_and.reduce(there)
            bytes_of["shared_all"] = float(nbytes[everywhere].sum())
            left &= ~everywhere
        for axis, shared in zip(axes, there):
            bytes_of[f"shared_{axis}"] = float(nbytes[left & shared].sum())
            left &= ~shared
        stored, stored_bytes = self._lines(self.stores)
        return {**bytes_of, "private": float(nbytes[left].sum()), "stored": float(stored_bytes[own(stored)].sum())}

    def _lines(self, touched: Lines) -> tuple[np.ndarray, np.ndarray]:
        """Lines, and how many bytes of each count."""
        parts = touched.all()
        lines, sectors = np.unique(parts >> LINE - self._grain, return_counts=True)
        edge = np.isin(lines, np.concatenate(self._edges) >> LINE - self._grain)
        return lines, np.where(edge, sectors << self._grain, 1 << LINE)
