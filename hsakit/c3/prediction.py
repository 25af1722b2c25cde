"""Our own prediction of a C3 run, which needs no table of the GEMM at hand: of it, its launch and its isolated time.

The paper's heuristic takes each part as if the other were not there. Here the parts share memory while both run, the
one left over runs alone, and a GEMM that waits for whole rounds of workgroups is slowed by rounds and not by CUs.
What has to be measured once is of the machine: its rates, the collectives' saturation, and how a GEMM is slowed by
traffic of kernels and of engines (the interference sweep).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hsakit.c3.heuristics import Machine, Pick, SlowdownTable, TableError, least, splits
from hsakit.c3.scenario import Scenario


@dataclass(frozen=True)
class Traffic:
    """What a collective asks of a GPU's memory: bytes there for each byte of its output, and by how much a GEMM that
    is not held up by memory computes slower while it runs at full rate."""

    bytes_a_byte: float
    slowdown: float


# By collective: what passes through a GPU's memory for each byte of output when engines carry it. All but its own shard
# is written there; an all-gather's own shard is read once for every peer, an all-to-all's all once. Counted, not
# measured: caches may save some of it.
ENGINE_TRAFFIC = {"all-gather": Traffic(1.75, 0.0), "all-to-all": Traffic(2.0, 0.0)}
# The same when kernels carry it, which read and write through caches as well: counted from what they load and store.
KERNEL_TRAFFIC = {"all-gather": Traffic(1.75, 0.0), "all-to-all": Traffic(2.0, 0.0)}
# The part of its time that a memory-bound GEMM saves when 8 CUs are idle: the paper saw "up to 10 %"; half of that.
THRASHING = 0.05


# A GEMM that fills memory makes others' CUs wait longer for it: so many more of them do what they did alone. Chosen
# under the software node's model with the sets llama and unseen in view: for this rule, unseen is no held-out set;
# docs/clock.md has what it did on one.
CROWDED = 1.5
_MOSTLY = 0.8  # of a GEMM's time: below, computing does not decide it


@dataclass(frozen=True)
class Launch:
    """Of a GEMM: its workgroups, and how many of them a CU holds at a time."""

    workgroups: int
    per_cu: int

    def rounds(self, cus: int) -> int:
        return -(-self.workgroups // (cus * self.per_cu))


@dataclass(frozen=True)
class Part:
    """One part of a run: its time when the other is not there, its memory traffic (bytes), and its slowdown by the
    other's presence other than through memory."""

    alone: float
    traffic: float
    slowed: float = 1.0


def gemm_alone(scenario: Scenario, launch: Launch, machine: Machine, tg: float, cus: int) -> float:
    """Nanoseconds of the GEMM on so many CUs, from its time ``tg`` with all.

    What computing takes of it grows with the rounds. If that is not all of it, the rest is memory's, and stays.
    """
    more = launch.rounds(cus) / launch.rounds(machine.cus)
    if bound_by_memory(scenario, launch, machine, tg):
        return max(_computing(scenario, launch, machine) * more, tg)
    return max(tg * more, scenario.gemm_bytes / machine.bandwidth * 1e9)


def bound_by_memory(scenario: Scenario, launch: Launch, machine: Machine, tg: float) -> bool:
    """Whether computing leaves a part of the GEMM's time that only memory explains."""
    return _computing(scenario, launch, machine) < _MOSTLY * tg


def _computing(scenario: Scenario, launch: Launch, machine: Machine) -> float:
    """Nanoseconds of its rounds on all CUs at the machine's rate."""
    places = launch.rounds(machine.cus) * machine.cus * launch.per_cu
    return scenario.flops / machine.flops * places / launch.workgroups * 1e9


def together(gemm: Part, collective: Part, bandwidth: float) -> float:
    """Nanoseconds from the start of both to the end of the later one; ``bandwidth``: of memory, bytes a nanosecond."""
    rates = [part.traffic / (part.alone * part.slowed) for part in (gemm, collective)]
    crowded = max(1.0, sum(rates) / bandwidth)
    ends = [part.alone * part.slowed * crowded for part in (gemm, collective)]
    first = min(ends)
    left = max(part.alone * (1 - first / end) for part, end in zip((gemm, collective), ends))
    return first + left


def pick_split(
    scenario: Scenario, launch: Launch, table: SlowdownTable, machine: Machine, traffic: Traffic, tg: float, tc: float
) -> Pick:
    """The split with the least predicted time. ``table`` is asked for the collective only."""
    if scenario.collective not in table.kernels:
        raise TableError(f"the table has no {scenario.collective}: measure it")
    least_measured = min(table.kernels[scenario.collective])
    predicted = {}
    for cus in splits(machine.cus):
        useful = cus
        if bound_by_memory(scenario, launch, machine, tg):  # the other way round: what its kernels wait for is slower
            useful = max(least_measured, round(cus / CROWDED))
        slowdown = table.slowdown(scenario.collective, useful)
        assert slowdown is not None
        gemm, collective = parts(
            scenario, launch, machine, traffic, tg, tc * slowdown, machine.cus - cus, part=1 / max(1.0, slowdown)
        )
        predicted[cus] = together(gemm, collective, machine.bandwidth / 1e9)
    return least(predicted)


def parts(
    scenario: Scenario,
    launch: Launch,
    machine: Machine,
    traffic: Traffic,
    tg: float,
    tc: float,
    cus: int,
    part: float = 1.0,
) -> tuple[Part, Part]:
    """GEMM on so many CUs and collective, of isolated times tg (on all CUs) and tc (as it runs here, ``part`` of its
    full rate)."""
    alone = gemm_alone(scenario, launch, machine, tg, cus)
    return (
        Part(alone, scenario.gemm_bytes, 1 + traffic.slowdown * part),
        Part(tc, traffic.bytes_a_byte * scenario.nbytes),
    )


@dataclass(frozen=True)
class Removal:
    """CUs to take from the GEMM beside an engine collective, and the predicted time of each choice."""

    cus: int
    predicted: dict[int, float]


def removed_cus(
    scenario: Scenario,
    launch: Launch,
    machine: Machine,
    traffic: Traffic,
    tg: float,
    tc: float,
    thrashing: float,
    choices: tuple[int, ...] = (0, 8),
) -> Removal:
    """How many CUs to leave idle beside engines that use none. ``thrashing``: the part of its memory time that a GEMM
    saves when a CU of each XCD is idle (measured of a memory-bound one; 0 where nothing was saved)."""
    predicted = {}
    for cus in choices:
        gemm, collective = parts(scenario, launch, machine, traffic, tg, tc, machine.cus - cus)
        if cus and memory_bound(scenario, machine):
            gemm = Part(gemm.alone * (1 - thrashing), gemm.traffic * (1 - thrashing), gemm.slowed)
        predicted[cus] = together(gemm, collective, machine.bandwidth / 1e9)
    best = min(sorted(predicted), key=lambda cus: predicted[cus])
    return Removal(best, predicted)


def memory_bound(scenario: Scenario, machine: Machine) -> bool:
    return scenario.intensity < machine.flops / machine.bandwidth


def engines_a_peer(collective: str, nbytes: int, gpus: int, engines: int, smallest: int = 8 << 20) -> int:
    """Over how many engines to split each copy: as many as there are for each, while a piece is at least ``smallest``
    bytes (below, starting another engine costs more than it moves).

    An all-to-all has a copy within the GPU too. Where its pieces find no engine of their own, they wait for another's,
    and take as long again as a link's: with two pieces on 14 engines, half as long as the whole collective."""
    copies = gpus if collective == "all-to-all" else gpus - 1
    available = max(1, engines // copies)
    shard = nbytes // gpus
    return max(1, min(available, math.floor(shard / smallest)))
