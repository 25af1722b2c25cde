"""A kernel dispatch in execution.

The machine of the clock (:mod:`..clock`) says which workgroups become resident where and when, and when a segment's
time is over; here they are executed, and what that costs is counted.  They run in batches, as many waves at once as
numpy likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..clock import PARKED, Cost
from . import batch as batches
from . import (
    beginning,
    costing,
    families,  # noqa: F401  (defines the instructions)
    sampling,
)
from .batch import Batch, WaveError
from .fastforward import FastForward
from .launch import Launch
from .log import StoreLog
from .memory import LaneMemory
from .placement import Placement
from .program import Program
from .residents import Residents
from .sampling import Sample
from .signature import signature
from .symbols import kernel_name
from .tally import Count
from .trace import Trace

if TYPE_CHECKING:
    from ..clock import Cohort
    from ..driver import Driver

WAVES_AT_ONCE = 512  # numpy is at its best from 128 to 512 waves


class Dispatch:
    """One AQL kernel dispatch packet in execution: a job of the clock's machine, but for what its end means."""

    def __init__(self, driver: Driver, program: Program, gpu: int, packet: bytes, packet_address: int, queue: int,
                 placement: Placement, meanwhile: Callable[[], None] = lambda: None):  # fmt: skip
        """``meanwhile`` is called every few milliseconds of execution; what it raises ends that."""
        self._driver, self._program, self._gpu = driver, program, gpu
        self._space, self._meanwhile = driver.space, meanwhile
        self._launch = launch = Launch(driver, gpu, packet, packet_address, queue)
        self._placement = placement
        self.workgroups, self.per_cu, self.cus = launch.workgroups, launch.per_cu, placement.allowed
        entry = launch.descriptor.entry
        alike = signature(self._space, gpu, launch.raw, entry, launch.geometry, launch.kernarg)
        self._alike = alike + bytes([gpu])
        self._signature = alike + repr(self.cus).encode()
        self._known = driver.executor.known
        self._reuse: costing.Reuse | None = self._known.get(self._signature)
        self._sampled: bytes | None = None  # what it is known by if some workgroups stand for the rest
        if (
            driver.sampled
            and self.workgroups > sampling.WORKGROUPS
            and driver.executor.independent(program, gpu, entry)
        ):
            self._sampled = alike
        self._each: Cost | None = None  # what a workgroup costs then
        self._held: list[Batch] = []  # what those have stored
        on_an_xcc = sum(cus.bit_count() for cus in self.cus) / len(self.cus) * self.per_cu
        self._together = min(on_an_xcc, self.workgroups / len(self.cus))

    def describe(self, error: WaveError) -> str:
        """Where and why a wave stopped, for the queue's error."""
        at = self._launch.kernel_object
        return (
            f"kernel {kernel_name(self._space, at) or f'at {at:#x}'}, {error.instruction!r} at "
            f"+{error.address - self._launch.descriptor.entry:#x}, wave {error.wave} of workgroup {error.workgroup}: "
            f"{error}"
        )

    # -- a job of the machine --------------------------------------------------------------------------------------

    def begin(self, cohort: Cohort):
        """These workgroups have just become resident."""
        if self._each is None and self._sampled is not None:
            sample = self._sample(cohort, self._sampled)
            if sample.large:
                self._each = self._price(sample.executed.seen_by(self._gpu, sample.gpu), sample.reuse, waits=2)
            else:
                self._sampled = None
        if self._each is not None:
            return self._each
        residents = cohort.data = Residents()
        return self._segment(cohort, residents, self._make_batches(cohort, residents), first=True)

    def _make_batches(self, cohort: Cohort, residents: Residents) -> Iterator[Batch]:
        """One after the other: most end in their first segment, and the next takes its registers."""
        members: list[tuple[int, int]] = []
        waves = 0
        order = sorted((number, position) for position, (number, _, _) in enumerate(cohort.placed))
        traced = [] if self._reuse else self._neighbours([number for number, _ in order])
        order.sort(key=lambda member: member[0] not in traced)  # those first, so that one batch has them
        for number, position in order:
            n = self._launch.waves_of(number)
            if waves and waves + n > WAVES_AT_ONCE:
                yield residents.add(self._make_batch(cohort, members, traced))
                members, waves, traced = [], 0, []
            members.append((number, position))
            waves += n
        yield residents.add(self._make_batch(cohort, members, traced))

    def _neighbours(self, numbers: list[int]) -> list[int | None]:
        """The first workgroup, and those that differ from it by one in x, y or z."""
        first, there = numbers[0], set(numbers)
        counts = self._launch.counts
        found: list[int | None] = [first]
        for at, step, count in zip(self._launch.place(first), (1, counts[0], counts[0] * counts[1]), counts):
            found.append(first + step if at + 1 < count and first + step in there else None)
        return found

    def resume(self, cohort: Cohort):
        """The last segment's time is over, or memory has changed that it waited for."""
        if self._sampled is not None:
            for batch in self._held:
                batch.waves.memory.release()
            if self._held:
                self._held = []
                self._driver.processor.wrote()
            return None
        residents = cohort.data
        assert isinstance(residents, Residents)
        mine = residents.of(cohort)
        stopped = [batch for batch in mine if batch.outcome == batches.STOP]
        if stopped:
            host, now = self._driver.host, self._driver.timeline.now
            self._driver.processor.see_doorbells()
            if host.ahead:  # memory may already show what the host has yet to do
                return Cost(delay_ps=float(host.ahead))
            # A clock is read as it ticks.  So what a kernel times from there (a gate's offsets) has the same ticks in
            # every run, whenever the host's store came that let it go on.
            tick = host.aligned(now)
            if now < tick and any(batch.at_clock for batch in stopped):
                return Cost(delay_ps=float(tick - now))
        self._unpark(mine)
        for batch in mine:
            batch.waves.memory.release()
        self._driver.processor.wrote()
        if residents.ended(cohort):
            return None
        return self._segment(cohort, residents, [batch for batch in mine if batch.outcome != batches.DONE])

    def _sample(self, cohort: Cohort, key: bytes) -> Sample:
        """What some workgroups execute now, or did in an earlier dispatch on any GPU."""
        samples = self._driver.executor.samples
        if key in samples:
            return samples[key]
        count = Count()
        batches_of: list[Batch] = []
        for size, places in sampling.representatives(self._launch.counts):
            numbers = [self._launch.number(*place) for place in places]
            traced = self._neighbours(numbers) if not batches_of else []
            batch = self._make_batch(cohort, [(number, 0) for number in numbers], traced)
            while batch.run(self._meanwhile) != batches.DONE:
                pass
            count.add(self._program, batch, size / len(numbers))
            self._learn(batch)
            self._put_back(batch)
            batches_of.append(batch)
        sample = samples[key] = Sample(self._gpu, count, self._reuse or costing.ALONE)
        if sample.large:
            self._held = batches_of
        else:  # all of it will be executed
            for batch in batches_of:
                batch.waves.memory.discard()
        return sample

    def _segment(self, cohort: Cohort, residents: Residents, some: Iterable[Batch], first: bool = False):
        count, mine = Count(), []
        cut = not first  # only the length of a segment made it end
        for batch in some:
            mine.append(batch)
            cut &= batch.outcome == batches.MORE
            if first and batch.key is not None:
                count.include(self._begin(batch, batch.key))
            else:
                batch.run(self._meanwhile)
                count.add(self._program, batch)
            self._learn(batch)
            if batch.outcome == batches.DONE:
                self._put_back(batch)
            elif batch.outcome == batches.PARKED:
                self._driver.executor.parked[batch] = None
        # The latency of one access is there whatever else a segment does; before the first one its code is fetched.
        waits = count.meets_memory + first if not cut else 0
        cost = self._price(count, self._reuse or costing.ALONE, waits)
        self._driver.processor.wrote()
        return residents.outcome(cohort, mine, cost, PARKED)

    def _begin(self, batch: Batch, key: bytes) -> Count:
        """The first segment of a batch."""
        known = self._driver.executor.beginnings
        count = known.recall(key, self._gpu, batch, self._launch.packet_address) if batch.trace is None else None
        if count is None:
            batch.waves.memory.reads = []
            batch.run(self._meanwhile)
            again = beginning.same_each_time(self._program, batch.waves.executed)
            count = Count()
            count.add(self._program, batch)
            if again:
                known.keep(key, batch, self._launch.packet_address, count, self.workgroups)
            batch.waves.memory.reads = None
        return count

    def _price(self, count: Count, reuse: costing.Reuse, waits: int) -> Cost:
        driver, grid = self._driver, self._launch.counts
        return costing.cost(driver.spec, driver.constants, self._gpu, count, reuse, grid, self._together, waits)

    def _learn(self, batch: Batch) -> None:
        """How the kernel's workgroups share what they load: from what some of them have loaded so far."""
        trace = batch.trace
        if trace is not None and (trace.loaded or trace.stored):
            self._reuse = self._known[self._signature] = costing.reuse(self._space, self._gpu, trace)
            batch.trace = batch.waves.trace = None

    def _unpark(self, some: Iterable[Batch]) -> None:
        for batch in some:
            self._driver.executor.parked.pop(batch, None)

    def forget(self) -> None:
        """It was cancelled."""
        parked = self._driver.executor.parked
        self._unpark([batch for batch in parked if batch.dispatch is self])

    def _put_back(self, batch: Batch) -> None:
        """Give the registers to others; what is left of the batch is its stores."""
        waves = batch.waves
        self._driver.executor.registers.give(waves)
        batch.waves = waves.ended()

    def _make_batch(self, cohort: Cohort, members: list[tuple[int, int]], traced: list[int | None]) -> Batch:
        """``members``: (workgroup, position in the cohort)."""
        launch, numbers = self._launch, [number for number, _ in members]
        places = [launch.place(number) for number in numbers]
        cus = [cohort.placed[position][1:] for _, position in members]
        w, registers = launch.begin(places, [(xcc, *self._placement.cus[xcc][cu]) for xcc, cu in cus])
        w.memory, w.clock = LaneMemory(self._space, self._gpu, StoreLog(), self._driver.coherence), self._driver.ticks
        batch = Batch(self._program, w, np.array(places), numbers, self)
        if self._driver.sampled:
            batch.forward = FastForward(self._program)
            if self._driver.coherence is None:  # which has to see every access
                batch.key = beginning.key(self._alike, numbers, w, registers, launch.packet_registers)
        if traced:
            where = {number: i for i, number in enumerate(numbers)}
            chosen = [None if t is None else where.get(t) for t in traced]
            batch.trace = w.trace = Trace(w.workgroup, chosen, self._driver.sampled)
        return batch
