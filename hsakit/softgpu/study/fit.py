"""Constants for which the model's averages are those that were published.

A deterministic pattern search: each constant in turn is tried a step up and a step down, what is better stays, and when
nothing is, the steps are halved.  Six averages do not identify six constants: another start ends elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Constants

# (constant, first step, least, most): a step is a factor for those that have no upper bound, else an amount
STEPS = (
    ("pi", 0.08, 0.0, 0.5),
    ("phi", 0.3, 0.0, 2.0),
    ("theta", 0.04, 0.0, 0.3),
    ("q", 2.0, 1.0, 1000.0),
    ("beta", 0.2, 1.2, 2.4),
    ("engine_headroom", 0.06, 1.0, 1.3),
)


def search(start: Constants, error: Callable[[Constants], float], rounds: int = 12) -> tuple[Constants, float]:
    """The constants found, and their error."""
    best, least, scale = start, error(start), 1.0
    for _ in range(rounds):
        improved = False
        for name, step, low, high in STEPS:
            value = getattr(best, name)
            for sign in (1, -1):
                if name == "q":
                    factor = 1.0 + (step - 1.0) * scale
                    other = value * factor if sign > 0 else value / factor
                else:
                    other = value + sign * step * scale
                other = min(max(other, low), high)
                if other == value:
                    continue
                changed = best.with_(**{name: other})
                found = error(changed)
                if found < least:
                    best, least, improved = changed, found, True
                    break
        if not improved:
            scale /= 2
    return best, least
