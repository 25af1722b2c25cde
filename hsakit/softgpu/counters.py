"""Counts of what the processors of a GPU executed, as a file beside its topology entry.

The file is mapped and updated in place, so that a reader of the plain file always sees the present values: one
``name value`` a line, the value in a field of fixed width.
"""

from __future__ import annotations

import mmap
from pathlib import Path

AQL = ("aql_barrier_and", "aql_barrier_or", "aql_dispatch", "aql_vendor")
SDMA = (
    "sdma_copy",
    "sdma_rect",
    "sdma_fence",
    "sdma_trap",
    "sdma_poll",
    "sdma_atomic",
    "sdma_timestamp",
    "sdma_hdp_flush",
)
WIDTH = 20


class Counters:
    def __init__(self, path: Path, engines: int):
        names = [*AQL, *SDMA, *(f"sdma_copy_engine_{k}" for k in range(engines))]
        self._values = dict.fromkeys(names, 0)
        self._at: dict[str, int] = {}
        text, offset = [], 0
        for name in names:
            self._at[name] = offset + len(name) + 1
            line = f"{name} {0:{WIDTH}d}\n"
            text.append(line)
            offset += len(line)
        path.write_text("".join(text))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def add(self, name: str) -> None:
        value = self._values[name] = self._values[name] + 1
        at = self._at[name]
        self._map[at : at + WIDTH] = b"%20d" % value

    def __getitem__(self, name: str) -> int:
        return self._values[name]
