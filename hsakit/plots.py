"""Figures drawn by matplotlib, an optional dependency that is loaded when the first one is drawn."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hsakit.ffi.errors import HsakitError
from hsakit.figure import Drawing, Figure, HeatMap, Series

FORMATS = (".png", ".svg")
_ROW = 10  # groups of bars in a row of axes: more would be too thin to read
_WIDE = 11.0  # inches
_CAPTION, _LEGEND = 180, 165  # characters a line
_TICKS = 16  # names along a logarithmic axis at most
_STROKES = (("-", True), ("--", False), (":", True), ("-.", False))  # and whether its markers are filled


class PlotError(HsakitError):
    """Nothing can be drawn here."""


def available() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def check_path(path: Path) -> None:
    """PlotError if a picture of this name cannot be written."""
    if path.suffix not in FORMATS:
        raise PlotError(f"{path}: a picture is a file {' or '.join('*' + each for each in FORMATS)}")
    if not path.resolve().parent.is_dir():
        raise PlotError(f"{path}: there is no folder {path.resolve().parent}")


def draw(figures: Sequence[Drawing], path: Path, captions: bool = False) -> None:
    """Write a picture, PNG or SVG by its name, of the figures one below the other, with their captions if asked to."""
    check_path(path)
    if not available():
        raise PlotError("plots need matplotlib: pip install 'hsakit[plot]'")
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    heights = [_height(figure) + (0.25 * len(_lines_of(figure.caption)) if captions else 0) for figure in figures]
    canvas = Canvas(figsize=(_WIDE, sum(heights)), layout="constrained", dpi=110)
    for part, figure in zip(canvas.subfigures(len(figures), 1, height_ratios=heights, squeeze=False)[:, 0], figures):
        if isinstance(figure, HeatMap):
            _heat_map(part, figure)
        else:
            _figure(part, figure)
        part.suptitle(figure.title, fontsize=12)
        if captions:
            part.supxlabel("\n".join(_lines_of(figure.caption)), fontsize=8, color="0.3", x=0.01, ha="left")
    with matplotlib.rc_context({"svg.hashsalt": "hsakit"}):
        canvas.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {"Software": None})


def _lines_of(caption: str) -> list[str]:
    return textwrap.wrap(caption, _CAPTION)


def _height(figure: Drawing) -> float:
    """Inches."""
    if isinstance(figure, HeatMap):
        return 1.6 + 0.2 * len(figure.rows)
    return 1.2 + 3.2 * len(_rows(figure))


def _figure(part: Any, figure: Figure) -> None:
    rows = _rows(figure)
    axes = part.subplots(len(rows), 1, squeeze=False)[:, 0]
    if figure.bars:
        limits = _limits(figure)
        for each, names in zip(axes, rows):
            _bars(each, figure, names)
            each.set_ylim(*limits)
    else:
        _lines(axes[0], figure)
    for each in axes:
        for name, value in figure.lines.items():
            each.axhline(value, color="0.35", linewidth=1.0, linestyle="--", zorder=1.5)
            each.annotate(
                name, (1.003, value), xycoords=("axes fraction", "data"), fontsize=8, color="0.3", va="center"
            )
        each.set_ylabel(figure.y)
        each.grid(axis="y" if figure.bars else "both", color="0.9", zorder=0)
        each.spines[["top", "right"]].set_visible(False)
    if len(figure.series) > 1:
        columns = max(1, min(6, len(figure.series), _LEGEND // (8 + max(len(series.name) for series in figure.series))))
        columns = math.ceil(len(figure.series) / math.ceil(len(figure.series) / columns))  # of equal length
        where = {"loc": "lower left", "bbox_to_anchor": (0, 1.0)}
        axes[0].legend(fontsize=8, ncols=columns, frameon=False, handlelength=3, **where)


def _heat_map(part: Any, heat: HeatMap) -> None:
    axes = part.subplots()
    values = [[math.nan if value is None else value for value in row] for row in heat.values]
    image = axes.imshow(values, aspect="auto", cmap="viridis", interpolation="nearest", vmin=0)
    axes.set_xticks(range(len(heat.columns)), heat.columns, fontsize=7, rotation=90 if len(heat.columns) > 16 else 0)
    axes.set_yticks(range(len(heat.rows)), heat.rows, fontsize=7)
    axes.set_xlabel(heat.x)
    axes.set_ylabel(heat.y)
    axes.set_facecolor("0.93")  # where nothing was measured
    part.colorbar(image, ax=axes, label=heat.unit, pad=0.01)


def _rows(figure: Figure) -> list[Sequence]:
    """The names along x, in rows of about equal length that can be read."""
    if not figure.bars:
        return [()]
    names = list(dict.fromkeys(x for series in figure.series for x in series.x))
    count = max(1, math.ceil(len(names) / (_ROW if len(figure.series) > 1 else 2 * _ROW)))
    size = math.ceil(len(names) / count)
    return [names[i : i + size] for i in range(0, len(names), size)]


def _limits(figure: Figure) -> tuple[float, float]:
    """One scale for all rows."""
    values = [y for series in figure.series for y in series.y] + list(figure.lines.values())
    values += [end for series in figure.series for interval in series.intervals if interval for end in interval]
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.06 * (high - low or 1.0)
    return (low - room if low < 0 else 0.0), high + room


def _errors(series: Series, chosen: Sequence[int]) -> list[list[float]] | None:
    if not any(series.intervals[i] for i in chosen if i < len(series.intervals)):
        return None
    ends = [series.intervals[i] or (series.y[i], series.y[i]) for i in chosen]
    below = [max(0.0, series.y[i] - low) for i, (low, _) in zip(chosen, ends)]
    above = [max(0.0, high - series.y[i]) for i, (_, high) in zip(chosen, ends)]
    return [below, above]


def _bars(axes, figure: Figure, names: Sequence) -> None:
    width = 0.84 / len(figure.series)
    for number, series in enumerate(figure.series):
        chosen = [i for i, x in enumerate(series.x) if x in names]
        at = [names.index(series.x[i]) + (number - (len(figure.series) - 1) / 2) * width for i in chosen]
        color = "0.75" if series.name in ("ideal", "paper") and len(figure.series) > 1 else _color(number)
        axes.bar(
            at,
            [series.y[i] for i in chosen],
            width * 0.92,
            label=series.name,
            color=color,
            yerr=_errors(series, chosen),
            error_kw={"elinewidth": 0.8, "capsize": 1.5},
            zorder=2,
        )
    turned = 30 if max(map(len, map(str, names))) * len(names) > 90 else 0
    axes.set_xticks(range(len(names)), names, fontsize=8, rotation=turned, ha="right" if turned else "center")
    axes.set_xlim(-0.6, len(names) - 0.4)


def _lines(axes, figure: Figure) -> None:
    groups: dict[str, list[Series]] = {}
    for series in figure.series:
        groups.setdefault(series.group or series.name, []).append(series)
    for number, group in enumerate(groups.values()):
        for series, (stroke, filled) in zip(group, itertools.cycle(_STROKES)):
            color = _color(number)
            axes.errorbar(
                series.x, series.y, yerr=_errors(series, range(len(series.x))), marker="o", markersize=4.5,
                linewidth=1.3, capsize=2, label=series.name, color=color, linestyle=stroke,
                markerfacecolor=color if filled else "white", zorder=2,
            )  # fmt: skip
    if figure.log_x:
        axes.set_xscale("log", base=2)
        ticks = _apart(x for series in figure.series for x in series.x)
        axes.set_xticks(ticks, [figure.words(x) for x in ticks])
        axes.minorticks_off()
    if figure.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        low, high = (choose([*axes.get_ylim(), *figure.lines.values()]) for choose in (min, max))
        axes.set_ylim(low, high)
        if high < 20 * low:  # there are too few powers of ten to tell the scale
            axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_ylim(*_limits(figure))
    axes.set_xlabel(figure.x)


def _apart(values: Iterable[float]) -> list[float]:
    """Those of them that have room for their names along a logarithmic axis."""
    found = sorted(value for value in set(values) if value > 0)
    room = (found[-1] / found[0]) ** (1 / _TICKS) if found else 1.0
    chosen: list[float] = []
    for value in found:
        if not chosen or value >= chosen[-1] * room:
            chosen.append(value)
    return chosen


def _color(number: int) -> str:
    # Okabe and Ito's colours, which the colour-blind tell apart, then darker ones.
    colors = "#0072B2 #E69F00 #009E73 #CC79A7 #56B4E9 #D55E00 #7A5195 #8C6D31 #2F4B7C #A05195 #4D7C0F #7F7F7F".split()
    return colors[number % len(colors)]
