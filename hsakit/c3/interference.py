"""The interference sweep: a GEMM alone, under copies by engines, and under copies by kernels at the same rate.

It decides the thesis that engines leave the GEMM alone. Every GPU computes and copies to some of its peers, without a
pause and for longer than the GEMM takes. The kernels get as many workgroups as bring their rate, alone, closest to that
of the engines. What is compared is the GEMM's time at the rate that was reached while it ran. Beside a GEMM that leaves
them no room kernels do not come to their rate: they do on CUs of their own, which the GEMM then lacks. And a copy
should last as long as the GEMM: of several kernels in a row, the later ones wait for CUs that the GEMM holds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hsakit.c3 import ticks
from hsakit.c3.gemms import Gemms
from hsakit.c3.intervals import estimate
from hsakit.c3.outcome import Measured, good
from hsakit.c3.run import Run
from hsakit.c3.scenario import Scenario
from hsakit.c3.stage import Stage
from hsakit.c3.strategy import APART
from hsakit.c3.sweep import Settings, by_whom, difference
from hsakit.c3.tables import Table, us
from hsakit.c3.ticks import COLLECTIVE, GEMM
from hsakit.c3.traffic import BY, MOST, Memory, Traffic
from hsakit.ffi.errors import LOST, DeadlineExceeded, HsakitError
from hsakit.figure import Figure, Series, clock_words
from hsakit.platform import Platform
from hsakit.sweep import sweep
from hsakit.sweep.dma import packet_bytes_of

KIND = "interference"
ALONE = "alone"
_LONGER = 1.5  # the traffic lasts so much longer than the GEMM alone
_LEAST = 1e-3  # of a copy, where all of it seems to have been moved without the GEMM
_IN_A_ROW = 4  # copies by which a pace is measured
_WORKGROUPS = (1, 2, 4, 8, 16, 32)  # a peer's copy tries
_MORE_WORKGROUPS = (64, 128)  # on CUs of its own
ASSUMED = (
    "In the model engines take no CU and their bytes pass no L2: that they disturb a GEMM by memory and fabric only is "
    "its assumption, not a finding. By how much traffic over links slows computing, by how much more if CUs carry it, "
    "and what it costs in caches are constants of it, calibrated on published averages: how far the curves are apart "
    "is assumed as well."
)


@dataclass(frozen=True)
class Point:
    """A GEMM, and what runs beside it: nothing, or copies by engines or kernels to so many peers. ``cus``: how many CUs
    kernels have of their own; 0: they are among the GEMM's."""

    scenario: Scenario
    by: str
    peers: int
    cus: int = 0

    def __str__(self) -> str:
        beside = ALONE if self.by == ALONE else f"{_mover(self.by, self.cus)} to {self.peers}"
        return f"{str(self.scenario).partition('+')[0]} {beside}"


def _mover(by: str, cus: int) -> str:
    return f"{by} on {cus} CUs of their own" if cus else by


class InterferenceSweep(sweep.Sweep):
    kind = KIND
    _settings: Settings

    def __init__(self, node: Platform, settings: Settings, nbytes: int):
        super().__init__(node, settings, clock=node.clock)
        self._nbytes = nbytes
        self._gemms = Gemms(node, settings.gemm, settings.deadline)
        self._points: dict[Scenario, list[Point]] = {}
        self._rows: dict[Point, dict] = {}

    def plan(self, scenarios: Sequence[Scenario], peers: Sequence[int], own: Sequence[int] = ()) -> list[Point]:
        """For each GEMM: alone, then each number of peers by engines and by kernels, these also on ``own`` CUs."""
        for scenario in scenarios:
            loaded = [Point(scenario, by, count) for count in peers for by in BY]
            loaded += [Point(scenario, "kernels", count, cus) for count in peers for cus in own]
            self._points[scenario] = [Point(scenario, ALONE, 0), *loaded]
        return [point for points in self._points.values() for point in points]

    def key(self, point: Point) -> str:
        return f"{super().key(point)} of {self._nbytes}{by_whom(self._settings)}"

    def close(self) -> None:
        self._gemms.close()

    def together(self, point: Point) -> Scenario:
        return point.scenario

    def run(self, point: Point) -> dict:
        if point not in self._rows:
            self._rows = {}
            self._measure(point.scenario)
        return self._rows[point]

    def _measure(self, scenario: Scenario) -> None:
        trials = {point: _Trial(point) for point in self._points[scenario]}
        settings = self._settings
        rounds, warmup = (1, 0) if self.clock == "model" else (settings.repeats, settings.warmup)
        try:
            with self._stage(scenario, not settings.scaled) as stage:
                memory = Memory(stage, self._nbytes)
                self._choose(stage, memory, list(trials.values()))
                for _ in range(rounds):
                    for trial in trials.values():
                        self._once(stage, memory, trial, warmup)
        except HsakitError as failed:
            self._note(failed, str(scenario))
            for trial in trials.values():
                trial.error = trial.error or f"{trial.point}: {failed}"
        if settings.scaled:
            self._prove(scenario, trials)
        for point, trial in trials.items():
            self._rows[point] = self._row(trial)

    def _stage(self, scenario: Scenario, verify: bool) -> Stage:
        bytes_a_packet = packet_bytes_of(self._node)
        deadline, gemms = self._settings.deadline, self._gemms
        return Stage(self._node, scenario, verify=verify, deadline=deadline, packet_bytes=bytes_a_packet, gemms=gemms)

    def _prove(self, scenario: Scenario, trials: dict[Point, _Trial]) -> None:
        """The same plans in full on a GEMM and copies that are small."""
        small = dataclasses.replace(
            scenario, m=min(scenario.m, 256), n=min(scenario.n, 256), k=min(scenario.k, 64), name="small"
        )
        try:
            with self._stage(small, True) as stage:
                memory = Memory(stage, min(self._nbytes, 8000))
                for trial in trials.values():
                    point = dataclasses.replace(trial.point, scenario=small)
                    proof = _Trial(point, min(trial.count, 2), trial.workgroups)
                    self._once(stage, memory, proof, 0, covering=False)  # bytes and plan, not times
                    trial.error = trial.error or (proof.error and f"{trial.point}: at a smaller size: {proof.error}")
        except HsakitError as failed:  # of the stage itself
            self._note(failed, str(small))
            for trial in trials.values():
                trial.error = trial.error or f"{trial.point}: at a smaller size: {failed}"

    def _choose(self, stage: Stage, memory: Memory, trials: list[_Trial]) -> None:
        """How often each copies, and by how many workgroups, from runs of the traffic and of the GEMM alone."""
        with Run(stage) as run:
            (go,) = run.gate(0)
            run.gemm(go)
            _, sample = run.once(stage.platform.tally())
        needed = _LONGER * (APART + ticks.elapsed(sample))  # from the release on
        engines: dict[int, float] = {}
        for trial in trials:
            point = trial.point
            if point.by == ALONE:
                continue
            if point.by == "engines":
                pace, trial.alone = self._traffic_alone(stage, memory, "engines", point.peers, 1)
                engines[point.peers] = pace
            else:
                tries = [*_WORKGROUPS, *_MORE_WORKGROUPS] if point.cus else [*_WORKGROUPS]
                tries = tries[::3] if self._settings.quick else tries
                times = {w: self._traffic_alone(stage, memory, "kernels", point.peers, w, point.cus) for w in tries}
                wanted = engines[point.peers]
                trial.workgroups = min(times, key=lambda w: abs(math.log(times[w][0] / wanted)))
                pace, trial.alone = times[trial.workgroups]
            lacking = stage.gpus[0].cu_count / (stage.gpus[0].cu_count - point.cus)  # the GEMM takes longer by that
            trial.count = max(1, min(MOST, math.ceil(needed * lacking / pace)))

    def _traffic_alone(
        self, stage: Stage, memory: Memory, by: str, peers: int, workgroups: int, cus: int = 0
    ) -> tuple[float, float]:
        """Nanoseconds from copy to copy, to all peers at once, and of a copy itself."""
        with Run(stage) as run:
            (go,) = run.gate(0)
            run.add(Traffic(run, memory, by, peers, _IN_A_ROW, go, workgroups, cus))
            works, sample = run.once(stage.platform.tally())
        copies = ticks.spans_of(works, sample, COLLECTIVE)
        return ticks.elapsed(copies) / _IN_A_ROW, float(np.median([end - start for start, end in copies]))

    def _once(self, stage: Stage, memory: Memory, trial: _Trial, warmup: int, covering: bool = True) -> None:
        if trial.error is None and self.broken:
            trial.error = f"{trial.point}: not run: {self.broken}"
        if trial.error is not None:
            return
        try:
            for number in range(warmup + 1):
                trial.run(stage, memory, measured=number == warmup, covering=covering)
        except HsakitError as failed:
            self._note(failed, str(trial.point))
            trial.error = f"{trial.point}: {failed}"

    def _note(self, failed: HsakitError, where: str) -> None:
        if isinstance(failed, (DeadlineExceeded, *LOST)):
            self.broken = f"{where}: {failed}"

    def _row(self, trial: _Trial) -> dict:
        point, settings = trial.point, self._settings
        planned, counted = trial.packets()
        if trial.error is None and counted is not None and (wrong := difference(planned, counted)):
            trial.error = f"{point}: {wrong}"
        return self.row(
            point,
            parameters={
                "scenario": point.scenario.as_json(),
                "by": point.by,
                "peers": point.peers,
                "cus": point.cus,
                "nbytes": self._nbytes,
                "count": trial.count,
                "workgroups": trial.workgroups,
                "copy_alone": trial.alone,
                "strategy": f"{_mover(point.by, point.cus)} {point.peers}",
                "variant": {},
                "works": [list(dataclasses.astuple(work)) for work in trial.works],
                "gpus": len(self._node.gpus),
                "gemm_by": self._gemms.as_json(),
                "scaled": "a GEMM of 256x256x64 at most, copies of 8000 bytes" if settings.scaled else None,
                "counters": None,  # of caches: no profiler is used
                "repeats": settings.repeats,
                "warmup": settings.warmup,
            },
            samples=trial.samples,
            verified="none" if trial.error else "scaled" if settings.scaled else "full",
            launch="gated",
            packets={"planned": planned, "counted": counted},
            error=trial.error,
        )


class _Trial:
    """All runs of one point."""

    def __init__(self, point: Point, count: int = 0, workgroups: int = 0):
        self.point = point
        self.count = count
        self.workgroups = workgroups
        self.alone: float | None = None
        self.samples: list[list[list[int]]] = []
        self.works: list[ticks.Work] = []
        self.error: str | None = None
        self._planned = dict.fromkeys(("aql_dispatch", "aql_barrier_and", "sdma_copy"), 0)
        self._tally: Any = None

    def run(self, stage: Stage, memory: Memory, measured: bool, covering: bool) -> None:
        """Once. ``covering``: what is copied must last as long as the GEMM."""
        if self._tally is None:
            self._tally = stage.platform.tally()
        point = self.point
        with Run(stage) as run:
            if point.by == ALONE:
                (go,) = run.gate(0)
                run.gemm(go)
            else:
                first, second = run.gate(0, APART)
                workgroups, cus = max(1, self.workgroups), point.cus
                run.add(Traffic(run, memory, point.by, point.peers, self.count, first, workgroups, cus))
                run.gemm(second, range(cus, stage.gpus[0].cu_count) if cus else None)
            self._planned = {name: n + run.planned[name] for name, n in self._planned.items()}
            works, sample = run.once(self._tally)
        if point.by != ALONE:
            wrong = ticks.check_order(works, sample, (COLLECTIVE, GEMM))
            if covering and wrong is None:
                wrong = _covered(works, sample)
            if wrong:
                raise HsakitError(wrong)
        self.works = works
        if measured:
            self.samples.append(sample)

    def packets(self) -> tuple[dict, dict | None]:
        totals = None if self._tally is None else self._tally.totals()
        if totals is None:
            return self._planned, None
        return self._planned, {name: n for name, n in totals.items() if n or name in self._planned}


def _covered(works: Sequence[ticks.Work], sample: Sequence[ticks.Span]) -> str | None:
    """In words, if the traffic of a GPU did not last as long as its GEMM."""
    for gpu in ticks.gpus_of(works):
        gemm, copies = (ticks.spans_of(works, sample, part, gpu) for part in ticks.PARTS)
        if max(end for _, end in copies) < max(end for _, end in gemm):
            return f"on GPU {gpu} the copies ended before the GEMM: it was not under them all the time"
    return None


# Reading rows


def rate(measured: Measured, sample: Sequence[ticks.Span]) -> float:
    """GB/s that a GPU sent while its GEMM ran; the mean of all GPUs."""
    nbytes, rates = measured.row["parameters"]["nbytes"], []
    for gpu in ticks.gpus_of(measured.works):
        _, moved = _beside(measured, sample, gpu)
        rates.append(nbytes * moved / ticks.elapsed(ticks.spans_of(measured.works, sample, GEMM, gpu)))
    return float(np.mean(rates))


def _copy_slowdown(measured: Measured) -> float:
    """How long copies took beside the GEMM, over what the same bytes take alone."""
    alone, slowed = measured.row["parameters"]["copy_alone"], []
    for sample in measured.samples:
        for gpu in ticks.gpus_of(measured.works):
            took, moved = _beside(measured, sample, gpu)
            slowed.append(took / (alone * moved))
    return float(np.median(slowed))


def _beside(measured: Measured, sample: Sequence[ticks.Span], gpu: int) -> tuple[float, float]:
    """Of the copies of a GPU, summed: nanoseconds beside its GEMM, and how much of them was moved then (1: a copy).

    What was moved before and after, without the GEMM, was moved at the pace of a copy alone.
    """
    alone = measured.row["parameters"]["copy_alone"]
    gemm, copies = (ticks.spans_of(measured.works, sample, part, gpu) for part in ticks.PARTS)
    took = moved = 0.0
    for start, end in copies:
        both = ticks.shared([(start, end)], gemm)
        if both:
            took += both
            moved += max(_LEAST, 1 - (end - start - both) / alone)
    return took, moved


@dataclass(frozen=True)
class Slowed:
    """A GEMM beside copies: the rate that was reached, by how much the GEMM and the copies slowed."""

    gemm: str
    by: str
    peers: int
    rate: float
    gemm_slowdown: Any
    copy_slowdown: float


def slowed(rows: Sequence[dict]) -> list[Slowed]:
    """The good rows, read against those of the GEMM alone."""
    chosen = [Measured(row) for row in rows if row["kind"] == KIND and good(row)]
    alone = {m.row["parameters"]["scenario"]["gemm"]: m for m in chosen if m.row["parameters"]["by"] == ALONE}
    found = []
    for measured in chosen:
        p = measured.row["parameters"]
        whole = alone.get(p["scenario"]["gemm"])
        if p["by"] == ALONE or whole is None:
            continue
        found.append(
            Slowed(
                p["scenario"]["gemm"],
                _mover(p["by"], p.get("cus", 0)),
                p["peers"],
                float(np.median([rate(measured, sample) for sample in measured.samples])),
                estimate(lambda a, b: a / b, measured.part_times(GEMM), whole.part_times(GEMM)),
                _copy_slowdown(measured),
            )
        )
    return found


HEADERS = ("GEMM", "copies by", "peers", "GB/s sent", "GEMM slowed", "copies slowed")


def table(rows: Sequence[dict]) -> tuple[tuple[str, ...], list[list[str]]]:
    return HEADERS, [
        [s.gemm, s.by, str(s.peers), f"{s.rate:.3g}", s.gemm_slowdown.show(".3f"), f"{s.copy_slowdown:.3f}"]
        for s in slowed(rows)
    ]


def as_table(rows: Sequence[dict]) -> Table:
    headers, lines = table(rows)
    alone = [Measured(row) for row in rows if good(row) and row["parameters"]["by"] == ALONE]
    times = ", ".join(f"{m.row['parameters']['scenario']['gemm']} {us(m.part_times(GEMM))} us" for m in alone)
    return Table("interference", "A GEMM beside copies, by engines and by kernels", headers, lines, f"Alone: {times}.")


def figures(rows: Sequence[dict]) -> list[Figure]:
    """One plot a GEMM: its slowdown over the rate that was reached."""
    found = slowed(rows)
    clocks = [row["clock"] for row in rows]
    made = []
    for gemm in dict.fromkeys(each.gemm for each in found):
        series = []
        for by in dict.fromkeys(s.by for s in found if s.gemm == gemm):
            points = sorted((s for s in found if (s.gemm, s.by) == (gemm, by)), key=lambda s: s.rate)
            intervals = tuple(
                None if s.gemm_slowdown.low is None else (s.gemm_slowdown.low, s.gemm_slowdown.high) for s in points
            )
            values = tuple(s.gemm_slowdown.value for s in points)
            series.append(Series(f"copies by {by}", tuple(s.rate for s in points), values, intervals))
        made.append(
            Figure(
                f"interference_{gemm.replace(':', '_')}",
                f"{gemm}: slowdown beside copies",
                "Time of the GEMM over its time alone, by what each GPU sends to its peers meanwhile. "
                f"{ASSUMED + ' ' if 'model' in clocks else ''}{clock_words(clocks)}",
                "GB/s that each GPU sends",
                "time over that alone",
                tuple(series),
                lines={"alone": 1.0},
            )
        )
    return made
