"""The c3 sweep: every strategy on every scenario, rows that can be trusted or say why not.

The strategies of a scenario are measured in rounds: each of them once a round, from another one on in each, so that
what drifts hits all alike. So a scenario is measured as a whole, and its rows are written together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hsakit.c3 import machine, ticks
from hsakit.c3.gemms import OURS, Gemms
from hsakit.c3.heuristics import Machine
from hsakit.c3.metrics import check_collective
from hsakit.c3.outcome import ALONE, KIND, label
from hsakit.c3.prediction import Launch
from hsakit.c3.run import Run
from hsakit.c3.scenario import Scenario
from hsakit.c3.stage import Stage
from hsakit.c3.strategy import Description, Facts, Strategy
from hsakit.c3.ticks import COLLECTIVE, GEMM
from hsakit.ffi.errors import LOST, DeadlineExceeded, HsakitError, InvalidArgument
from hsakit.platform import Platform
from hsakit.sweep import sweep
from hsakit.sweep.dma import packet_bytes_of

REPEATS = 9  # as in the paper
SMALL = {"m": 256, "n": 256, "k": 64}  # what stands for a larger GEMM where that cannot be verified: 4 tiles
SMALL_BYTES = 8000  # of a shard
_QUICK_STEP = 3  # of a strategy's variants, each so manieth


@dataclass(frozen=True)
class Settings(sweep.Settings):
    """scaled: results of full size are not verified, but the same plan on a smaller scenario is, in the same command.
    quick: the machine's balance is measured with small kernels, too, and fewer splits are tried. gemm: by whom GEMMs
    are, a name of ``gemms.PROVIDERS``."""

    repeats: int = REPEATS
    deadline: float = 60.0
    scaled: bool = False
    quick: bool = False
    gemm: str = OURS


@dataclass(frozen=True)
class Point:
    """A strategy in one variant on a scenario."""

    scenario: Scenario
    strategy: Strategy
    variant: tuple[tuple[str, Any], ...]

    @property
    def label(self) -> str:
        return label(self.strategy.name, dict(self.variant))

    def __str__(self) -> str:
        name = f"{self.scenario.name} " if self.scenario.name != str(self.scenario) else ""
        return f"{name}{self.scenario} {self.label}"


class C3Sweep(sweep.Sweep):
    kind = KIND
    _settings: Settings

    def __init__(self, node: Platform, settings: Settings):
        super().__init__(node, settings, clock=node.clock)
        self._machine: Machine | None = None
        self._plan: dict[Scenario, list[Point]] = {}
        self._rows: dict[Point, dict] = {}
        self._packet_bytes = packet_bytes_of(node)
        self._gemms = Gemms(node, settings.gemm, settings.deadline)
        self._proofs: dict[tuple[Scenario, str], str | None] = {}  # what was wrong with a plan at a smaller size
        self._small: tuple[Stage, Facts] | None = None  # where plans are proved

    def close(self) -> None:
        self._forget_small()
        self._gemms.close()

    def key(self, point: Point) -> str:
        return super().key(point) + by_whom(self._settings)

    @property
    def machine(self) -> Machine:
        """The rates of a GPU, measured when first asked for."""
        if self._machine is None:
            self._machine = machine.measure(self._node, self._settings.quick, self._settings.deadline, self._gemms)
        return self._machine

    def plan(self, scenarios: Iterable[Scenario], strategies: Sequence[Strategy]) -> list[Point]:
        """The points, in the order to measure them; InvalidArgument if one cannot run on this node."""
        chosen = [s for s in strategies if s.name in ALONE] + [s for s in strategies if s.name not in ALONE]
        cus = Machine(self._node.gpus[0].cu_count, 1.0, 1.0)  # variants depend on the count only
        self._plan = {}
        for scenario in scenarios:
            check(scenario, len(self._node.gpus))
            self._plan[scenario] = [
                Point(scenario, strategy, tuple(variant.items()))
                for strategy in chosen
                for variant in strategy.variants(cus)[:: _QUICK_STEP if self._settings.quick else 1]
            ]
        return [point for points in self._plan.values() for point in points]

    def together(self, point: Point) -> Scenario:
        return point.scenario

    def run(self, point: Point) -> dict:
        if point not in self._rows:
            self._rows = {}  # of one scenario at a time
            self._measure(point.scenario)
        return self._rows[point]

    # One scenario

    def _measure(self, scenario: Scenario) -> None:
        points = self._plan[scenario]
        settings = self._settings
        trials = {point: Trial(point) for point in points}
        try:
            with self._stage(scenario, verify=not settings.scaled) as stage:
                facts = self._facts(stage)
                rounds = 1 if self.clock == "model" else settings.repeats  # every run of a model is the same
                for number in range(rounds):
                    for trial in _from(list(trials.values()), number, fixed=len(self._alone(points))):
                        if number == 0:
                            facts.times.update(self._times(trials))
                        self._once(stage, facts, trial)
        except HsakitError as failed:
            self._note(failed, f"{scenario}")
            for trial in trials.values():
                trial.error = trial.error or f"{trial.point}: {failed}"
        for point, trial in trials.items():
            if settings.scaled and trial.error is None:
                trial.error = self._prove(point)
            self._rows[point] = self._row(trial)

    def _stage(self, scenario: Scenario, verify: bool = True) -> Stage:
        deadline, size = self._settings.deadline, self._packet_bytes
        return Stage(self._node, scenario, verify=verify, deadline=deadline, packet_bytes=size, gemms=self._gemms)

    @staticmethod
    def _alone(points: Sequence[Point]) -> list[Point]:
        return [point for point in points if point.strategy.name in ALONE]

    @staticmethod
    def _times(trials: dict[Point, Trial]) -> dict[str, float]:
        return {
            point.strategy.name: float(ticks.elapsed(trial.samples[0]))
            for point, trial in trials.items()
            if point.strategy.name in ALONE and trial.samples
        }

    def _facts(self, stage: Stage) -> Facts:
        launch = stage.launch(0)
        per_cu = self._gemms.workgroups_a_cu(launch)
        gpus = self._node.gpus
        engines = len(gpus[0].engines_to(gpus[1]))
        return Facts(stage.scenario, len(gpus), Launch(stage.gemm_workgroups, per_cu), self.machine, engines)

    def _once(self, stage: Stage, facts: Facts, trial: Trial) -> None:
        """One measured run of a strategy, after its warm-up; what goes wrong ends the trial, not the sweep."""
        if trial.error is not None:
            return
        if self.broken:
            trial.error = f"{trial.point}: not run: {self.broken}"
            return
        try:
            trial.run(stage, facts, self._warmup)
        except HsakitError as failed:
            self._note(failed, str(trial.point))
            trial.error = f"{trial.point}, run {len(trial.samples) + 1}: {failed}"

    def _warmup(self, launch: str) -> int:
        """Runs before a measured one. A modelled clock needs them only where the host drives: what is made at the first
        use of an engine or a queue is time of the host."""
        if self.clock != "model":
            return self._settings.warmup
        return 1 if launch == "host" else 0

    def _note(self, failed: HsakitError, where: str) -> None:
        if isinstance(failed, (DeadlineExceeded, *LOST)):
            self.broken = f"{where}: {failed}"  # late work may still write: nothing can be verified any more

    def _prove(self, point: Point) -> str | None:
        """Run the point's plan in full on a smaller scenario, once for all that are the same there."""
        small = smaller(point.scenario, len(self._node.gpus))
        key = small, point.label
        if key not in self._proofs:
            trial = Trial(dataclasses.replace(point, scenario=small))
            try:
                self._once(*self._stage_of(small), trial)
            except HsakitError as failed:  # of the stage itself
                self._note(failed, str(small))
                trial.error = str(failed)
            self._proofs[key] = trial.error
            if trial.error is not None:
                self._forget_small()  # others begin with a stage that nobody spoilt
        wrong = self._proofs[key]
        return None if wrong is None else f"{point}: at the smaller size of {small} it went wrong: {wrong}"

    def _stage_of(self, small: Scenario) -> tuple[Stage, Facts]:
        """A stage of a smaller scenario, kept while that is the one."""
        if self._small is None or self._small[0].scenario != small:
            self._forget_small()
            stage = self._stage(small)
            self._small = stage, self._facts(stage)
            self._small[1].times.update(dict.fromkeys(ALONE, 1e6))
        return self._small

    def _forget_small(self) -> None:
        small, self._small = self._small, None
        if small is not None:
            small[0].close()

    def _row(self, trial: Trial) -> dict:
        point, settings = trial.point, self._settings
        verified = "none" if trial.error else "scaled" if settings.scaled else "full"
        planned, counted = trial.packets()
        if trial.error is None and counted is not None and (wrong := difference(planned, counted)):
            trial.error, verified = f"{point}: {wrong}", "none"
        small = smaller(point.scenario, len(self._node.gpus)) if settings.scaled else None
        return self.row(
            point,
            parameters={
                "scenario": point.scenario.as_json(),
                "strategy": point.strategy.name,
                "variant": dict(point.variant),
                **trial.described,
                "works": [list(dataclasses.astuple(work)) for work in trial.works],
                "gpus": len(self._node.gpus),
                "machine": dataclasses.asdict(self._machine) if self._machine else None,
                "gemm_by": self._gemms.as_json(),
                "scaled": str(small) if small else None,
                "repeats": settings.repeats,
                "warmup": settings.warmup,
            },
            samples=trial.samples,
            verified=verified,
            launch=trial.launch,
            packets={"planned": planned, "counted": counted},
            error=trial.error,
        )


class Trial:
    """All runs of one point."""

    def __init__(self, point: Point):
        self.point = point
        self.samples: list[list[list[int]]] = []
        self.works: list[ticks.Work] = []
        self.error: str | None = None
        self.launch = "host"
        self.described: dict[str, Any] = {"order": [], "collective_by": None, "summary": "", "picked": {}, "apart": 0}
        self._planned = dict.fromkeys(("aql_dispatch", "aql_barrier_and", "sdma_copy"), 0)
        self._tally: Any = None

    def run(self, stage: Stage, facts: Facts, warmup: Callable[[str], int]) -> None:
        """One measured run, and before it as many as ``warmup`` says of its launch. Raises an HsakitError if it was not
        what it says it is."""
        variant = dict(self.point.variant)
        described = self.point.strategy.describe(facts, **variant)
        if described.launch == "host" and not stage.gemms.ours:
            # What waits for nothing begins when HIP and the GPU get to it: no order can be promised.
            text = f"{described.text}; {stage.gemms.name}'s GEMM is submitted first, and may begin later"
            described = dataclasses.replace(described, order=(), text=text)
        self.launch = described.launch
        self.described = {
            "order": list(described.order),
            "apart": max(described.apart, stage.apart if described.apart else 0.0),
            "collective_by": described.collective_by,
            "summary": described.text,
            "picked": described.picked,
            "workgroups": {GEMM: facts.launch.workgroups, COLLECTIVE: facts.collective_workgroups},
            "gemm_per_cu": facts.launch.per_cu,
        }
        if self._tally is None:
            self._tally = stage.platform.tally()
        with Run(stage) as run:
            self.point.strategy.enqueue(run, facts, **variant)
            if run.launch != described.launch:
                raise HsakitError(f"it says that it is launched {described.launch}, and is {run.launch}")
            before = warmup(run.launch)
            for number in range(before + 1):
                self._planned = {name: n + run.planned[name] for name, n in self._planned.items()}
                works, sample = run.once(self._tally)
                if self.works and works != self.works:
                    raise HsakitError(f"it ran other works than before: {len(works)}, not {len(self.works)}")
                self.works = works
                if wrong := wrong_with(described, works, sample):
                    raise HsakitError(wrong)
                if number == before:
                    self.samples.append(sample)

    def packets(self) -> tuple[dict, dict | None]:
        totals = None if self._tally is None else self._tally.totals()
        if totals is None:
            return self._planned, None
        # Nothing else: what ends a copy (fence, trap) comes after its signal, and may be counted with the next run.
        return self._planned, {name: totals.get(name, 0) for name in self._planned}


def wrong_with(described: Description, works: Sequence[ticks.Work], sample: Sequence[ticks.Span]) -> str | None:
    """In words, what the ticks of a run say against what was stated.

    Parts that a gate releases must overlap on every GPU. The host's own pace may keep them from it, where they are
    short: that is what a host-driven strategy is worth there, and its rows say how much overlapped.
    """
    if len(described.order) == 2 and (described.launch == "gated" or not described.concurrent):
        wrong = ticks.check_overlap(works, sample, described.concurrent)
        if wrong:
            return wrong
    return ticks.check_order(works, sample, described.order)


def by_whom(settings: Settings) -> str:
    """In the key of a row, whose GEMMs are not ours."""
    return "" if settings.gemm == OURS else f" by {settings.gemm}"


def difference(planned: dict, counted: dict) -> str | None:
    """In words, a kind of packet of which others than planned crossed the library."""
    for name, plan in planned.items():
        if counted.get(name, 0) != plan:
            return f"{counted.get(name, 0)} {name} packets crossed the library, {plan} were planned"
    return None


def _from(trials: list[Trial], number: int, fixed: int) -> list[Trial]:
    """The trials in the order of a round: the first ``fixed`` ones of the first round are what others depend on, from
    then on each round begins one further."""
    if number == 0:
        return trials
    start = number % len(trials)
    return trials[start:] + trials[:start]


def smaller(scenario: Scenario, gpus: int) -> Scenario:
    """What stands for a scenario where its own size cannot be verified: the same plan with few tiles and bytes."""
    small = {name: min(getattr(scenario, name), most) for name, most in SMALL.items()}
    nbytes = min(scenario.nbytes, SMALL_BYTES * gpus)
    made = dataclasses.replace(scenario, **small, nbytes=nbytes, derivation="", group="scaled", name="")
    return dataclasses.replace(made, name=str(made))


def check(scenario: Scenario, gpus: int) -> None:
    """InvalidArgument, Undefined if a scenario cannot run on so many GPUs."""
    check_collective(gpus, scenario.nbytes)
    if scenario.nbytes % gpus:
        raise InvalidArgument(f"{scenario}: {scenario.nbytes} bytes are no {gpus} equal shards")
