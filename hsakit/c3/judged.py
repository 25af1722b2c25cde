"""Rows of a sweep against the heuristics: tables of slowdowns from rows, picks, and what they would have cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from hsakit.c3 import heuristics, paper, prediction, ticks
from hsakit.c3.heuristics import Judgement, Machine, SlowdownTable
from hsakit.c3.outcome import ALONE_GEMM, CURVE_GEMM, CURVE_KERNELS, Measured, Outcome
from hsakit.c3.prediction import Launch
from hsakit.c3.scenario import Scenario
from hsakit.c3.tables import Table
from hsakit.c3.ticks import GEMM

PAPERS, OURS = "paper's", "ours"


def table_of(found: Iterable[Outcome], machine: Machine) -> SlowdownTable:
    """A table of slowdowns from the curves in the rows. Of several scenarios with one collective, the first counts."""
    kernels: dict[str, dict[int, float]] = {}
    clock = ""
    for outcome in found:
        if not outcome.complete:
            continue
        for strategy, name in (
            (CURVE_GEMM, outcome.scenario["gemm"]),
            (CURVE_KERNELS, outcome.scenario["collective"]),
        ):
            curve = outcome.curve(strategy)
            if curve and name not in kernels:
                kernels[name] = {cus: each.value for cus, each in curve.items()} | {machine.cus: 1.0}
                clock = outcome.rows[ALONE_GEMM].row["clock"]
    return SlowdownTable(machine.cus, clock, kernels)


def presence(found: Iterable[Outcome], machine: Machine) -> float:
    """By how much a GEMM computes slower while a collective by kernels runs at its full rate, on CUs of its own.

    From c3_rp and the GEMM's curve, of scenarios that have both and whose GEMM computing bounds: what its time on
    its CUs grew by, over the time that both ran. 0 where no scenario has them.
    """
    slower = []
    for outcome in found:
        result, curve = outcome.results.get("c3_rp"), outcome.curve(CURVE_GEMM)
        if result is None or scenario_of(outcome).intensity < machine.flops / machine.bandwidth:
            continue
        whole, alone = float(np.median(outcome.gemm)), float(np.median(outcome.kernels))
        collective = {cus: each.value for cus, each in outcome.curve(CURVE_KERNELS).items()}
        for each in result.tried:
            cus = each.variant["cus"]
            if machine.cus - cus not in curve or cus not in collective:
                continue
            both = float(np.median([_both(each, sample) for sample in each.samples]))
            lost = float(np.median(each.part_times(GEMM))) - whole * curve[machine.cus - cus].value
            if both > max(lost, 0.1 * alone):
                slower.append(max(0.0, lost) / (both - lost) * max(1.0, collective[cus]))
    return float(np.median(slower)) if slower else 0.0


def _both(measured: Measured, sample: Sequence[ticks.Span]) -> int:
    parts = (ticks.spans_of(measured.works, sample, part) for part in ticks.PARTS)
    return ticks.shared(*parts)


def scenario_of(outcome: Outcome) -> Scenario:
    data = outcome.scenario
    names = Scenario.__dataclass_fields__
    return Scenario(**{name: data[name] for name in names})


def judge(found: Sequence[Outcome], table: SlowdownTable, machine: Machine) -> dict[str, list[Judgement]]:
    """The picks of both heuristics for c3_rp on every scenario whose collective the table has."""
    judged: dict[str, list[Judgement]] = {PAPERS: [], OURS: []}
    slowed = presence(found, machine)
    for outcome in found:
        result = outcome.results.get("c3_rp")
        if result is None or not result.oracle or outcome.scenario["collective"] not in table.kernels:
            continue
        measured = {each.variant["cus"]: float(np.median(each.times)) for each in result.tried}
        scenario, parameters = scenario_of(outcome), result.best.row["parameters"]
        tg, tc = float(np.median(outcome.gemm)), float(np.median(outcome.kernels))
        launch = Launch(parameters["workgroups"]["gemm"], parameters["gemm_per_cu"])
        traffic = dataclasses.replace(prediction.KERNEL_TRAFFIC[scenario.collective], slowdown=slowed)
        try:
            picks = {
                PAPERS: heuristics.pick_split(scenario, table, machine, tg, tc),
                OURS: prediction.pick_split(scenario, launch, table, machine, traffic, tg, tc),
            }
        except heuristics.TableError:  # a curve that is not whole: rows that went wrong, or are yet to come
            continue
        for name, pick in picks.items():
            judged[name].append(heuristics.judge(outcome.name, pick.cus, measured))
    return judged


def as_table(judged: dict[str, list[Judgement]], table: SlowdownTable) -> Table:
    lines = []
    for papers, ours in zip(judged[PAPERS], judged[OURS]):
        lines.append(
            [papers.scenario, str(papers.best)]
            + [cell for each in (papers, ours) for cell in (str(each.picked), f"{each.loss:.1%}")]
        )
    scores = {name: heuristics.score(each) for name, each in judged.items()}
    for name, (hits, of, worst) in scores.items():
        cells = ["-"] * 4
        at = 0 if name == PAPERS else 2
        cells[at : at + 2] = [f"{hits} of {of}", f"{worst:.1%}"]
        lines.append([f"hits and worst loss, {name}", "-", *cells])
    published = paper.HEURISTIC
    return Table(
        "heuristics",
        "CUs that a heuristic gives to the collective, against the fastest split",
        ("scenario", "fastest", "paper's picks", "loses", "ours picks", "loses"),
        lines,
        f"In the table of slowdowns: {', '.join(table.kernels)}; other GEMMs by the roofline (paper's) or by rounds of "
        f"workgroups and shared memory (ours). The paper reports {published['hits']} hits of {published['of']} and "
        f"{published['worst_loss']:.1%} at most, on its own scenarios and with every kernel in its table.",
    )
