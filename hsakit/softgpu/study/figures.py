"""Published figures that no constant was fitted to, and what the model says of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .strategies import Case, Model, Outcome
from .work import TILES, Product

MIB = 1 << 20
BIG = 1 << 30  # bytes: a collective that its start does not matter to
SMALL_SIZES = tuple(1 << i for i in range(16, 25))  # 64 KiB to 16 MiB
ENGINE_PACKETS = 6  # of a copy, besides the copy: poll, two time stamps, atomic, fence, trap
SATURATED = 0.95


@dataclass(frozen=True)
class Figure:
    name: str
    published: str
    modelled: str


def products(cases: Iterable[Case]) -> list[Product]:
    """Each once."""
    return list(dict.fromkeys(case.product for case in cases))


def fastest(model: Model, product: Product) -> Product:
    """As a library has it that was tuned with all CUs: in the tile that is the fastest there."""
    return min((replace(product, tile=tile) for tile in TILES), key=lambda p: model.run(p, None))


def slowdowns(model: Model, some: Iterable[Product], lost: int) -> list[float]:
    """Time with so many CUs taken away over that with all."""
    cus = model.spec.gpu.total_cus
    return [model.run(p, None, product_cus=cus - lost) / model.run(p, None) for p in some]


def engines_against_cus(model: Model, kind: str, nbytes: int) -> float:
    """Time of a collective by engines, driven by the host, over that by CUs; each alone."""
    return model.run(None, kind, nbytes, engines=True) / model.run(None, kind, nbytes)


def not_copying(model: Model, nbytes: int) -> float:
    """Share of a copy's time, from the host's store to its seeing the end, in which no byte moves; raw SDMA queue."""
    c = model.constants
    around = c.host_packet_ns + c.engine_wake_ns + ENGINE_PACKETS * c.engine_packet_ns + c.look_ns
    link = model.spec.xgmi["max_bandwidth"] * 1e-3 * c.link_efficiency  # bytes a nanosecond
    return around / (around + c.engine_start_ns + nbytes / link)


def saturation(model: Model, kind: str) -> int:
    """The least number of CUs, in steps of one an XCC, with which a collective of as many workgroups has 95 per cent of
    its best rate."""
    step, most = model.spec.gpu.xccs, model.spec.gpu.total_cus // 2
    times = {n: model.run(None, kind, BIG, collective_cus=n, channels=n) for n in range(step, most + 1, step)}
    best = min(times.values())
    return min(n for n, t in times.items() if best / t >= SATURATED)


def unfitted(model: Model, outcomes: Sequence[Outcome]) -> list[Figure]:
    bound = {p: model.bound_by_memory(p) for p in products(o.case for o in outcomes)}
    compute = [p for p, by_memory in bound.items() if not by_memory]
    memory = [p for p, by_memory in bound.items() if by_memory]
    best = max(outcomes, key=lambda o: o.speedup("conccl_rp"))
    exchanged = [o for o in outcomes if o.case.collective == "all-to-all"]
    rows = []
    tuned = [fastest(model, p) for p in compute]
    for lost, published in ((32, "17 % slower"), (64, "27 % slower")):
        for tiles, some in (("", compute), (", in the tile that is fastest on all", tuned)):
            found = slowdowns(model, some, lost)
            rows.append(
                Figure(
                    f"compute-bound product{tiles}, {lost} CUs lost",
                    published,
                    f"{_percent(_mean(found) - 1)} slower ({_range(found)})",
                )
            )
    found = slowdowns(model, memory, 8)
    rows.append(
        Figure(
            "memory-bound product, 8 CUs taken away",
            "not slower, up to 10 % faster",
            f"{_range([2 - s for s in found])} faster",
        )
    )
    rows.append(Figure("best speedup by engines", "1.67", f"{best.speedup('conccl_rp'):.2f} ({best.case.name})"))
    s = [_mean([o.speedup(name) for o in exchanged]) for name in ("c3_base", "conccl")]
    rows.append(Figure("mean speedup of all-to-all, c3_base to conccl", "1.05 to 1.43", f"{s[0]:.2f} to {s[1]:.2f}"))
    rows.append(
        Figure(
            "mean speedup, c3_base", "about 1.13", f"{_mean([o.speedup('c3_base') for o in outcomes]):.2f}"
        )
    )  # fmt: skip
    rows.append(Figure("mean ideal speedup", "about 1.62", f"{_mean([o.ideal for o in outcomes]):.2f}"))
    for kind in ("all-gather", "all-to-all"):
        small = [engines_against_cus(model, kind, n) for n in SMALL_SIZES]
        rows.append(
            Figure(
                f"{kind} by engines over by CUs, 64 KiB to 16 MiB",
                "4 (4.5 / 2.5 at small sizes)",
                f"{_mean(small):.1f} ({small[0]:.1f} at 64 KiB, {small[-1]:.1f} at 16 MiB)",
            )
        )
        at_32, large, larger = (engines_against_cus(model, kind, n * MIB) for n in (32, 128, 512))
        rows.append(
            Figure(
                f"{kind} by engines over by CUs, 32, 128, 512 MiB",
                "at par from 128 MB",
                f"{at_32:.2f}, {large:.2f}, {larger:.2f}",
            )
        )
    shares = [not_copying(model, n) for n in (1 << 10, MIB, 32 * MIB)]
    rows.append(
        Figure("share of a copy that is not copying, 1 KB (fitted), 1 MB, 32 MB", "71 %, 21 %, 1 %",
               ", ".join(f"{100 * share:.0f} %" for share in shares))
    )  # fmt: skip
    for kind, published in (("all-gather", "32 (fitted)"), ("all-to-all", "56 to 64")):
        rows.append(Figure(f"{kind} by CUs saturates at", published, f"{saturation(model, kind)} CUs"))
    return rows


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _range(ratios: Sequence[float]) -> str:
    """From the least to the most that they are above 1."""
    return f"{_percent(min(ratios) - 1)} to {_percent(max(ratios) - 1)}" if ratios else "none"


def _percent(part: float) -> str:
    return f"{round(100 * part)} %"
