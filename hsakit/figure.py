"""What a figure shows, apart from how it is drawn (``hsakit.plots``): lines, bars, heat maps, each with a caption that
names its clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

CLOCKS = {
    "device": "ticks of the GPUs",
    "model": "modelled time of the software node, no measurement",
    "host": "wall time of the machine that ran the software node: says nothing about a GPU",
}


@dataclass(frozen=True)
class Series:
    """Points of one name: x (a number, or of bars a name), y, and each y's interval where it has one. Lines of one
    ``group`` have one colour and differ in stroke."""

    name: str
    x: tuple
    y: tuple[float, ...]
    intervals: tuple[tuple[float, float] | None, ...] = ()
    group: str = ""


@dataclass(frozen=True)
class Figure:
    """``bars``: groups of bars by name of x; else lines over numbers. lines: horizontal lines, by their name. words: a
    number of the x axis in words."""

    name: str
    title: str
    caption: str
    x: str
    y: str
    series: tuple[Series, ...]
    bars: bool = False
    log_x: bool = False
    log_y: bool = False
    lines: dict[str, float] = field(default_factory=dict)
    words: Callable[[float], str] = "{:g}".format


@dataclass(frozen=True)
class HeatMap:
    """``values[r][c]`` in ``unit``, None where nothing is known, of row ``rows[r]`` and column ``columns[c]``."""

    name: str
    title: str
    caption: str
    x: str
    y: str
    unit: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]


Drawing = Figure | HeatMap


def clock_words(clocks: Iterable[str]) -> str:
    """Every caption ends with this."""
    named = list(dict.fromkeys(clocks))
    return "Clock: " + "; ".join(f"{clock} ({CLOCKS.get(clock, 'unknown')})" for clock in named) + "."
