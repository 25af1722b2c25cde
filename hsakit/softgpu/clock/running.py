"""What runs in the machine: kernels by their cohorts of workgroups, and copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from .cost import Cost
from .residency import CAPACITY, layers

if TYPE_CHECKING:
    from .machine import Machine
    from .timeline import Event


class _Parked:
    def __repr__(self) -> str:
        return "PARKED"


PARKED = _Parked()
"""what a cohort is that waits for memory to change: it keeps its CUs and asks for nothing"""

NOTHING = Cost()
Outcome = Cost | _Parked | None
Split = list[tuple[Sequence[int], Outcome]]  # (positions in the cohort, what they do next): it goes on as several


class Job(Protocol):
    """A kernel to be run, as whoever executes it sees it."""

    workgroups: int
    per_cu: int
    """workgroups of this kernel that a CU holds; those of several kernels add up in proportion"""
    cus: Sequence[int]
    """of each XCC, the CUs that it may use: bit i is the i-th CU to which workgroups are dealt"""

    def begin(self, cohort: Cohort) -> Outcome | Split:
        """These workgroups have just become resident: what is their first segment?"""

    def resume(self, cohort: Cohort) -> Outcome | Split:
        """The segment is over, or memory has changed: what is next?  None: they have ended."""

    def done(self) -> None:
        """All workgroups have ended."""


class Running:
    """A dispatch or a copy in the machine."""

    def __init__(self, machine: Machine, gpu: int):
        self._machine, self.gpu = machine, gpu
        self.ended = False

    def cancel(self) -> None:
        """Take it out, as a queue that is destroyed: nothing of it is called any more."""
        raise NotImplementedError


class Item:
    """What has a speed: a cohort or a copy."""

    left = 1.0  # units of its flow
    speed = 0.0  # units a picosecond
    since = 0  # when `left` was true
    event: Event | None = None


class Cohort(Item):
    """Workgroups of a dispatch that do the same at the same time."""

    def __init__(self, dispatch: Dispatch, first: list[int], turns: list[list[int]], counts: list[int]):
        self.dispatch = dispatch
        self.gpu = dispatch.gpu
        self.counts = counts
        """workgroups on each XCC"""
        self.count = sum(counts)
        """workgroups"""
        self._first = first  # of each XCC, how many of its workgroups came before
        self.turns = turns  # of each XCC, sets of CUs in the order in which they were dealt to
        self._placed: list[tuple[int, int, int]] | None = None
        self.cost = NOTHING
        self.cost_name = 0
        self.data: object = None
        """the job's own; what a split cohort's parts begin with"""

    @cached_property
    def layers(self) -> list[tuple[int, int]]:
        """(CUs, workgroups on each of them), no CU twice; of all XCCs, in one set of CUs."""
        width = self.dispatch.width
        deepest = max(map(len, self.turns))
        turns = [0] * deepest
        for xcc, some in enumerate(self.turns):
            for i, cus in enumerate(some):
                turns[i] |= cus << xcc * width
        return layers(turns)

    @property
    def placed(self) -> list[tuple[int, int, int]]:
        """(workgroup, XCC, CU) of each, by XCC."""
        if self._placed is None:
            self._placed = list(self._places())
        return self._placed

    def _places(self) -> Iterator[tuple[int, int, int]]:
        xccs = len(self.turns)
        for xcc, turns in enumerate(self.turns):
            number = self._first[xcc]
            for cus in turns:
                while cus:
                    lowest = cus & -cus
                    yield number * xccs + xcc, xcc, lowest.bit_length() - 1
                    number += 1
                    cus ^= lowest

    def parts(self, positions: Sequence[Sequence[int]]) -> list[Cohort]:
        """It as several, each of the workgroups at these positions of :attr:`placed`."""
        if sorted(p for some in positions for p in some) != list(range(self.count)):
            raise ValueError(f"the parts of a cohort of {self.count} must have each of its workgroups once")
        parts = []
        for some in positions:
            turns: list[list[int]] = [[] for _ in self.turns]
            placed = [self.placed[p] for p in some]
            for _, xcc, cu in placed:
                turns[xcc].append(1 << cu)
            part = Cohort(self.dispatch, self._first, turns, [len(some) for some in turns])
            part._placed, part.data = placed, self.data
            parts.append(part)
        return parts


class Dispatch(Running):
    def __init__(self, machine: Machine, gpu: int, job: Job, order: tuple[int, int]):
        super().__init__(machine, gpu)
        self.job, self.order = job, order
        self.width = machine.spec.gpu.cus
        """CUs of an XCC"""
        self.share = CAPACITY // job.per_cu
        xccs = len(job.cus)
        self.taken = [0] * xccs  # workgroups dealt, of each XCC's
        self.pending = [(job.workgroups - x + xccs - 1) // xccs for x in range(xccs)]
        self.credit = [0.0] * xccs  # contested CUs that it won, as the older, since a younger did
        self.waiting = job.workgroups
        self.live: dict[Cohort, None] = {}
        self.full = 0.0

    def take(self, cohort: Cohort) -> None:
        """These of its workgroups are no longer waiting."""
        self.taken = [taken + count for taken, count in zip(self.taken, cohort.counts)]
        self.waiting -= cohort.count
        self.live[cohort] = None

    def cancel(self) -> None:
        self._machine._cancel_dispatch(self)


class Copy(Running, Item):
    def __init__(self, machine: Machine, gpu: int, engine: int, source: int, destination: int, nbytes: int,
                 end: Callable[[], object], origin: object):  # fmt: skip
        super().__init__(machine, gpu)
        self.engine, self.source, self.destination, self.end, self.origin = engine, source, destination, end, origin
        self.left = float(nbytes)

    def cancel(self) -> None:
        self._machine._cancel_copy(self)
