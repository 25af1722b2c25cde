"""Runs as a trace in the Chrome format, which Perfetto shows: for each GPU a line a queue or engine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from hsakit.c3.outcome import Measured
from hsakit.ffi.errors import InvalidArgument

_GAP = 20_000  # ns between two runs


def check_path(path: Path) -> None:
    """InvalidArgument if a trace cannot be written there."""
    if path.is_dir() or not os.access(path.resolve().parent, os.W_OK):
        raise InvalidArgument(f"{path} cannot be written: name a file in a folder that is there, and yours to write")


def events(rows: Iterable[dict], run: int = -1) -> list[dict]:
    """The spans of one run (by default the last) of every row, one row after the other on the time axis.

    A process of the trace is a GPU, a thread a queue or engine of it; times are microseconds.
    """
    made: list[dict] = []
    threads: dict[tuple[int, str], int] = {}
    begin = 0
    for row in rows:
        if row["error"] is not None or not row["samples"] or "works" not in row["parameters"]:
            continue
        measured = Measured(row)
        sample = measured.samples[run]
        for work, (start, end) in zip(measured.works, sample):
            thread = threads.setdefault((work.gpu, work.where), len(threads) + 1)
            made.append(
                {
                    "name": work.part,
                    "cat": work.part,
                    "ph": "X",
                    "pid": work.gpu,
                    "tid": thread,
                    "ts": (begin + start) / 1e3,
                    "dur": (end - start) / 1e3,
                    "args": {"scenario": measured.scenario, "strategy": measured.label, "clock": row["clock"]},
                }
            )
        made.append(
            {
                "name": f"{measured.scenario} {measured.label}",
                "ph": "i",
                "s": "g",
                "pid": min(work.gpu for work in measured.works),
                "tid": 0,
                "ts": begin / 1e3,
            }
        )
        begin += max(end for _, end in sample) + _GAP
    return [*_names(threads), *made]


def _names(threads: dict[tuple[int, str], int]) -> list[dict]:
    gpus = sorted({gpu for gpu, _ in threads})
    named = [{"name": "process_name", "ph": "M", "pid": gpu, "args": {"name": f"GPU {gpu}"}} for gpu in gpus]
    return named + [
        {"name": "thread_name", "ph": "M", "pid": gpu, "tid": thread, "args": {"name": where}}
        for (gpu, where), thread in threads.items()
    ]


def write(path: Path | str, rows: Iterable[dict]) -> int:
    """Write a trace file; returns how many spans it has."""
    made = events(rows)
    Path(path).write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": made}) + "\n")
    return sum(event["ph"] == "X" for event in made)
