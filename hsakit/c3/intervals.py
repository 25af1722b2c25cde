"""Medians with their dispersion: bootstrap confidence intervals, seeded, and what is too close to be a difference.

Samples are by round: the samples of one index in several lists were measured in the same round, right after one
another. Rounds are drawn together, so that what drifts over a session drifts alike in all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hsakit.ffi.errors import InvalidArgument

DRAWS = 2000
LEVEL = 0.95
_SEED = 1


@dataclass(frozen=True)
class Estimate:
    """A figure of medians: its value, the interval it lies in (LEVEL), and how many samples there were.

    One sample has no interval: ``low`` and ``high`` are None. least, most: of the samples, where the figure is a time.
    """

    value: float
    low: float | None
    high: float | None
    samples: int
    least: float | None = None
    most: float | None = None

    def show(self, form: str = ".4g") -> str:
        """``21.3 [20.9, 22.0]``"""
        if self.low is None or self.high is None:
            return format(self.value, form)
        return f"{self.value:{form}} [{self.low:{form}}, {self.high:{form}}]"


def median(samples: Sequence[float]) -> Estimate:
    """The median of samples, with its interval, least and most."""
    found = estimate(lambda a: a, samples)
    return Estimate(found.value, found.low, found.high, found.samples, float(min(samples)), float(max(samples)))


def estimate(figure: Callable, *samples: Sequence[float]) -> Estimate:
    """A figure of the medians of lists of samples, all of one length. ``figure`` takes numbers, or arrays of them."""
    count = len(samples[0]) if samples else 0
    if not count or any(len(each) != count for each in samples):
        counts = [len(each) for each in samples]
        raise InvalidArgument(f"{counts} samples: each list has as many as the first, 1 or more")
    value = float(figure(*(float(np.median(each)) for each in samples)))
    if count == 1:
        return Estimate(value, None, None, 1)
    low, high = _interval(_figures(figure, samples))
    return Estimate(value, low, high, count)


def mean(figure: Callable, each: Sequence[Sequence[Sequence[float]]]) -> Estimate:
    """The mean of a figure over several things, each with its own lists of samples. ``samples`` is the least count."""
    single = [estimate(figure, *samples) for samples in each]
    value = float(np.mean([one.value for one in single]))
    count = min(one.samples for one in single)
    if count == 1:
        return Estimate(value, None, None, 1)
    low, high = _interval(np.mean([_figures(figure, samples, seed) for seed, samples in enumerate(each)], axis=0))
    return Estimate(value, low, high, count)


def _figures(figure: Callable, samples: Sequence[Sequence[float]], seed: int = 0) -> np.ndarray:
    return figure(*_draw(samples, len(samples[0]), seed))


def _interval(figures: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(figures, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _draw(samples: Sequence[Sequence[float]], count: int, seed: int = 0) -> np.ndarray:
    """For each list DRAWS medians, over the same rounds for all lists, drawn with replacement."""
    rounds = np.random.default_rng([_SEED, seed]).integers(0, count, (DRAWS, count))
    return np.stack([np.median(np.asarray(each, dtype=float)[rounds], axis=1) for each in samples])


@dataclass(frozen=True)
class Difference:
    """b over a, less 1. ``tie``: smaller than its interval says it must be to be one."""

    change: Estimate
    tie: bool

    def __str__(self) -> str:
        value, low, high = self.change.value, self.change.low, self.change.high
        if low is None or high is None:
            return "tie (equal)" if self.tie else f"{value:+.1%}"
        return f"{'tie' if self.tie else f'{value:+.1%}'} [{low:+.1%}, {high:+.1%}]"


def differ(a: Sequence[float], b: Sequence[float], paired: bool = True) -> Difference:
    """By how much b's median is more than a's. ``paired``: from the same rounds of one session; else each is drawn for
    itself."""
    if paired and len(a) == len(b):
        change = estimate(_change, a, b)
    else:
        change = _apart(a, b)
    if change.low is None or change.high is None:
        return Difference(change, change.value == 0)
    return Difference(change, change.low <= 0 <= change.high)


def _change(a: float, b: float) -> float:
    return b / a - 1


def _apart(a: Sequence[float], b: Sequence[float]) -> Estimate:
    value = _change(float(np.median(a)), float(np.median(b)))
    if len(a) == 1 and len(b) == 1:
        return Estimate(value, None, None, 1)
    rng = np.random.default_rng(_SEED)
    drawn = [np.median(rng.choice(np.asarray(each, dtype=float), (DRAWS, len(each))), axis=1) for each in (a, b)]
    low, high = _interval(drawn[1] / drawn[0] - 1)
    return Estimate(value, low, high, min(len(a), len(b)))
