"""What docs/clock.md says of strategies, and in how many draws of the constants each claim holds."""

from __future__ import annotations

import math
import random
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from ..clock import Constants
from ..node import NodeSpec
from .figures import engines_against_cus, products, saturation, slowdowns
from .strategies import Case, Model, Outcome, averages

# c3_sp_rp differs from c3_rp by the order of launch only, which disjoint masks make irrelevant
DRAWN = ("c3_base", "c3_sp", "c3_rp", "conccl", "conccl_rp")
HELD = 95  # of 100: what is claimed less often is not claimed
MIB = 1 << 20

# Plausible ranges: of 0 to 1 times the range, or, where marked, evenly in the logarithm
RANGES = {
    "pi": (0.0, 0.45),
    "cu_power": (1.4, 2.5),
    "phi": (0.1, 1.0),
    "theta": (0.0, 0.2),
    "q": (1.0, 1000.0),
    "beta": (1.2, 2.4),
    "engine_headroom": (1.0, 1.3),
    "remote_latency": (1.4, 2.2),
    "efficiency": (0.45, 0.75),
    "hbm_gb_s": (3800.0, 4600.0),
    "link_efficiency": (0.9, 1.0),
    "host_copy_ns": (6000.0, 20000.0),
    "host_sync_ns": (6000.0, 20000.0),
}
LOGARITHMIC = {"q"}


@dataclass(frozen=True)
class Drawn:
    """What one draw of the constants gives."""

    outcomes: Sequence[Outcome]
    percent: dict[str, float]
    small: tuple[float, ...]
    """engines over CUs, all-gather and all-to-all of 1 MiB"""
    large: tuple[float, ...]
    """of 512 MiB"""
    lost: tuple[float, ...]
    """mean slowdown of compute-bound products with 32 and 64 CUs lost"""
    spared: float
    """worst slowdown of a memory-bound product with 8 CUs taken away"""
    saturation: tuple[int, ...]

    @property
    def best(self) -> float:
        return max(o.speedup("conccl_rp") for o in self.outcomes)

    def of(self, kind: str, strategy: str) -> float:
        some = [o.speedup(strategy) for o in self.outcomes if o.case.collective == kind]
        return sum(some) / len(some)


@dataclass(frozen=True)
class Claim:
    text: str
    holds: Callable[[Drawn], bool]


def _worst(d: Drawn) -> float:
    return min(d.percent.values())


def _gain(d: Drawn, kind: str) -> float:
    """Speedup that engines add to c3_base's."""
    return d.of(kind, "conccl") - d.of(kind, "c3_base")


CLAIMS = (
    Claim("every strategy beats one after the other", lambda d: _worst(d) > 0),
    Claim("c3_base is the worst", lambda d: d.percent["c3_base"] <= _worst(d) + 1e-9),
    Claim("conccl beats c3_base", lambda d: d.percent["conccl"] > d.percent["c3_base"]),
    Claim("conccl beats c3_sp", lambda d: d.percent["conccl"] > d.percent["c3_sp"]),
    Claim("conccl beats c3_rp, though that is an oracle", lambda d: d.percent["conccl"] > d.percent["c3_rp"]),
    Claim("conccl_rp is at least as good as conccl", lambda d: d.percent["conccl_rp"] >= d.percent["conccl"]),
    Claim("c3_sp and c3_rp are within 6 points", lambda d: abs(d.percent["c3_sp"] - d.percent["c3_rp"]) <= 6),
    Claim("no strategy passes 95 per cent of ideal", lambda d: max(d.percent.values()) < 95),
    Claim(
        "engines add more for all-to-all than for all-gather", lambda d: _gain(d, "all-to-all") > _gain(d, "all-gather")
    ),
    Claim("the best speedup by engines is between 1.5 and 2", lambda d: 1.5 < d.best < 2),
    Claim("engines are slower than CUs at 1 MiB", lambda d: min(d.small) > 1),
    Claim("engines are at least twice as slow as CUs at 1 MiB", lambda d: min(d.small) >= 2),
    Claim("engines are within 15 per cent of CUs, or faster, at 512 MiB", lambda d: max(d.large) <= 1.15),
    Claim("compute-bound products lose more without 64 CUs than without 32", lambda d: d.lost[1] > d.lost[0]),
    Claim("compute-bound products lose 20 to 33 per cent without 64 CUs", lambda d: 1.2 <= d.lost[1] <= 1.33),
    Claim("memory-bound products lose at most 3 per cent without 8 CUs", lambda d: d.spared <= 1.03),
    Claim("all-to-all needs more CUs than all-gather to saturate", lambda d: d.saturation[1] > d.saturation[0]),
)


def draw(base: Constants, number: int) -> Constants:
    """The ``number``-th draw: the same on every machine."""
    rng = random.Random(20241210 + number)
    values = {}
    for name, (low, high) in RANGES.items():
        if name in LOGARITHMIC:
            values[name] = low * math.exp(rng.random() * math.log(high / low))
        else:
            values[name] = low + rng.random() * (high - low)
    return base.with_(**values)


def drawn(spec: NodeSpec, constants: Constants, cases: Sequence[Case]) -> Drawn:
    model = Model(spec, constants)
    outcomes = [model.outcome(case, DRAWN) for case in cases]
    kinds = ("all-gather", "all-to-all")
    bound = {p: model.bound_by_memory(p) for p in products(cases)}
    compute = [p for p, by_memory in bound.items() if not by_memory]
    memory = [p for p, by_memory in bound.items() if by_memory]
    lost = [slowdowns(model, compute, n) for n in (32, 64)]
    return Drawn(
        outcomes,
        averages(outcomes),
        small=tuple(engines_against_cus(model, kind, MIB) for kind in kinds),
        large=tuple(engines_against_cus(model, kind, 512 * MIB) for kind in kinds),
        lost=tuple(sum(some) / len(some) for some in lost),
        spared=max(slowdowns(model, memory, 8), default=1.0),
        saturation=tuple(saturation(model, kind) for kind in kinds),
    )


def _one(work: tuple[NodeSpec, Constants, Sequence[Case], int]) -> tuple[list[bool], dict[str, float]]:
    spec, base, cases, number = work
    found = drawn(spec, draw(base, number), cases)
    return [claim.holds(found) for claim in CLAIMS], found.percent


def robustness(
    spec: NodeSpec, base: Constants, cases: Sequence[Case], draws: int, processes: int
) -> tuple[list[int], list[dict[str, float]]]:
    """In how many draws each claim holds, and the averages of every draw."""
    work = [(spec, base, cases, number) for number in range(draws)]
    if processes > 1:
        # Ctrl-C is for the process that waits for them
        ignore = (signal.SIGINT, signal.SIG_IGN)
        with ProcessPoolExecutor(processes, initializer=signal.signal, initargs=ignore) as pool:
            found = list(pool.map(_one, work))
    else:
        found = list(map(_one, work))
    return [sum(held[i] for held, _ in found) for i in range(len(CLAIMS))], [percent for _, percent in found]
