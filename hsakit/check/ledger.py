"""The ledger of assumptions, docs/ledger.md: tables whose lines begin with a number."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(r"\| ([A-Z]\d+) \|")


@dataclass(frozen=True)
class Line:
    number: str
    assumed: str
    why: str
    check: str


def read(text: str) -> list[Line]:
    """The lines of the ledger's text, in their order."""
    lines = []
    for row in text.splitlines():
        if _LINE.match(row):
            cells = [cell.strip() for cell in row.strip().strip("|").split(" | ")]
            lines.append(Line(cells[0], cells[1], cells[2], " | ".join(cells[3:])))
    return lines
