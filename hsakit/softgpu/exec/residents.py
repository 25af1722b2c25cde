"""The workgroups of a cohort in execution, and how they part: some end while others wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .batch import DONE, PARKED, Batch

if TYPE_CHECKING:
    from ..clock import Cohort, Cost


class Residents:
    """What a cohort, and all cohorts that it is split into, consist of."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._whole = True
        self._ended: set[int] = set()  # workgroups, once the cohort was split
        self._over = False

    def add(self, batch: Batch) -> Batch:
        self._batches.append(batch)
        return batch

    def of(self, cohort: Cohort) -> list[Batch]:
        if self._whole:
            return self._batches
        mine = {number for number, _, _ in cohort.placed}
        return [batch for batch in self._batches if not mine.isdisjoint(batch.numbers)]

    def ended(self, cohort: Cohort) -> bool:
        """Whether all its workgroups have: what is left of them is that their stores become visible."""
        return self._over or not self._whole and cohort.placed[0][0] in self._ended

    def outcome(self, cohort: Cohort, mine: list[Batch], cost: Cost, parked):
        """What the machine is told after a segment of these batches, which are all of ``cohort`` that goes on."""
        kinds = {batch.outcome for batch in mine}
        if kinds == {DONE}:
            if self._whole:
                self._over = True
            else:
                self._ended.update(number for batch in mine for number in batch.numbers)
            return cost
        where = {number: position for position, (number, _, _) in enumerate(cohort.placed)}
        ended: list[int] = []
        waiting: list[int] = []
        going: list[int] = []
        for batch in mine:
            left = waiting if batch.outcome == PARKED else going
            for number, over in zip(batch.numbers, batch.ended.tolist()):
                position = where.get(number)
                if position is not None:
                    (ended if over else left).append(position)
                    if over:
                        self._ended.add(number)
        parts = [
            (positions, what) for positions, what in ((ended, cost), (going, cost), (waiting, parked)) if positions
        ]
        if len(parts) == 1:
            return parts[0][1]
        self._whole = False
        return parts
