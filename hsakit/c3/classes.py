"""Per cent of ideal by the class of the scenario, since a mean over all says little where most are of one class; and
where the time goes that a strategy takes beyond its ideal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hsakit.c3 import taxonomy, ticks
from hsakit.c3.metrics import percent_of_ideal
from hsakit.c3.outcome import ALONE_ENGINES, Outcome, average_percent, strategies
from hsakit.c3.tables import Table
from hsakit.c3.ticks import COLLECTIVE, GEMM


def tables(found: Sequence[Outcome]) -> list[Table]:
    """What the scenarios that are complete have anything for."""
    chosen = [outcome for outcome in found if outcome.complete and outcome.results]
    return [by_class(chosen), losses(chosen)] if chosen else []


def by_class(found: Sequence[Outcome]) -> Table:
    """Means of each class and collective, and over all."""
    kinds = list(dict.fromkeys(o.scenario["collective"] for o in found))
    groups = {
        f"{label}, {kind}": [o for o in found if o.duration.label == label and o.scenario["collective"] == kind]
        for kind in kinds
        for label in (taxonomy.G_LONG, taxonomy.GC_EQUAL, taxonomy.C_LONG)
    }
    for label in (taxonomy.G_LONG, taxonomy.GC_EQUAL, taxonomy.C_LONG):
        groups[label] = [o for o in found if o.duration.label == label]
    groups |= {kind: [o for o in found if o.scenario["collective"] == kind] for kind in kinds}
    groups["all"] = list(found)
    names, lines = strategies(found), []
    for group, chosen in groups.items():
        if chosen:
            means = [average_percent(chosen, name) for name in names]
            cells = ("-" if m is None else m.show(".1f") for m in means)
            lines.append([group, str(len(chosen)), *cells, _bound(chosen)])
    note = (
        "The class is by the isolated times: which is longer, the GEMM or the collective of the library compared with. "
        "The last column is what engines would reach if GEMM and copies took as long together as each alone."
    )
    headers = ("class", "scenarios", *names, "engines, nothing slowed")
    return Table("classes", "Average per cent of ideal by class", headers, lines, note)


def _bound(chosen: Sequence[Outcome]) -> str:
    found = []
    for outcome in chosen:
        if ALONE_ENGINES not in outcome.rows:
            return "-"
        gemm, collective, engines = (
            float(np.median(times)) for times in (outcome.gemm, outcome.collective, outcome.rows[ALONE_ENGINES].times)
        )
        found.append(percent_of_ideal(gemm, collective, max(gemm, engines)))
    return f"{np.mean(found):.1f}"


def losses(found: Sequence[Outcome]) -> Table:
    """For each scenario its fastest strategy's time over the longer part alone, and what it is made of."""
    lines = []
    for outcome in found:
        name = outcome.fastest()[0]
        best = outcome.results[name].best
        beyond, slowed, late, tail = [], [], [], []
        alone = float(np.median(outcome.gemm))
        longer = max(alone, float(np.median(outcome.collective)))
        for sample in best.samples:
            gemm, copies = (ticks.spans_of(best.works, sample, part) for part in (GEMM, COLLECTIVE))
            first, last = min(start for start, _ in gemm), max(end for _, end in gemm)
            beyond.append(ticks.elapsed(sample) - longer)
            slowed.append(last - first - alone)
            late.append(first)
            tail.append(max(0, max(end for _, end in copies) - last))
        cells = (f"{float(np.median(each)) / 1e3:.1f}" for each in (beyond, slowed, late, tail))
        lines.append([outcome.name, outcome.duration.label, name, *cells])
    headers = (
        "scenario,class,fastest,us beyond the longer part alone,GEMM longer by us,GEMM begins at us,copies after it us"
    )
    note = "All medians. The first is the sum of the others where the GEMM is the longer part."
    return Table(
        "losses", "Where the time beyond the ideal goes, fastest strategy", tuple(headers.split(",")), lines, note
    )
