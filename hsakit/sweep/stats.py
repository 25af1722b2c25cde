"""Numbers from a row's samples: duration, spread, bandwidth, overlap.

A sample is one repeat: [start, end] of each transfer, nanoseconds from the earliest start, or from a release.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

MODEL_CLOCK = "{} are modelled by the software node: no measurement of a GPU"


def span(sample: Sequence[Sequence[int]]) -> int:
    """Nanoseconds from the first start to the last end."""
    return max(end for _, end in sample) - min(start for start, _ in sample)


def overlap(sample: Sequence[Sequence[int]]) -> float:
    """The part of the span in which two or more transfers ran, 0 to 1."""
    edges = sorted([(start, 1) for start, _ in sample] + [(end, -1) for _, end in sample])
    running, since, shared = 0, 0, 0
    for at, step in edges:
        if running > 1:
            shared += at - since
        running, since = running + step, at
    whole = span(sample)
    return shared / whole if whole else 0.0


def last_end(sample: Sequence[Sequence[int]]) -> int:
    """Nanoseconds to the last end."""
    return max(end for _, end in sample)


Duration = Callable[[Sequence[Sequence[int]]], int]  # of a sample


def median_ns(row: dict, duration: Duration = span) -> float:
    return statistics.median(duration(sample) for sample in row["samples"])


def spread(row: dict, duration: Duration = span) -> float | None:
    """(largest - smallest) / median of the durations; None with fewer than two samples, or where the clock is a model:
    what is computed does not disperse."""
    spans = [duration(sample) for sample in row["samples"]]
    if len(spans) < 2 or row["clock"] == "model":
        return None
    middle = statistics.median(spans)
    return (max(spans) - min(spans)) / middle if middle else None


def gigabytes_per_second(row: dict) -> float | None:
    """All bytes of the point over the median span, in 1e9 bytes a second."""
    nbytes = row["parameters"]["nbytes"] * len(row["parameters"]["transfers"])
    middle = median_ns(row)
    return nbytes / middle if middle else None
