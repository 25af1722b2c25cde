"""Two files of results, point by point: between releases of ROCm, settings, or nodes. Rows of every sweep will do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hsakit.c3.intervals import Difference, differ, median
from hsakit.c3.outcome import good
from hsakit.c3.tables import Table
from hsakit.ffi.errors import HsakitError
from hsakit.results import latest
from hsakit.sweep.stats import span


class CompareError(HsakitError):
    """Two files that have nothing in common."""


@dataclass(frozen=True)
class Pair:
    """A point of both files: spans of all runs in nanoseconds, and how b differs from a."""

    key: str
    a: list[int]
    b: list[int]
    difference: Difference


@dataclass(frozen=True)
class Comparison:
    """pairs: points that both have. Of the others, those that only one has, or that went wrong in one, by key."""

    pairs: list[Pair]
    only_a: list[str]
    only_b: list[str]
    settings: list[str]

    @property
    def slower(self) -> list[Pair]:
        return [pair for pair in self.pairs if not pair.difference.tie and pair.difference.change.value > 0]

    @property
    def faster(self) -> list[Pair]:
        return [pair for pair in self.pairs if not pair.difference.tie and pair.difference.change.value < 0]


def compare(a: Sequence[dict], b: Sequence[dict]) -> Comparison:
    """The points of two files. CompareError if they share none."""
    first, second = ({row["key"]: row for row in latest(rows) if good(row) and row["samples"]} for rows in (a, b))
    pairs = [_pair(first[key], second[key]) for key in first if key in second]
    if not pairs:
        raise CompareError(
            "the two files have no good row of the same point: were they measured with the same options?"
        )
    return Comparison(
        pairs, [k for k in first if k not in second], [k for k in second if k not in first], _settings(first, second)
    )


def _pair(a: dict, b: dict) -> Pair:
    before, after = ([span(sample) for sample in row["samples"]] for row in (a, b))
    return Pair(a["key"], before, after, differ(before, after, paired=False))


def _settings(first: dict[str, dict], second: dict[str, dict]) -> list[str]:
    """In words what was not the same in both."""
    said = []
    for name in ("clock", "versions", "environment"):
        values = [[row[name] for row in each.values()] for each in (first, second)]
        different = [each[0] for each in values]
        if different[0] == different[1]:
            continue
        if isinstance(different[0], dict):
            for key in sorted(different[0].keys() | different[1].keys()):
                was, now = (each.get(key) for each in different)
                if was != now:
                    said.append(f"{name} {key}: {was} in A, {now} in B")
        else:
            said.append(f"{name}: {different[0]} in A, {different[1]} in B")
    if {"model", "host"} & {row["clock"] for each in (first, second) for row in each.values()}:
        said.append("not all times are of a device: they compare no hardware")
    return said


def table(comparison: Comparison) -> Table:
    lines = [
        [pair.key, median(pair.a).show(".0f"), median(pair.b).show(".0f"), str(pair.difference)]
        for pair in comparison.pairs
    ]
    return Table(
        "comparison",
        "B against A: medians in ns, and by how much B takes longer",
        ("point", "A", "B", "B - A"),
        lines,
        "In brackets bootstrap intervals of 95 %. A tie is a difference whose interval has 0 in it.",
    )
