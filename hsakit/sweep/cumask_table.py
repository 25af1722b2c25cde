"""Rows of a cu-mask sweep as a table, a line a point, and what has to be said about it."""

from __future__ import annotations

from collections.abc import Sequence

from hsakit.sweep import stats
from hsakit.sweep.masks import ALL

HEADERS = (
    "GPU",
    "kernel",
    "through",
    "mask",
    "CUs",
    "used (census)",
    "waves a CU",
    "it holds",
    "median us",
    "spread",
    "slowdown",
    "verified",
    "clock",
)


def table(rows: Sequence[dict]) -> tuple[tuple[str, ...], list[list]]:
    """Headers and lines. Only rows without an error have times."""
    whole = _unmasked(rows)
    return HEADERS, [_line(row, whole.get(_same_work(row))) for row in rows]


def slowdowns(rows: Sequence[dict]) -> list[tuple[dict, float]]:
    """Rows with their time over that with all CUs, as far as both are there."""
    whole = _unmasked(rows)
    return [
        (row, stats.median_ns(row) / whole[_same_work(row)])
        for row in rows
        if not row["error"] and whole.get(_same_work(row))
    ]


def _unmasked(rows: Sequence[dict]) -> dict[tuple, float]:
    return {_same_work(row): stats.median_ns(row) for row in rows if _of_all(row) and not row["error"]}


def _of_all(row: dict) -> bool:
    return row["parameters"]["mask"] == ALL


def _same_work(row: dict) -> tuple:
    return tuple(row["parameters"][name] for name in ("gpu", "api", "load"))


def _line(row: dict, whole: float | None) -> list:
    p = row["parameters"]
    line = [p["gpu"], p["label"], p["api"], p["mask"], p["cus"], p["census"]["cus"] if p["census"] else None]
    line += [f"{p['waves_a_cu']:.3g}", p["waves_a_cu_holds"]] if "waves" in p else [None, None]
    if row["error"]:
        return [*line, None, None, None, "none", row["clock"]]
    median, spread = stats.median_ns(row), stats.spread(row)
    return [
        *line,
        f"{median / 1e3:.1f}",
        None if spread is None else f"{spread:.0%}",
        f"{median / whole:.2f}" if whole else None,
        "as unmasked run" if p["reference"] == "unmasked run" else row["verified"],
        row["clock"],
    ]


def remarks(rows: Sequence[dict]) -> list[str]:
    """Sentences without which the table would be misread."""
    said = []
    if any(row["clock"] == "model" for row in rows):
        said.append(stats.MODEL_CLOCK.format("times and slowdown"))
    for row in rows:
        p = row["parameters"]
        if _of_all(row) and "waves" in p and p["waves_a_cu"] < p["waves_a_cu_holds"]:
            said.append(
                f"{p['label']}: {p['waves_a_cu']:.3g} waves a CU, which holds {p['waves_a_cu_holds']}: not saturated, "
                "masks of many CUs only pack it closer"
            )
        said += [f"{p['api']}: {note}" for note in p["notes"]]
        if p["reference"] == "unmasked run":
            said.append(f"{p['label']}: compared with its run without a mask; out:@FILE names the right bytes")
        elif p["reference"] == "nothing":
            said.append(f"{p['label']}: no output to compare")
    return list(dict.fromkeys(said))
