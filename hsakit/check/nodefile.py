"""A node file in which measured values stand in place of others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TABLE = re.compile(r"\[([\w.]+)\]")
_ENTRY = re.compile(r"(\w+) = ")


def rewrite(text: str, constants: Mapping[str, Any], remark: str) -> str:
    """The node file with these values, by ``table.name``: each with the remark as its comment.

    A value of ``model`` replaces that of every set that has one. What a table of the file does not have is added to it.
    """
    lines = text.splitlines()
    out: list[str] = []
    missing = dict(constants)
    table, at = "", 0
    ends: dict[str, int] = {"": 0}  # of each table: the number of lines after its last entry
    while at < len(lines):
        line = lines[at]
        if heading := _TABLE.match(line):
            table = heading[1]
        entry = _ENTRY.match(line)
        if not entry:
            out.append(line)
            if heading:
                ends[table] = len(out)
            at += 1
            continue
        behind = at + 1
        while _open(lines[at:behind]):
            behind += 1
        path = f"{table.split('.')[0] if table.startswith('model.') else table}.{entry[1]}".lstrip(".")
        if path in constants:
            out.append(_entry(entry[1], constants[path], remark))
            missing.pop(path, None)
        else:
            out += lines[at:behind]
        ends[table] = len(out)
        at = behind
    for path, value in missing.items():
        of, _, name = path.rpartition(".")
        if of not in ends:
            out += ["", f"[{of}]"]
            ends[of] = len(out)
        place = ends[of]
        out.insert(place, _entry(name, value, remark))
        ends = {key: end + (end >= place) for key, end in ends.items()}
    return "\n".join(out) + "\n"


def _entry(name: str, value: Any, remark: str) -> str:
    return f"{name} = {_toml(value)}" + (f"  # {remark}" if remark else "")


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return f"{value:.4g}" if value < 1e4 else f"{value:.0f}"
    return str(value)


def _open(lines: list[str]) -> bool:
    """Whether an array or a table goes on in the next line."""
    code = "".join(line.partition("#")[0] for line in lines)
    return code.count("[") + code.count("{") > code.count("]") + code.count("}")
