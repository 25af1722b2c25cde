"""The paper's heuristics for launch order and for the split of compute units, and what a pick costs against an oracle.

SP launches in ascending number of workgroups. RP has a table, measured once and saved: each kernel's slowdown by
compute units. For kernels not in it a roofline at 0.70 of the machine's rates stands in. Of the powers of two that may
be given to the collective it picks the one with the least predicted time.
"""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hsakit.c3.scenario import Scenario
from hsakit.ffi.errors import HsakitError, InvalidArgument

EFFICIENCY = 0.70  # of the roofline
LEAST = 8  # CUs that a split gives to the collective: one of each XCD


class TableError(HsakitError):
    """A table of slowdowns that cannot be read or lacks what is asked."""


def launch_order(workgroups: Mapping[str, int]) -> tuple[str, ...]:
    """Names of kernels by ascending number of workgroups; of equal ones the first named comes first."""
    return tuple(sorted(workgroups, key=lambda name: workgroups[name]))


def splits(cus: int) -> tuple[int, ...]:
    """The powers of two from LEAST on that leave the GEMM more than nothing: what RP chooses from."""
    found = tuple(1 << i for i in range(LEAST.bit_length() - 1, cus.bit_length()) if 1 << i < cus)
    if not found:
        raise InvalidArgument(f"a GPU of {cus} CUs cannot be split: the collective gets {LEAST} at the least")
    return found


def gemm_name(scenario: Scenario) -> str:
    """What a GEMM is called in a table."""
    return str(scenario).partition("+")[0]


@dataclass(frozen=True)
class SlowdownTable:
    """Times of kernels by compute units over their time with all ``cus``. ``clock``: what the times were ticks of."""

    cus: int
    clock: str
    kernels: dict[str, dict[int, float]] = field(default_factory=dict)

    def slowdown(self, kernel: str, cus: int) -> float | None:
        """By so many CUs; None for a kernel that is not in the table. Between two counts that were measured it is
        linear in 1 / CUs, as a time that shrinks with each CU is."""
        measured = self.kernels.get(kernel)
        if not measured:
            return None
        counts = sorted(measured)
        if not counts[0] <= cus <= counts[-1]:
            raise TableError(f"{kernel} with {cus} CUs: the table has {counts[0]} to {counts[-1]}")
        at = bisect.bisect_left(counts, cus)
        if counts[at] == cus:
            return measured[cus]
        below, above = counts[at - 1], counts[at]
        part = (1 / cus - 1 / above) / (1 / below - 1 / above)
        return measured[above] + part * (measured[below] - measured[above])

    def save(self, path: Path | str) -> None:
        Path(path).write_text(
            json.dumps({"cus": self.cus, "clock": self.clock, "kernels": self.kernels}, indent=1) + "\n"
        )

    @classmethod
    def load(cls, path: Path | str) -> SlowdownTable:
        try:
            data = json.loads(Path(path).read_text())
            kernels = {
                name: {int(cus): float(slowdown) for cus, slowdown in measured.items()}
                for name, measured in data["kernels"].items()
            }
            return cls(int(data["cus"]), str(data["clock"]), kernels)
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise TableError(f"{path} is no table of slowdowns: {error}") from None


@dataclass(frozen=True)
class Machine:
    """Measured rates of one GPU with all ``cus``: operations a second of a GEMM that nothing else holds up, bytes a
    second of its memory."""

    cus: int
    flops: float
    bandwidth: float


def roofline(scenario: Scenario, machine: Machine, cus: int) -> float:
    """Nanoseconds of the GEMM on so many CUs at EFFICIENCY of the machine's rates; memory is there for any of them."""
    compute = scenario.flops / (machine.flops * cus / machine.cus)
    memory = scenario.gemm_bytes / machine.bandwidth
    return max(compute, memory) / EFFICIENCY * 1e9


def gemm_slowdown(scenario: Scenario, table: SlowdownTable, machine: Machine, cus: int) -> float:
    """From the table where the GEMM is in it, else by the roofline."""
    found = table.slowdown(gemm_name(scenario), cus)
    if found is None:
        return roofline(scenario, machine, cus) / roofline(scenario, machine, machine.cus)
    return found


@dataclass(frozen=True)
class Pick:
    """CUs given to the collective, and the time predicted of every split, in nanoseconds."""

    cus: int
    predicted: dict[int, float]


def least(predicted: Mapping[int, float]) -> Pick:
    """The split of the least time; of equal ones, the one that leaves the GEMM most."""
    return Pick(min(sorted(predicted), key=lambda cus: predicted[cus]), dict(predicted))


def pick_split(scenario: Scenario, table: SlowdownTable, machine: Machine, tg: float, tc: float) -> Pick:
    """RP's pick, from the isolated times (nanoseconds): both slowed by what they lack, the longer one counts."""
    predicted = {}
    for cus in splits(machine.cus):
        collective = table.slowdown(scenario.collective, cus)
        if collective is None:
            raise TableError(f"the table has no {scenario.collective}: measure it, there is no roofline for it")
        predicted[cus] = max(tg * gemm_slowdown(scenario, table, machine, machine.cus - cus), tc * collective)
    return least(predicted)


@dataclass(frozen=True)
class Judgement:
    """A pick against the best that was measured. loss: how much longer it took, 0 for a hit."""

    scenario: str
    picked: int
    best: int
    loss: float

    @property
    def hit(self) -> bool:
        return self.loss <= 0


def judge(scenario: str, picked: int, measured: Mapping[int, float]) -> Judgement:
    """A pick, and the times of every split that an oracle chose from. An equal time is a hit."""
    if picked not in measured:
        raise InvalidArgument(f"{scenario}: {picked} CUs were picked, measured are {sorted(measured)}")
    best = least(measured).cus
    return Judgement(scenario, picked, best, measured[picked] / measured[best] - 1)


def score(judgements: Iterable[Judgement]) -> tuple[int, int, float]:
    """Hits, of how many, and the worst loss."""
    judged = list(judgements)
    return sum(each.hit for each in judged), len(judged), max((each.loss for each in judged), default=math.nan)
