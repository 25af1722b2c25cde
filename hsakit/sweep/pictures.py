"""What pictures of a sweep show: bandwidth by size, engines and peers, slowdown by CUs, engines over kernels."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from hsakit.ffi.errors import InvalidArgument
from hsakit.figure import Drawing, Figure, HeatMap, Series, clock_words
from hsakit.sweep import cumask_table, stats
from hsakit.sweep.collective_table import busbw, good, place, ratios, saturation
from hsakit.sweep.sizes import format_size


def pictures(rows: Sequence[dict]) -> list[Drawing]:
    """All there is to show of verified rows, which may be of several sweeps. InvalidArgument if that is nothing."""
    found = [
        drawing for kind, make in _KINDS.items() for drawing in make(good([row for row in rows if row["kind"] == kind]))
    ]
    if not found:
        kinds = ", ".join(dict.fromkeys(row["kind"] for row in rows)) or "no sweep"
        raise InvalidArgument(
            f"nothing to draw: of {len(rows)} rows ({kinds}) none is verified and of {', '.join(_KINDS)}, with two "
            "sizes, engines, numbers of CUs or workgroups to compare"
        )
    return found


def _dma(rows: Sequence[dict]) -> list[Drawing]:
    by_size: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    cells: dict[int, dict[tuple[str, str], float]] = defaultdict(dict)
    for row in rows:
        p = row["parameters"]
        rate = stats.gigabytes_per_second(row)
        if rate is None:
            continue
        by_size[f"{p['mode']} {p['kind']}"][p["nbytes"]].append(rate)
        if (p["mode"], p["kind"]) == ("one-way", "peer"):
            (t,) = p["transfers"]
            cells[p["nbytes"]][f"{t['engine']}", f"{t['src']}-{t['dst']}"] = rate
    clock = clock_words(row["clock"] for row in rows)
    drawn: list[Drawing] = _by_size(
        "dma_bandwidth",
        "Engine copies: bandwidth by size",
        f"All bytes of a point over the time from its first start to its last end; the median of the points of a kind, "
        f"with the range of them. {clock}",
        "GB/s",
        "bytes of each copy",
        by_size,
    )
    if cells:
        size = max(cells)
        engines, pairs = (sorted({key[i] for key in cells[size]}, key=_numbers) for i in (0, 1))
        drawn.append(
            HeatMap(
                "dma_engines",
                f"Engine by peer: one copy of {format_size(size)}",
                f"One copy at a time. Empty: not measured, or not right. {clock}",
                "GPUs, from-to",
                "engine",
                "GB/s",
                tuple(pairs),
                tuple(engines),
                tuple(tuple(cells[size].get((engine, pair)) for pair in pairs) for engine in engines),
            )
        )
    return drawn


def _numbers(name: str) -> list[int]:
    return [int(part) for part in name.split("-")]


def _cu_mask(rows: Sequence[dict]) -> list[Drawing]:
    curves: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, slowdown in cumask_table.slowdowns(rows):
        p = row["parameters"]
        curves[f"{p['label']} {p['api']} GPU {p['gpu']}"][p["cus"]].append(slowdown)
    clock = clock_words(row["clock"] for row in rows)
    return _lines(
        "cu_mask_slowdown",
        "Slowdown by CUs",
        "Median time over that with all CUs; where several masks have as many CUs, their median and range. " + clock,
        "time over that with all CUs",
        "CUs of the mask",
        curves,
        lines={"all CUs": 1.0},
    )


def _collective(rows: Sequence[dict]) -> list[Drawing]:
    clock = clock_words(row["clock"] for row in rows)
    drawn: list[Drawing] = []
    settings: dict[tuple[str, int, bool], dict[str, dict[int, list[float]]]] = {}
    for row in rows:
        p = row["parameters"]
        curves = settings.setdefault((p["op"], p["gpus"], p["in_place"]), defaultdict(lambda: defaultdict(list)))
        curves[f"{p['by']}, {row['launch']}"][p["size"]].append(busbw(row))
    for (op, gpus, in_place), curves in settings.items():
        drawn += _by_size(
            f"collective_{op}_{gpus}_{'in' if in_place else 'out'}",
            f"{op}, {gpus} GPUs, {place(in_place)}: bandwidth by size",
            f"busbw, from the release (gated) or the first start (host) to the last end. {clock}",
            "busbw, GB/s",
            "bytes of a rank's result or of what it sends",
            curves,
            groups=True,
        )
    settled = sorted(ratios(rows).items(), key=lambda item: (*item[0][:-1], item[0].launch == "gated"))
    compared = {str(key): {size: [ratio] for size, ratio in by.items()} for key, by in settled}  # gated is dashed
    drawn += _lines(
        "collective_ratio",
        "Engines over kernels, alone (the paper's figure 9)",
        f"Time of the fastest by engines over that of the fastest by kernels: above 1 the kernels are faster. {clock}",
        "time over kernels'",
        "bytes of a rank's result or of what it sends",
        compared,
        groups=True,
        log_y=True,
        words=_size,
        lines={"par": 1.0},
    )
    for what, x in (("workgroups", "workgroups of a rank"), ("cus", "CUs of each GPU")):
        found = saturation(rows, what)
        largest = {key[:2]: max(size for *other, size in found if tuple(other) == key[:2]) for key in found}
        drawn += _lines(
            f"collective_{what}",
            f"Kernels by {x} (the paper's figure 5)",
            f"At the largest size measured. {clock}",
            "busbw, GB/s",
            x,
            {
                f"{key}, {name}, {format_size(size)}": {n: [rate] for n, rate in by.items()}
                for (key, name, size), by in found.items()
                if size == largest[key, name]
            },
        )
    return drawn


_KINDS: dict[str, Callable[[Sequence[dict]], list[Drawing]]] = {
    "dma": _dma,
    "cu-mask": _cu_mask,
    "collective": _collective,
}


def _size(nbytes: float) -> str:
    return format_size(round(nbytes))


def _by_size(name: str, title: str, caption: str, y: str, x: str, curves: dict, groups: bool = False) -> list[Drawing]:
    return _lines(name, title, caption, y, x, curves, groups, log_y=True, words=_size)


def _lines(
    name: str, title: str, caption: str, y: str, x: str, curves: dict, groups: bool = False, **more: Any
) -> list[Drawing]:
    """A figure of those curves, {name: {x: [y, ...]}}, that have two points or more: medians and ranges. ``groups``:
    what has the same name up to the last comma has the same colour."""
    curves = {label: curve for label, curve in curves.items() if len(curve) > 1}
    if not curves:
        return []
    series = []
    for label, curve in curves.items():
        at = sorted(curve)
        ranges = tuple((min(curve[n]), max(curve[n])) if len(curve[n]) > 1 else None for n in at)
        group = label.rpartition(", ")[0] if groups else ""
        series.append(Series(label, tuple(at), tuple(statistics.median(curve[n]) for n in at), ranges, group))
    return [Figure(name, title, caption, x, y, tuple(series), log_x=True, **more)]
