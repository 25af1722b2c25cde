"""The cases of a file of C3 scenarios (hsakit/c3/scenarios.toml explains it), as far as the model needs them."""

from __future__ import annotations

import sys
from pathlib import Path

from .strategies import Case
from .work import LIBRARY, Product

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def read(path: Path, group: str) -> list[Case]:
    """Those of a set whose product is in bf16.  ValueError if there is none, or if the file is none."""
    try:
        entries = tomllib.loads(path.read_text())["scenario"]
        cases = [
            Case(
                f"{entry['name']}-{kind}",
                Product(entry["gemm"]["m"], entry["gemm"]["n"], entry["gemm"]["k"]),
                kind,
                _size(entry["bytes"]),
            )
            for entry in entries
            if entry["set"] == group and entry["gemm"]["dtype"] == "bf16"
            for kind in entry["collectives"]
            if kind in LIBRARY
        ]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no file of scenarios: {error!r}") from error
    if not cases:
        raise ValueError(f"{path} has no set {group!r} of products in bf16")
    return cases


def _size(text: str) -> int:
    unit = UNITS.get(text[-1:], 1)
    return int(text[:-1] if unit > 1 else text) * unit
