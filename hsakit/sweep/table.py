"""Rows of a dma sweep as a table: one line a point, or one line for all points of a kind and size."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from hsakit.sweep import stats
from hsakit.sweep.sizes import format_size

POINT_LINES = 60  # more points than this are shown by group

HEADERS = tuple("mode,kind,size,points,verified,median us,spread,GB/s,min,max,overlap,launch,clock".split(","))


def table(rows: Sequence[dict]) -> tuple[tuple[str, ...], list[list]]:
    """Headers and lines. Only verified rows have numbers; the others are counted."""
    by_point = len(rows) <= POINT_LINES
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        parameters = row["parameters"]
        what = _transfers(parameters["transfers"]) if by_point else parameters["kind"]
        groups.setdefault((parameters["mode"], what, parameters["nbytes"], row["launch"], row["clock"]), []).append(row)
    lines = [_line(key, groups[key]) for key in groups]
    headers = list(HEADERS)
    if by_point:
        headers[1] = "transfers (src-dst/engine)"
    return tuple(headers), lines


def _transfers(transfers: list[dict]) -> str:
    names = [f"{t['src']}-{t['dst']}/{t['engine']}" for t in transfers]
    return " ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"


def _line(key: tuple, rows: list[dict]) -> list:
    mode, what, nbytes, launch, clock = key
    good = [row for row in rows if row["verified"] != "none" and row["error"] is None]
    line = [mode, what, format_size(nbytes), len(rows), f"{len(good)} of {len(rows)}"]
    if not good:
        return line + [None] * 6 + [launch, clock]
    spreads = [value for row in good if (value := stats.spread(row)) is not None]
    rates = [value for row in good if (value := stats.gigabytes_per_second(row)) is not None]
    overlaps = [stats.overlap(sample) for row in good for sample in row["samples"] if len(sample) > 1]
    return line + [
        f"{statistics.median(map(stats.median_ns, good)) / 1e3:.1f}",
        f"{statistics.median(spreads):.0%}" if spreads else None,
        *([f"{choose(rates):.3g}" for choose in (statistics.median, min, max)] if rates else [None] * 3),
        f"{statistics.median(overlaps):.0%}" if overlaps else None,
        launch,
        clock,
    ]
