"""The study as tables: a title, column heads, rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ..clock.constants import SETS, Constants
from ..node import NodeSpec
from .ablation import ablations
from .claims import CLAIMS, DRAWN, HELD, RANGES, robustness
from .figures import unfitted
from .fit import STEPS, search
from .strategies import PUBLISHED, STRATEGIES, Case, Model, Outcome, averages

LIMIT = 1.15  # of a longer time over a shorter one that count as equal


@dataclass
class Table:
    title: str
    heads: Sequence[str]
    rows: list[Sequence[object]] = field(default_factory=list)


def study(spec: NodeSpec, cases: Sequence[Case], others: Sequence[Case], draws: int, processes: int) -> Iterator[Table]:
    """All tables, one after the other as they are computed.  ``others``: scenarios that nothing was calibrated on."""
    outcomes = {}
    for name in SETS:
        model = Model(spec, spec.model[name])
        outcomes[name] = [model.outcome(case) for case in cases]
    model = Model(spec, spec.model[SETS[-1]])
    yield strategies(outcomes, [model.outcome(case) for case in others])
    for name in SETS:
        yield classes(spec, name, outcomes[name])
    found = [unfitted(Model(spec, spec.model[name]), outcomes[name]) for name in SETS]
    yield Table(
        "Published figures that no constant was fitted to (but where said)",
        ("figure", "published", *SETS),
        [(one.name, one.published, one.modelled, other.modelled) for one, other in zip(*found)],
    )
    calibrated = spec.model["calibrated"]
    table = Table("Averages without one mechanism, calibrated constants", ("off", *DRAWN))
    for text, percent in ablations(spec, calibrated, cases):
        table.rows.append((text, *(round(percent[name]) for name in DRAWN)))
    yield table
    held, percents = robustness(spec, calibrated, cases, draws, processes)
    enough = HELD * draws / 100
    yield Table(
        f"Claims, on averages over the {len(cases)} scenarios, in {draws} draws of {len(RANGES)} constants over their "
        "plausible ranges",
        ("claim", "holds in", ""),
        [(claim.text, n, "claimed" if n >= enough else "not claimed") for claim, n in zip(CLAIMS, held)],
    )
    table = Table("Averages over these draws, per cent of ideal", ("strategy", "least", "median", "most"))
    for name in DRAWN:
        values = [percent[name] for percent in percents]
        table.rows.append((name, *(round(f(values)) for f in (min, statistics.median, max))))
    yield table


def strategies(outcomes: dict[str, list[Outcome]], others: Sequence[Outcome]) -> Table:
    table = Table(
        f"Average per cent of ideal over {len(outcomes[SETS[0]])} scenarios; Tc is that of the collective by CUs. "
        "calibrated: on the published averages; +-: two standard errors of that mean over scenarios; others: with "
        f"calibrated constants, {len(others)} scenarios that were not used to calibrate",
        ("strategy", "published", *SETS, "+-", "others"),
    )
    percent = {name: averages(some) for name, some in outcomes.items()}
    elsewhere = averages(others)
    for strategy in STRATEGIES:
        values = [o.percent(strategy) for o in outcomes[SETS[-1]]]
        spread = 2 * statistics.pstdev(values) / math.sqrt(len(values))  # two standard errors, over scenarios
        means = [round(percent[name][strategy]) for name in SETS]
        table.rows.append((strategy, PUBLISHED[strategy], *means, round(spread), round(elsewhere[strategy])))
    return table


def classes(spec: NodeSpec, name: str, outcomes: Sequence[Outcome]) -> Table:
    """Averages by collective and by class."""
    model = Model(spec, spec.model[name])
    groups: list[tuple[str, Callable[[Outcome], bool]]] = [
        ("all-gather", lambda o: o.case.collective == "all-gather"),
        ("all-to-all", lambda o: o.case.collective == "all-to-all"),
        ("compute-bound", lambda o: not model.bound_by_memory(o.case.product)),
        ("memory-bound", lambda o: model.bound_by_memory(o.case.product)),
        ("G-long", lambda o: o.tg > LIMIT * o.tc),
        ("C-long", lambda o: o.tc > LIMIT * o.tg),
        ("GC-equal", lambda o: max(o.tg, o.tc) <= LIMIT * min(o.tg, o.tc)),
    ]
    table = Table(f"Per cent of ideal by class, {name} constants", ("class", "scenarios", *STRATEGIES))
    for label, belongs in groups:
        some = [o for o in outcomes if belongs(o)]
        if some:
            percent = averages(some)
            table.rows.append((label, len(some), *(round(percent[strategy]) for strategy in STRATEGIES)))
    return table


def fitted(spec: NodeSpec, cases: Sequence[Case], rounds: int) -> Table:
    """Constants found from the calibrated ones on, with the averages that they give."""
    found: dict[str, float] = {}

    def error(constants: Constants) -> float:
        model = Model(spec, constants)
        percent = averages(model.outcome(case, DRAWN) for case in cases)
        return sum((percent[name] - PUBLISHED[name]) * (percent[name] - PUBLISHED[name]) for name in DRAWN)

    start = spec.model["calibrated"]
    best, least = search(start, error, rounds)
    model = Model(spec, best)
    found = averages(model.outcome(case, DRAWN) for case in cases)
    table = Table(f"Fitted: sum of squared errors {least:.1f}", ("", "calibrated", "fitted"))
    table.rows = [(name, getattr(start, name), round(getattr(best, name), 4)) for name, *_ in STEPS]
    table.rows += [(f"{name}, published {PUBLISHED[name]}", "", round(found[name], 1)) for name in DRAWN]
    return table
