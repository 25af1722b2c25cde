"""Rows of a collective sweep: a table, a line a point; engines over kernels; where kernels saturate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hsakit.sweep import stats
from hsakit.sweep.collective_plan import ENGINES
from hsakit.sweep.sizes import counted, format_size

SATURATED = 0.05  # of the best time: as close as that is saturated

HEADERS = tuple(
    "operation,GPUs,size,place,by,launch,median us,spread,algbw GB/s,busbw GB/s,over kernels,verified,clock".split(",")
)


def good(rows: Sequence[dict]) -> list[dict]:
    """Rows with numbers."""
    return [row for row in rows if row["error"] is None and row["samples"] and row["verified"] != "none"]


def time_ns(row: dict) -> float:
    """Median of the repeats, to the last end."""
    return stats.median_ns(row, stats.last_end)


def busbw(row: dict) -> float:
    """GB/s."""
    return row["parameters"]["bus_bytes"] / time_ns(row)


class Setting(NamedTuple):
    """What engines and kernels are compared under, at every size."""

    op: str
    gpus: int
    in_place: bool
    launch: str

    def __str__(self) -> str:
        return f"{self.op}, {self.gpus} GPUs, {place(self.in_place)}, {self.launch}"


def setting(row: dict) -> Setting:
    p = row["parameters"]
    return Setting(p["op"], p["gpus"], p["in_place"], row["launch"])


def place(in_place: bool) -> str:
    return "in place" if in_place else "out of place"


def table(rows: Sequence[dict]) -> tuple[tuple[str, ...], list[list]]:
    """Headers and lines. Only verified rows have numbers."""
    kernels = _fastest(row for row in good(rows) if row["parameters"]["implementation"] != ENGINES)
    return HEADERS, [_line(row, kernels) for row in rows]


def _line(row: dict, kernels: dict[tuple[Setting, int], float]) -> list[Any]:
    p = row["parameters"]
    line = [p["op"], p["gpus"], format_size(p["size"]), place(p["in_place"]), p["by"], row["launch"]]
    if not good([row]):
        return [*line, None, None, None, None, None, "none", row["clock"]]
    taken, spread = time_ns(row), stats.spread(row, stats.last_end)
    other = kernels.get((setting(row), p["size"])) if p["implementation"] == ENGINES else None
    return [
        *line,
        f"{taken / 1e3:.1f}",
        None if spread is None else f"{spread:.0%}",
        f"{p['size'] / taken:.3g}",
        f"{busbw(row):.3g}",
        f"{taken / other:.2f}" if other else None,
        row["verified"],
        row["clock"],
    ]


def _fastest(rows: Iterator[dict]) -> dict[tuple[Setting, int], float]:
    found: dict[tuple[Setting, int], float] = {}
    for row in rows:
        key = setting(row), row["parameters"]["size"]
        found[key] = min(time_ns(row), found.get(key, math.inf))
    return found


def ratios(rows: Sequence[dict]) -> dict[Setting, dict[int, float]]:
    """By size, the time of the fastest by engines over that of the fastest by kernels."""
    usable = good(rows)
    by_engines = _fastest(row for row in usable if row["parameters"]["implementation"] == ENGINES)
    by_kernels = _fastest(row for row in usable if row["parameters"]["implementation"] != ENGINES)
    found: dict[Setting, dict[int, float]] = {}
    for key, size in sorted(by_engines.keys() & by_kernels.keys()):
        found.setdefault(key, {})[size] = by_engines[key, size] / by_kernels[key, size]
    return found


def crossover(by_size: dict[int, float]) -> float | None:
    """The size from which on engines are at least as fast as kernels, between two sizes on a line of logarithms; None
    if they are not at the largest. 0 if they are at every size."""
    sizes = sorted(by_size)
    if by_size[sizes[-1]] > 1:
        return None
    slower = [size for size in sizes if by_size[size] > 1]
    if not slower:
        return 0.0
    low = slower[-1]
    high = sizes[sizes.index(low) + 1]
    above, below = math.log(by_size[low]), math.log(by_size[high])
    return low * (high / low) ** (above / (above - below))


def saturation(rows: Sequence[dict], what: str) -> dict[tuple[Setting, str, int], dict[int, float]]:
    """busbw by ``workgroups`` or by ``cus`` where there are several, by setting, what else was chosen, and size."""
    found: dict[tuple[Setting, str, int], dict[int, float]] = {}
    for row in good(rows):
        p = row["parameters"]
        if p[what] is not None:
            other = {"workgroups": "cus", "cus": "workgroups"}[what]
            name = p["implementation"] + (f", {counted(p[other], _WORDS[other])}" if p[other] is not None else "")
            found.setdefault((setting(row), name, p["size"]), {})[p[what]] = busbw(row)
    return {key: by for key, by in found.items() if len(by) > 1}


_WORDS = {"workgroups": "workgroup", "cus": "CU"}


def remarks(rows: Sequence[dict]) -> list[str]:
    """What the table says, in sentences."""
    said = []
    if any(row["clock"] == "model" for row in rows):
        said.append(stats.MODEL_CLOCK.format("times, bandwidths, ratios and crossovers"))
    for key, by_size in ratios(rows).items():
        said.append(f"{key}: {_compared(by_size)}")
    for what, words in _WORDS.items():
        for (key, name, size), by in saturation(rows, what).items():
            best = max(by.values())
            enough = min(n for n, rate in by.items() if rate * (1 + SATURATED) >= best)
            more = "" if enough < max(by) else ", the most that was measured"
            said.append(
                f"{key}, {format_size(size)}, {name}: within {SATURATED:.0%} of its best, {best:.3g} GB/s, from "
                f"{counted(enough, words)} on{more}"
            )
    return said


def _compared(by_size: dict[int, float]) -> str:
    at, smallest, largest = crossover(by_size), min(by_size), max(by_size)
    ends = f"{by_size[smallest]:.2f} of the kernels' time at {format_size(smallest)}"
    if largest != smallest:
        ends += f", {by_size[largest]:.2f} at {format_size(largest)}"
    if at is None:
        return f"engines are slower at the largest size: {ends}"
    if at == 0:
        return f"engines are as fast as kernels or faster at every size: {ends}"
    return f"engines are as fast as kernels from about {_round_size(at)} on: {ends}"


def _round_size(nbytes: float) -> str:
    """Two digits of it."""
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if nbytes >= factor:
            return f"{float(f'{nbytes / factor:.2g}'):g}{unit}"
    return f"{float(f'{nbytes:.2g}'):g}"
