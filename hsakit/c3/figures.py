"""What the plots of a report show, as data: axes, series with intervals, captions that name the clock. plots.py draws.

In the order of the paper's figures 5 to 10, then ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from hsakit.c3 import paper
from hsakit.c3.intervals import Estimate, estimate
from hsakit.c3.outcome import (
    ALONE_GEMM,
    CURVE_GEMM,
    CURVE_KERNELS,
    Outcome,
    average_percent,
    strategies,
    who_sets_tc,
)
from hsakit.figure import Figure, Series, clock_words

PAPERS = ("c3_base", "c3_sp", "c3_rp", "c3_sp_rp")  # the strategies of its figure 8
ENGINES = ("conccl", "conccl_rp")  # and what figure 10 adds


def _series(name: str, points: Sequence[tuple[object, Estimate]]) -> Series:
    return Series(
        name,
        tuple(x for x, _ in points),
        tuple(e.value for _, e in points),
        tuple(None if e.low is None or e.high is None else (e.low, e.high) for _, e in points),
    )


def figures(found: Sequence[Outcome]) -> list[Figure]:
    """Those figures of the strategies that the results have anything for."""
    complete = [outcome for outcome in found if outcome.complete]
    if not complete:
        return []
    clock = clock_words(row.row["clock"] for outcome in complete for row in outcome.rows.values())
    names = strategies(complete)
    drawn = [*curves(complete, clock), bandwidth(complete, clock), ideal(complete, clock)]
    for name, number, chosen in (
        ("fig08_strategies", "8", [s for s in names if s in PAPERS]),
        ("fig10_conccl", "10", [s for s in names if s in PAPERS[:1] + ENGINES]),
        ("strategies_all", "", names),
    ):
        if chosen:
            drawn.append(by_scenario(complete, chosen, name, number, clock))
    drawn += [averages(complete, names, clock)] if names else []
    if engines := engines_over_kernels(complete, clock):
        later = [at for at, figure in enumerate(drawn) if figure.name > engines.name]
        drawn.insert(later[0] if later else len(drawn), engines)
    return drawn


def curves(found: Sequence[Outcome], clock: str) -> list[Figure]:
    """Slowdown of each part alone with some of the CUs, where it was measured."""
    made = []
    for strategy, name, what, x in (
        (CURVE_GEMM, "fig05_gemm_cus", "GEMM", "CUs taken away"),
        (CURVE_KERNELS, "fig05_collective_cus", "Collective by kernels", "CUs given to it"),
    ):
        series = []
        for outcome in found:
            points = outcome.curve(strategy)
            if points:
                cus = outcome.rows[ALONE_GEMM].row["parameters"]["machine"]["cus"]
                shown = {(cus - n if strategy == CURVE_GEMM else n): points[n] for n in points}
                series.append(_series(outcome.name, [(n, shown[n]) for n in sorted(shown)]))
        if series:
            made.append(
                Figure(
                    name,
                    f"{what}: slowdown by CUs (the paper's figure 5)",
                    f"Time alone over its time alone with all CUs. {clock}",
                    x,
                    "time over that with all CUs",
                    tuple(series),
                    log_x=True,
                    lines={"all CUs": 1.0},
                )
            )
    return made


def bandwidth(found: Sequence[Outcome], clock: str) -> Figure:
    """Bytes over ticks of each part alone: of the GEMM what it must move at the least, of the collective its output."""

    def rate(nbytes: int, times: Sequence[int]) -> Estimate:
        return estimate(lambda t: nbytes / t, times)

    gemm = [(o.name, rate(o.scenario["gemm_bytes"], o.gemm)) for o in found]
    collective = [(o.name, rate(o.scenario["nbytes"], o.collective)) for o in found]
    return Figure(
        "fig06_bandwidth",
        "Bandwidth use of the parts alone (the paper's figure 6)",
        "Bytes over time: of the GEMM A, B and C once each, of the collective its output on one GPU, by "
        f"{who_sets_tc(found)}. "
        f"Counted from sizes, not by hardware counters. {clock}",
        "",
        "GB/s a GPU",
        (_series("GEMM", gemm), _series("collective", collective)),
        bars=True,
    )


def ideal(found: Sequence[Outcome], clock: str) -> Figure:
    return Figure(
        "fig07_ideal",
        "Ideal speedup (the paper's figure 7)",
        f"(Tg + Tc) / max(Tg, Tc) of the isolated times, Tc by {who_sets_tc(found)}. {clock}",
        "",
        "speedup over serial",
        (_series("ideal", [(o.name, o.ideal) for o in found]),),
        bars=True,
        lines={"serial": 1.0},
    )


def by_scenario(found: Sequence[Outcome], chosen: Sequence[str], name: str, number: str, clock: str) -> Figure:
    series = [
        _series(strategy, [(o.name, o.results[strategy].speedup) for o in found if strategy in o.results])
        for strategy in chosen
    ]
    ideals = _series("ideal", [(o.name, o.ideal) for o in found])
    return Figure(
        name,
        "Speedup by strategy" + (f" (the paper's figure {number})" if number else ": all of them"),
        "Over the isolated times one after the other. Where a strategy has several splits, the fastest stands for it: "
        f"an oracle's choice. {clock}",
        "",
        "speedup over serial",
        (*series, ideals),
        bars=True,
        lines={"serial": 1.0},
    )


def averages(found: Sequence[Outcome], chosen: Sequence[str], clock: str) -> Figure:
    measured = [(name, average) for name in chosen if (average := average_percent(found, name))]
    published = [(name, value) for name, value in paper.PERCENT_OF_IDEAL.items() if name in chosen]
    return Figure(
        "average_percent_of_ideal",
        f"Average per cent of ideal over {len(found)} scenarios",
        f"100 (S - 1) / (S_ideal - 1), Tc by {who_sets_tc(found)}. The paper's averages are over its own 30 scenarios, "
        f"which are not these. {clock}",
        "",
        "% of ideal",
        (
            _series("here", measured),
            Series("paper", tuple(name for name, _ in published), tuple(float(value) for _, value in published)),
        ),
        bars=True,
        lines={"ideal": 100.0},
    )


def engines_over_kernels(found: Sequence[Outcome], clock: str) -> Figure | None:
    """The collective by engines over the same by kernels, alone, at every size that was measured."""
    points: dict[str, dict[int, Estimate]] = {}
    for outcome in found:
        for kernels, engines, parts in (("kernels", "engines", 1), ("kernels_quarter", "engines_quarter", 4)):
            if kernels in outcome.rows and engines in outcome.rows:
                times = outcome.rows[kernels].times, outcome.rows[engines].times
                size = outcome.scenario["nbytes"] // parts
                points.setdefault(outcome.scenario["collective"], {})[size] = estimate(lambda k, e: e / k, *times)
    if not points:
        return None
    return Figure(
        "fig09_engines",
        "Engines over kernels, alone (the paper's figure 9)",
        f"Time of the collective by engines over its time by kernels: above 1 the kernels are faster. {clock}",
        "MiB of output on each GPU",
        "time over kernels'",
        tuple(_series(name, [(n / 2**20, by[n]) for n in sorted(by)]) for name, by in points.items()),
        log_x=True,
        lines={"par": 1.0},
    )
