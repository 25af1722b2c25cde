"""A node's GPUs under the clock: workgroups on CUs, copies on engines, and how long they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .constants import Constants
from .cost import HOST, Cost
from .flow import Flow, of_copies, of_workgroups
from .residency import Crowds, Xcc
from .running import Cohort, Copy, Dispatch, Item, Job, Outcome, Running, Split
from .sharing import Rates, Sharing
from .timeline import Event, Timeline

if TYPE_CHECKING:
    from ..node import NodeSpec

MB_S = 1e6 / 1e12  # bytes per picosecond
GB_S = 1e9 / 1e12
REMEMBERED = 20_000  # costs and states of GPUs whose solutions are kept


class _Gpu:
    def __init__(self, number: int, xccs: int, cus: int):
        self.number = number
        self.xccs = [Xcc(cus) for _ in range(xccs)]
        self.pending: list[Dispatch] = []  # with workgroups to place, the older first
        self.cohorts: dict[Cohort, None] = {}  # that ask for something
        self.resident: dict[Dispatch, None] = {}
        self.copies: dict[Copy, None] = {}
        self.copying: dict[tuple, list[Item]] | None = None  # they, by what goes equally fast; None: not known yet
        self.freed: list[Cohort] = []  # ended at this instant
        self.new = False  # dispatches came at this instant
        self.crowded = False  # CUs may hold several workgroups
        self.changed = True
        self.groups: list[list[Item]] = []  # what is under way, by what goes equally fast
        self.names: list[tuple[tuple, int]] = []  # of each group, what it is, and how many workgroups or copies
        self.key = 0


class Machine:
    """``spec``: a node.  ``mirrored``: all GPUs do what GPU 0 is asked to, each with its own peers; only GPU 0 is
    simulated."""

    def __init__(self, timeline: Timeline, spec: NodeSpec, constants: Constants, mirrored: bool = False):
        self.timeline, self.spec, self.constants = timeline, spec, constants
        part = spec.gpu
        rates = Rates(
            hbm=constants.hbm_gb_s * GB_S,
            link=spec.xgmi["max_bandwidth"] * MB_S * constants.link_efficiency,
            host_link=spec.pcie["max_bandwidth"] * MB_S * constants.link_efficiency,
            links=spec.gpus - 1,
            cus=part.total_cus,
        )
        self.rates = rates
        self._sharing = Sharing(rates, constants)
        self._gpus = [_Gpu(g, part.xccs, part.cus) for g in range(1 if mirrored else spec.gpus)]
        self._arrivals = 0
        self._settle_due = False
        self._parked: dict[Cohort, None] = {}
        self._look: Event | None = None
        self._keys: dict[tuple, int] = {}  # numbers of costs and of GPUs' states
        self._cost_names: dict[tuple[int, Cost], int] = {}
        self._flows: dict[tuple[int, tuple, int], Flow] = {}
        self._speeds: dict[object, list[list[float]]] = {}  # by the numbers of all GPUs, or the one that all have

    # -- what is asked of it ---------------------------------------------------------------------------------------

    def dispatch(self, gpu: int, job: Job, priority: int = 0) -> Running:
        """Its workgroups are dealt to CUs from now on, after those of dispatches of more priority or before it.
        ValueError if an XCC would get workgroups but has no CU for them."""
        if job.workgroups < 1 or job.per_cu < 1 or len(job.cus) != self.spec.gpu.xccs:
            raise ValueError(f"{job.workgroups} workgroups, {job.per_cu} a CU, CUs of {len(job.cus)} XCCs")
        for xcc, cus in enumerate(job.cus[: job.workgroups]):
            if not cus & self._gpus[gpu].xccs[xcc].all:
                raise ValueError(f"XCC {xcc} gets workgroups and has no CU for them")
        self._arrivals += 1
        dispatch = Dispatch(self, gpu, job, (-priority, self._arrivals))
        state = self._gpus[gpu]
        state.new = True
        state.resident[dispatch] = None
        state.pending.append(dispatch)
        state.pending.sort(key=lambda d: d.order)
        self._settle_soon()
        return dispatch

    def transfer(self, gpu: int, engine: int, source: int | None, destination: int | None, nbytes: int,
                 begin: Callable[[], object], end: Callable[[], object], origin: object = None) -> Running:  # fmt: skip
        """An engine of ``gpu`` copies from now on.  ``source``, ``destination``: a GPU, None: the host.  ``begin`` is
        called at once, ``end`` when the last byte is written.  ``origin``: what it reads, if other copies may be
        reading the same (an address, say): they share the traffic, for the Infinity Cache serves all but the first."""
        source = HOST if source is None else source
        destination = HOST if destination is None else destination
        copy = Copy(self, gpu, engine, source, destination, nbytes, end, origin)
        copy.since = self.timeline.now
        begin()
        state = self._gpus[gpu]
        state.copies[copy] = None
        state.copying = None
        state.changed = True
        self._settle_soon()
        return copy

    def changed(self) -> None:
        """Memory that workgroups may poll has changed: those that are parked will look again."""
        if self._parked and self._look is None:
            self._look = self.timeline.at(self.timeline.now + int(self.constants.look_ns * 1000), self._resume_parked)

    # -- events ----------------------------------------------------------------------------------------------------

    def _settle_soon(self) -> None:
        if not self._settle_due:
            self._settle_due = True
            self.timeline.at(self.timeline.now, self._settle)

    def _settle(self) -> None:
        """All that ends or comes at this instant has: place workgroups, then see how fast everything goes."""
        self._settle_due = False
        for gpu in self._gpus:
            if gpu.freed or gpu.new:
                self._deal(gpu)
        self._resolve()

    def _resume_parked(self) -> None:
        self._look = None
        parked, self._parked = self._parked, {}
        for cohort in parked:
            if not cohort.dispatch.ended:
                self._go_on(cohort, cohort.dispatch.job.resume(cohort))

    def _segment_over(self, cohort: Cohort) -> None:
        cohort.event = None
        self._go_on(cohort, cohort.dispatch.job.resume(cohort))

    def _copied(self, copy: Copy) -> None:
        copy.event = None
        copy.ended = True
        gpu = self._gpus[copy.gpu]
        del gpu.copies[copy]
        gpu.copying = None
        gpu.changed = True
        self._settle_soon()
        copy.end()

    # -- cohorts ---------------------------------------------------------------------------------------------------

    def _go_on(self, cohort: Cohort, outcome: Outcome | Split) -> None:
        gpu = self._gpus[cohort.gpu]
        if cohort.dispatch.ended:  # cancelled by what it called
            return
        if isinstance(outcome, list):
            parts = cohort.parts([positions for positions, _ in outcome])
            del cohort.dispatch.live[cohort]
            gpu.cohorts.pop(cohort, None)
            for part, (_, own) in zip(parts, outcome):
                cohort.dispatch.live[part] = None
                self._go_on(part, own)
            return
        gpu.changed = True
        self._settle_soon()
        if isinstance(outcome, Cost):
            cohort.left, cohort.speed, cohort.since = 1.0, 0.0, self.timeline.now
            if cohort.cost is not outcome:
                cohort.cost = outcome
                cohort.cost_name = self._name_cost(gpu, outcome)
            gpu.cohorts[cohort] = None
            return
        gpu.cohorts.pop(cohort, None)
        if outcome is None:
            self._end(gpu, cohort)
        else:
            self._parked[cohort] = None

    def _end(self, gpu: _Gpu, cohort: Cohort) -> None:
        dispatch = cohort.dispatch
        del dispatch.live[cohort]
        gpu.freed.append(cohort)
        if not dispatch.live and not dispatch.waiting:
            dispatch.ended = True
            del gpu.resident[dispatch]
            dispatch.job.done()

    def _cancel_dispatch(self, dispatch: Dispatch) -> None:
        if dispatch.ended:
            return
        dispatch.ended = True
        gpu = self._gpus[dispatch.gpu]
        del gpu.resident[dispatch]
        if dispatch in gpu.pending:
            gpu.pending.remove(dispatch)
        for cohort in dispatch.live:
            gpu.cohorts.pop(cohort, None)
            self._parked.pop(cohort, None)
            if cohort.event:
                cohort.event.cancel()
            gpu.freed.append(cohort)
        dispatch.live.clear()
        gpu.changed = True
        self._settle_soon()

    def _cancel_copy(self, copy: Copy) -> None:
        if copy.ended:
            return
        copy.ended = True
        if copy.event:
            copy.event.cancel()
        gpu = self._gpus[copy.gpu]
        del gpu.copies[copy]
        gpu.copying = None
        gpu.changed = True
        self._settle_soon()

    # -- placement -------------------------------------------------------------------------------------------------

    def _deal(self, gpu: _Gpu) -> None:
        freed, gpu.freed = gpu.freed, []
        new, gpu.new = gpu.new, False
        pending = gpu.pending
        if not new and len(pending) == 1 and len(freed) == 1 and freed[0].dispatch is pending[0]:
            if self._follow(gpu, freed[0], pending[0]):
                return
        for cohort in freed:
            for xcc, turns in zip(gpu.xccs, cohort.turns):
                if turns:
                    xcc.release(cohort.dispatch.share, turns)
        begun: dict[Dispatch, list[list[int]]] = {}
        done: dict[tuple, tuple[int, dict[Dispatch, list[int]]]] = {}  # XCCs in the same state are dealt to alike
        for x, xcc in enumerate(gpu.xccs):
            state = (xcc.state, *[(d.pending[x], d.credit[x], d.job.cus[x]) for d in pending])
            if state in done:
                other, dealt = done[state]
                xcc.become(gpu.xccs[other])
                for dispatch in pending:
                    dispatch.pending[x], dispatch.credit[x] = dispatch.pending[other], dispatch.credit[other]
            else:
                done[state] = x, (dealt := self._deal_xcc(gpu, x))
            for dispatch, turns in dealt.items():
                begun.setdefault(dispatch, [[] for _ in gpu.xccs])[x] = turns
        gpu.pending = [dispatch for dispatch in pending if dispatch.waiting]
        cohorts = []
        for dispatch in pending:
            if dispatch in begun:
                counts = [sum([cus.bit_count() for cus in turns]) for turns in begun[dispatch]]
                cohorts.append(Cohort(dispatch, list(dispatch.taken), begun[dispatch], counts))
                dispatch.take(cohorts[-1])
        self._spread(gpu)
        for cohort in cohorts:
            if not cohort.dispatch.ended:  # cancelled meanwhile
                self._go_on(cohort, cohort.dispatch.job.begin(cohort))

    def _follow(self, gpu: _Gpu, before: Cohort, dispatch: Dispatch) -> bool:
        """Where nobody else waits, the next workgroups take exactly the places of those that ended: a wave of many."""
        left = [pending - count for count, pending in zip(before.counts, dispatch.pending)]
        if min(left) < 0:
            return False
        cohort = Cohort(dispatch, list(dispatch.taken), before.turns, before.counts)
        dispatch.pending = left
        if gpu.crowded:
            cohort.layers = before.layers
        dispatch.take(cohort)
        if not dispatch.waiting:
            gpu.pending = []
        cohort.cost, cohort.cost_name = before.cost, before.cost_name  # most often it is the same again
        self._go_on(cohort, dispatch.job.begin(cohort))
        return True

    def _deal_xcc(self, gpu: _Gpu, x: int) -> dict[Dispatch, list[int]]:
        """Place what waits for this XCC: the sets of CUs that each dispatch gets, in order."""
        xcc = gpu.xccs[x]
        dealt: dict[Dispatch, list[int]] = {}

        def place(dispatch: Dispatch, allowed: int, most: int) -> int:
            turns = xcc.place(dispatch.share, allowed, min(most, dispatch.pending[x]))
            placed = sum([cus.bit_count() for cus in turns])
            if placed:
                dealt.setdefault(dispatch, []).extend(turns)
                dispatch.pending[x] -= placed
            return placed

        waiting = [d for d in gpu.pending if d.pending[x]]
        if len(waiting) > 1:
            for dispatch in waiting:  # CUs that nobody else who waits may use
                others = 0
                for other in waiting:
                    if other is not dispatch:
                        others |= other.job.cus[x]
                if own := dispatch.job.cus[x] & ~others:
                    place(dispatch, own, dispatch.pending[x])
        q = self.constants.q
        while True:
            waiting = [d for d in waiting if d.pending[x] and xcc.room(d.share, d.job.cus[x])]
            if len(waiting) < 2:
                break
            older = waiting[0]
            if older.credit[x] < q:  # until it has had its q
                older.credit[x] += place(older, older.job.cus[x], int(q - older.credit[x]) + 1)
            else:
                older.credit[x] -= q
                # the younger ones take turns, by what they still want
                younger = max(waiting[1:], key=lambda d: (d.pending[x], -d.order[1]))
                place(younger, younger.job.cus[x], 1)
        for dispatch in waiting:
            place(dispatch, dispatch.job.cus[x], dispatch.pending[x])
        return dealt

    def _spread(self, gpu: _Gpu) -> None:
        """After workgroups moved: how full are the XCCs of each kernel, and may CUs be shared?"""
        gpu.crowded = any(dispatch.job.per_cu > 1 for dispatch in gpu.resident)
        gpu.changed = True
        for dispatch in gpu.resident:
            occupied = [0] * len(gpu.xccs)
            for cohort in dispatch.live:
                for x, turns in enumerate(cohort.turns):
                    for cus in turns:
                        occupied[x] |= cus
            full = sum(mine == xcc.all for mine, xcc in zip(occupied, gpu.xccs))
            dispatch.full = full / len(gpu.xccs)

    # -- speeds ----------------------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        changed = [gpu for gpu in self._gpus if gpu.changed]
        if not changed:
            return
        if len(self._keys) > REMEMBERED:
            self._forget()
            changed = self._gpus
        for gpu in changed:
            self._look_at(gpu)
        first = self._gpus[0]
        alike = all(gpu.key == first.key for gpu in self._gpus)
        key = first.key if alike else tuple([gpu.key for gpu in self._gpus])
        speeds = self._speeds.get(key)
        if speeds is None:
            speeds = self._speeds[key] = self._solve(alike)
        now = self.timeline.now
        for gpu, own in zip(self._gpus, speeds):
            for items, speed in zip(gpu.groups, own):
                for item in items:
                    if item.speed != speed or item.event is None:
                        self._set_speed(item, speed, now)

    def _look_at(self, gpu: _Gpu) -> None:
        """What is under way here?  In an order and with a number that are the same on GPUs that do the same."""
        gpu.changed = False
        groups: dict[tuple, list[Item]] = {}
        counts: dict[tuple, int] = {}
        crowds = Crowds(cohort.layers for cohort in gpu.cohorts) if gpu.crowded else None
        for cohort in gpu.cohorts:
            crowd = crowds.met(cohort.layers) / cohort.count if crowds else 1.0
            name: tuple = (0, cohort.cost_name, crowd, cohort.dispatch.full)
            groups.setdefault(name, []).append(cohort)
            counts[name] = counts.get(name, 0) + cohort.count
        if gpu.copying is None:
            gpu.copying = self._copying(gpu)
        for name, copies in gpu.copying.items():
            groups[name] = copies
            counts[name] = len(copies)
        gpu.names = sorted(counts.items())
        gpu.groups = [groups[name] for name, _ in gpu.names]
        gpu.key = self._keys.setdefault(tuple(gpu.names), len(self._keys))

    def _copying(self, gpu: _Gpu) -> dict[tuple, list[Item]]:
        """The copies of its engines, by what goes equally fast."""
        on_engine: dict[int, int] = {}
        readers: dict[object, int] = {}
        for copy in gpu.copies:
            on_engine[copy.engine] = on_engine.get(copy.engine, 0) + 1
            readers[copy.origin] = readers.get(copy.origin, 0) + 1
        groups: dict[tuple, list[Item]] = {}
        for copy in gpu.copies:
            read = 1.0 if copy.origin is None else 1.0 / readers[copy.origin]
            ends = (self._offset(gpu, copy.source), self._offset(gpu, copy.destination))
            groups.setdefault((1, *ends, on_engine[copy.engine], read), []).append(copy)
        return groups

    def _forget(self) -> None:
        """What was solved in a long life is not kept for ever; it would be found again."""
        for memory in (self._keys, self._cost_names, self._flows, self._speeds):
            memory.clear()
        for gpu in self._gpus:
            for dispatch in gpu.resident:
                for cohort in dispatch.live:
                    cohort.cost_name = self._name_cost(gpu, cohort.cost)

    def _offset(self, gpu: _Gpu, other: int) -> int:
        """How far a GPU is from this one, around the circle; HOST stays."""
        return other if other == HOST else (other - gpu.number) % self.spec.gpus

    def _solve(self, alike: bool) -> list[list[float]]:
        gpus = self._gpus[:1] if alike else self._gpus
        flows = [
            self._flow(gpu.number, name, count, items[0])
            for gpu in gpus
            for (name, count), items in zip(gpu.names, gpu.groups)
        ]
        speeds = iter(self._sharing.speeds(self.spec.gpus, flows, alike, [gpu.key for gpu in gpus]))
        found = [[next(speeds) for _ in gpu.groups] for gpu in gpus]
        return found * len(self._gpus) if alike else found

    def _flow(self, gpu: int, name: tuple, count: int, item: Item) -> Flow:
        flow = self._flows.get((gpu, name, count))
        if flow is not None:
            return flow
        if isinstance(item, Cohort):
            _, _, crowd, full = name
            flow = of_workgroups(gpu, count, item.cost, crowd, full)
        else:
            assert isinstance(item, Copy)
            *_, sharers, read = name
            flow = of_copies(gpu, count, item.source, item.destination, sharers, read)
        self._flows[gpu, name, count] = flow
        return flow

    def _name_cost(self, gpu: _Gpu, cost: Cost) -> int:
        """A number for it, the same on GPUs whose peers are the same around the circle."""
        name = self._cost_names.get((gpu.number, cost))
        if name is None:
            sides = [
                tuple(sorted((self._offset(gpu, peer), n) for peer, n in side)) for side in (cost.wire, cost.wire_reads)
            ]
            alike = (cost.compute_ps, cost.hbm_bytes, cost.l2_bytes, cost.delay_ps, *sides)
            name = self._cost_names[gpu.number, cost] = self._keys.setdefault(alike, len(self._keys))
        return name

    def _set_speed(self, item: Item, speed: float, now: int) -> None:
        if item.event is not None:
            item.event.cancel()
            item.left -= item.speed * (now - item.since)
        item.speed, item.since = speed, now
        wait = int(max(item.left, 0.0) / speed + 0.5)
        if isinstance(item, Cohort):
            item.event = self.timeline.at(now + max(wait, 1), lambda: self._segment_over(item))
        elif isinstance(item, Copy):
            item.event = self.timeline.at(now + wait, lambda: self._copied(item))
