"""Rows of a c3 sweep, read as results: per scenario the isolated times and what every strategy made of them.

A row is one strategy (with one variant, such as a split of the CUs) on one scenario; docs/results.md has its fields.
Rows with an error, and rows whose bytes nobody verified, take no part in any figure: they are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hsakit.c3 import taxonomy, ticks
from hsakit.c3.intervals import Difference, Estimate, differ, estimate, mean, median
from hsakit.c3.metrics import ideal_speedup, percent_of_ideal, speedup
from hsakit.c3.ticks import COLLECTIVE, GEMM, Work

KIND = "c3"
# Rows of one part alone.
ALONE_GEMM, ALONE_KERNELS, ALONE_ENGINES = "gemm", "kernels", "engines"
QUARTERS = {"kernels": "kernels_quarter", "engines": "engines_quarter"}  # the collective at a quarter of its size
CURVE_GEMM, CURVE_KERNELS = "gemm_by_cus", "kernels_by_cus"  # on some of the CUs
CURVES = (CURVE_GEMM, CURVE_KERNELS)
ALONE_NCCL = "nccl"  # the collective by the library that is compared with: where it was measured it sets Tc
ALONE = (ALONE_NCCL, ALONE_GEMM, ALONE_KERNELS, ALONE_ENGINES, *QUARTERS.values(), *CURVES)


def label(strategy: str, variant: dict[str, Any]) -> str:
    """``c3_rp cus=8``"""
    return " ".join([strategy, *(f"{name}={value}" for name, value in variant.items())])


@dataclass(frozen=True)
class Measured:
    """A row's samples with what each span is."""

    row: dict

    @cached_property
    def works(self) -> list[Work]:
        return [Work(*each) for each in self.row["parameters"]["works"]]

    @property
    def scenario(self) -> str:
        return self.row["parameters"]["scenario"]["name"]

    @property
    def strategy(self) -> str:
        return self.row["parameters"]["strategy"]

    @property
    def variant(self) -> dict:
        return self.row["parameters"]["variant"]

    @property
    def label(self) -> str:
        return label(self.strategy, self.variant)

    @property
    def samples(self) -> list[list[list[int]]]:
        return self.row["samples"]

    @cached_property
    def times(self) -> list[int]:
        """Of each run, from the first start on any GPU to the last end."""
        return [ticks.elapsed(sample) for sample in self.samples]

    def part_times(self, part: str, gpu: int | None = None) -> list[int]:
        """Of each run, from the part's own first start to its last end, on the node or on one GPU."""
        return [ticks.elapsed(ticks.spans_of(self.works, sample, part, gpu)) for sample in self.samples]

    def overlaps(self) -> list[float]:
        """Of each run, the least overlap of a GPU."""
        gpus = ticks.gpus_of(self.works)
        return [min(ticks.overlap(self.works, sample, gpu) for gpu in gpus) for sample in self.samples]


@dataclass(frozen=True)
class Result:
    """What a strategy made of a scenario. ``tried`` has all its variants, of which ``best`` is the fastest."""

    best: Measured
    tried: tuple[Measured, ...]
    time: Estimate
    speedup: Estimate
    percent: Estimate
    gemm_slowdown: Estimate
    collective_slowdown: Estimate
    overlap: float

    @property
    def oracle(self) -> bool:
        """Chosen with the times of all variants known."""
        return len(self.tried) > 1


@dataclass
class Outcome:
    """All rows of one scenario. ``results`` by strategy, in the order of the rows."""

    scenario: dict
    rows: dict[str, Measured] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.scenario["name"]

    @property
    def complete(self) -> bool:
        """Whether both isolated times are there: without them no figure of the others has a value."""
        return ALONE_GEMM in self.rows and ALONE_KERNELS in self.rows

    @property
    def gemm(self) -> list[int]:
        """Tg by run."""
        return self.rows[ALONE_GEMM].times

    @property
    def collective(self) -> list[int]:
        """Tc by run: NCCL's where that was measured, else that of our kernels, whoever carries what is compared."""
        return self.rows[ALONE_NCCL if ALONE_NCCL in self.rows else ALONE_KERNELS].times

    @property
    def kernels(self) -> list[int]:
        """The collective by our kernels alone, by run: of which curves and splits are, whoever sets Tc."""
        return self.rows[ALONE_KERNELS].times

    @cached_property
    def ideal(self) -> Estimate:
        return estimate(ideal_speedup, self.gemm, self.collective)

    @cached_property
    def duration(self) -> taxonomy.Verdict:
        return taxonomy.duration(float(np.median(self.gemm)), float(np.median(self.collective)))

    def bound_of_collective(self, by: str = "kernels") -> taxonomy.Verdict | None:
        if by not in self.rows or QUARTERS[by] not in self.rows:
            return None
        whole, quarter = (float(np.median(self.rows[name].times)) for name in (by, QUARTERS[by]))
        return taxonomy.bound_of_collective(whole, quarter)

    @cached_property
    def results(self) -> dict[str, Result]:
        tried: dict[str, list[Measured]] = {}
        for each in self.rows.values():
            if each.strategy not in ALONE:
                tried.setdefault(each.strategy, []).append(each)
        return {strategy: self._result(variants) for strategy, variants in tried.items()} if self.complete else {}

    def _result(self, tried: list[Measured]) -> Result:
        best = min(tried, key=lambda each: float(np.median(each.times)))
        by = best.row["parameters"]["collective_by"]
        alone = {"engines": ALONE_ENGINES, "nccl": ALONE_NCCL}.get(by, ALONE_KERNELS)
        collective = self.rows.get(alone, self.rows[ALONE_KERNELS])
        return Result(
            best=best,
            tried=tuple(tried),
            time=median(best.times),
            speedup=estimate(speedup, self.gemm, self.collective, best.times),
            percent=estimate(percent_of_ideal, self.gemm, self.collective, best.times),
            gemm_slowdown=estimate(_over, best.part_times(GEMM), self.gemm),
            collective_slowdown=estimate(_over, best.part_times(COLLECTIVE), collective.times),
            overlap=float(np.median(best.overlaps())),
        )

    def curve(self, strategy: str) -> dict[int, Estimate]:
        """The slowdown of CURVE_GEMM or CURVE_KERNELS by CUs, against all of them; empty if either was not measured."""
        if not self.complete:
            return {}
        whole = self.gemm if strategy == CURVE_GEMM else self.kernels
        points = {each.variant["cus"]: each for each in self.rows.values() if each.strategy == strategy}
        return {cus: estimate(_over, points[cus].times, whole) for cus in sorted(points)}

    def against(self, strategy: str, other: str) -> Difference:
        """By how much longer ``other`` took."""
        return differ(self.results[strategy].best.times, self.results[other].best.times)

    def fastest(self) -> list[str]:
        """The strategy of the least median, then those that tie with it."""
        ranked = sorted(self.results, key=lambda name: self.results[name].time.value)
        return [name for name in ranked if name == ranked[0] or self.against(ranked[0], name).tie]


def _over(a: float, b: float) -> float:
    return a / b


def good(row: dict) -> bool:
    return row["error"] is None and row["verified"] != "none"


def outcomes(rows: Iterable[dict]) -> list[Outcome]:
    """The scenarios of the good rows, in the order of the rows."""
    found: dict[str, Outcome] = {}
    for row in rows:
        if row["kind"] == KIND and good(row):
            scenario = row["parameters"]["scenario"]
            measured = Measured(row)
            found.setdefault(scenario["name"], Outcome(scenario)).rows[measured.label] = measured
    return list(found.values())


def who_sets_tc(found: Iterable[Outcome]) -> str:
    """Whose collective Tc is the time of, in words: nobody may print a per cent of ideal without it."""
    return " or ".join(dict.fromkeys("NCCL" if ALONE_NCCL in each.rows else "kernels" for each in found))


def strategies(found: Sequence[Outcome]) -> list[str]:
    """The strategies that any scenario has a result of, in the order of the rows."""
    return list(dict.fromkeys(name for outcome in found for name in outcome.results))


def average_percent(found: Sequence[Outcome], strategy: str) -> Estimate | None:
    """The mean per cent of ideal over the scenarios, those that have it all; None where none has."""
    having = [outcome for outcome in found if strategy in outcome.results]
    if not having:
        return None
    return mean(percent_of_ideal, [(o.gemm, o.collective, o.results[strategy].best.times) for o in having])
