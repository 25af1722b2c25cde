"""The strategies of the C3 / ConCCL paper (arXiv 2412.14335) on the model: times of each, and per cent of ideal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..clock import Constants, Cost, Machine, Timeline
from ..node import NodeSpec
from .work import Ends, Product, collective, engine_collective, launch

STRATEGIES = ("c3_base", "c3_sp", "c3_rp", "c3_sp_rp", "conccl", "conccl_rp")
PUBLISHED = {"c3_base": 21, "c3_sp": 42, "c3_rp": 41, "c3_sp_rp": 42, "conccl": 66, "conccl_rp": 72}
LATER = 1_000_000  # picoseconds: who is launched second comes this much later
REMOVED = 8  # CUs that conccl_rp takes from a product that memory bounds


@dataclass(frozen=True)
class Case:
    """A scenario: a product and a collective of ``nbytes`` of output on every GPU."""

    name: str
    product: Product
    collective: str
    nbytes: int


@dataclass
class Outcome:
    """Picoseconds."""

    case: Case
    tg: int
    tc: int
    times: dict[str, int] = field(default_factory=dict)
    split: dict[str, int] = field(default_factory=dict)
    """CUs that the best partition gave to the collective"""

    def speedup(self, strategy: str) -> float:
        return (self.tg + self.tc) / self.times[strategy]

    @property
    def ideal(self) -> float:
        return (self.tg + self.tc) / max(self.tg, self.tc)

    def percent(self, strategy: str) -> float:
        return 100 * (self.speedup(strategy) - 1) / (self.ideal - 1)


class Model:
    def __init__(self, spec: NodeSpec, constants: Constants):
        self.spec, self.constants = spec, constants

    def cus(self, count: int, from_the_end: bool = False) -> tuple[int, ...]:
        """``count`` CUs, as evenly over the XCCs as they go: of each XCC the first, or the last, ones."""
        part = self.spec.gpu
        each, more = divmod(count, part.xccs)
        masks = []
        for xcc in range(part.xccs):
            mask = (1 << each + (xcc < more)) - 1
            masks.append(mask << part.cus - mask.bit_length() if from_the_end else mask)
        return tuple(masks)

    def run(self, product: Product | None, kind: str | None, nbytes: int = 0, *, product_cus: int = 0,
            collective_cus: int = 0, collective_first: bool = False, channels: int = 0, engines: bool = False,
            gated: bool = False) -> int:  # fmt: skip
        """Time until the later of both has ended, in picoseconds.  A number of CUs of 0 is all of them."""
        return max(self.ends(product, kind, nbytes, product_cus=product_cus, collective_cus=collective_cus,
                             collective_first=collective_first, channels=channels, engines=engines,
                             gated=gated))  # fmt: skip

    def ends(self, product: Product | None, kind: str | None, nbytes: int = 0, *, product_cus: int = 0,
             collective_cus: int = 0, collective_first: bool = False, channels: int = 0, engines: bool = False,
             gated: bool = False) -> tuple[int, int]:  # fmt: skip
        """When the product and when the collective has ended, in picoseconds; 0 of what there is not."""
        timeline = Timeline()
        machine = Machine(timeline, self.spec, self.constants, mirrored=True)
        product_end, end = Ends(machine), Ends(machine)
        everything = self.spec.gpu.total_cus
        both = product is not None and kind is not None
        if product is not None:
            cost = product.cost(self.spec, self.constants)
            at = LATER if both and collective_first and not engines else 0
            cus = self.cus(product_cus or everything, from_the_end=True)
            launch(machine, at, product.workgroups, [cost], cus, product_end)
        if kind is not None and engines:
            engine_collective(machine, kind, nbytes, end, gated)
        elif kind is not None:
            workgroups, segments = collective(self.spec, kind, nbytes, channels)
            at = LATER if both and not collective_first else 0
            launch(machine, at, workgroups, segments, self.cus(collective_cus or everything), end)
        timeline.run()
        return product_end.last, end.last

    def copy(self, nbytes: int) -> int:
        """Picoseconds of a kernel that copies so many bytes within a GPU's memory."""
        timeline = Timeline()
        machine = Machine(timeline, self.spec, self.constants, mirrored=True)
        end, cus = Ends(machine), self.spec.gpu.total_cus
        launch(machine, 0, cus, [Cost(hbm_bytes=2 * nbytes / cus)], self.cus(cus), end)
        timeline.run()
        return end.last

    def outcome(self, case: Case, strategies: Iterable[str] = STRATEGIES) -> Outcome:
        product, kind, nbytes = case.product, case.collective, case.nbytes
        found = Outcome(case, self.run(product, None), self.run(None, kind, nbytes))
        total = self.spec.gpu.total_cus
        for strategy in strategies:
            if strategy in ("c3_base", "c3_sp"):
                t = self.run(product, kind, nbytes, collective_first=strategy == "c3_sp")
            elif strategy in ("c3_rp", "c3_sp_rp"):
                first = strategy == "c3_sp_rp"
                by_split = {
                    given: self.run(product, kind, nbytes, product_cus=total - given, collective_cus=given,
                                    collective_first=first)
                    for given in splits(total, self.spec.gpu.xccs)
                }  # fmt: skip
                found.split[strategy] = min(by_split, key=lambda given: by_split[given])
                t = by_split[found.split[strategy]]
            else:
                removed = REMOVED if strategy == "conccl_rp" and self.bound_by_memory(product) else 0
                t = self.run(product, kind, nbytes, product_cus=total - removed, engines=True)
            found.times[strategy] = t
        return found

    def bound_by_memory(self, product: Product) -> bool:
        """By what it asks of the machine with all CUs."""
        cost = product.cost(self.spec, self.constants)
        cus = self.spec.gpu.total_cus
        return cost.hbm_bytes * cus / (self.constants.hbm_gb_s * 1e-3) > cost.compute_ps


def splits(cus: int, least: int) -> list[int]:
    """Powers of two that a partition may give to the collective: from one CU an XCC to less than all."""
    return [1 << i for i in range(16) if least <= 1 << i < cus]


def averages(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Mean per cent of ideal by strategy."""
    outcomes = list(outcomes)
    return {name: sum(o.percent(name) for o in outcomes) / len(outcomes) for name in outcomes[0].times}
