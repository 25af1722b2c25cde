"""The heuristics for a split of the CUs, held against an oracle on scenarios that they have not seen.

What a rule may know of the machine is learned from one list of scenarios: the table of slowdowns, and by how much a
collective's presence slows a GEMM. It is judged on another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from hsakit.c3 import heuristics, machine, prediction
from hsakit.c3.heuristics import Judgement, Machine, SlowdownTable, gemm_name, splits
from hsakit.c3.prediction import Launch
from hsakit.c3.scenario import Scenario

MEASURED, ROOFLINE, OURS = "paper's, every GEMM in its table", "paper's, GEMMs by the roofline", "ours"


class Timed(Protocol):
    """What gives the times of runs, in nanoseconds: a node, or a model of one."""

    def launch(self, scenario: Scenario) -> Launch:
        """Of the GEMM."""

    def gemm(self, scenario: Scenario, cus: int) -> float:
        """The GEMM alone on so many CUs."""

    def collective(self, scenario: Scenario, cus: int | None = None) -> float:
        """The collective by kernels alone, on so many CUs; on all without a number."""

    def split(self, scenario: Scenario, cus: int) -> tuple[float, float]:
        """The ends of GEMM and collective, the collective on so many CUs and the GEMM on the others."""

    def copy(self, nbytes: int) -> float:
        """A kernel that copies so many bytes within a GPU's memory."""


@dataclass(frozen=True)
class Learned:
    """What is measured of a machine once. presence: see ``judged.presence``."""

    machine: Machine
    table: SlowdownTable
    presence: float


def learn(timed: Timed, cus: int, scenarios: Sequence[Scenario]) -> Learned:
    """From scenarios of which the first of each collective gives its curve."""
    whole = timed.gemm(machine.GEMM, cus)
    rates = Machine(cus, machine.GEMM.flops / whole * 1e9, 2 * machine.COPY / timed.copy(machine.COPY) * 1e9)
    kernels: dict[str, dict[int, float]] = {}
    for scenario in scenarios:
        if scenario.collective not in kernels:
            alone = timed.collective(scenario)
            curve = {n: timed.collective(scenario, n) / alone for n in splits(cus)}
            kernels[scenario.collective] = curve | {cus: 1.0}
    table = SlowdownTable(cus, "model", kernels)
    found = [
        slower
        for scenario in scenarios
        if scenario.intensity >= rates.flops / rates.bandwidth
        for n in splits(cus)
        if (slower := _presence(timed, cus, scenario, n, kernels[scenario.collective][n])) is not None
    ]
    return Learned(rates, table, median(found) if found else 0.0)


def _presence(timed: Timed, cus: int, scenario: Scenario, given: int, slowdown: float) -> float | None:
    """As ``judged.presence`` has it of one split; None where the two hardly met."""
    alone = timed.gemm(scenario, cus - given)
    gemm, collective = timed.split(scenario, given)
    both, lost = min(gemm, collective), gemm - alone
    if both <= max(lost, 0.1 * timed.gemm(scenario, cus)):
        return None
    return max(0.0, lost) / (both - lost) * max(1.0, slowdown)


def judge(timed: Timed, learned: Learned, scenarios: Sequence[Scenario]) -> dict[str, list[Judgement]]:
    """The picks of the paper's rule, with and without the GEMMs in its table, and of ours, against the best split."""
    judged: dict[str, list[Judgement]] = {MEASURED: [], ROOFLINE: [], OURS: []}
    rates, table = learned.machine, learned.table
    for scenario in scenarios:
        tg, tc = timed.gemm(scenario, rates.cus), timed.collective(scenario)
        measured = {given: max(timed.split(scenario, given)) for given in splits(rates.cus)}
        curve = {rates.cus - given: timed.gemm(scenario, rates.cus - given) / tg for given in splits(rates.cus)}
        whole = dataclasses.replace(table, kernels=table.kernels | {gemm_name(scenario): curve | {rates.cus: 1.0}})
        traffic = dataclasses.replace(prediction.KERNEL_TRAFFIC[scenario.collective], slowdown=learned.presence)
        picks = {
            MEASURED: heuristics.pick_split(scenario, whole, rates, tg, tc),
            ROOFLINE: heuristics.pick_split(scenario, table, rates, tg, tc),
            OURS: prediction.pick_split(scenario, timed.launch(scenario), table, rates, traffic, tg, tc),
        }
        for name, pick in picks.items():
            judged[name].append(heuristics.judge(scenario.name, pick.cus, measured))
    return judged
