"""What one check found: assumed, measured, and whether they agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OK, DIFFERS, BESIDE, UNMEASURED = "ok", "differs", "beside", "not measurable"
TOLERANCE = 0.10

Value = float | int | str | None


@dataclass(frozen=True)
class Finding:
    """``constants``: what a node file should have, by the table and the name that it has there."""

    name: str
    assumed: Value
    measured: Value
    unit: str
    verdict: str
    note: str = ""
    constants: Mapping[str, Any] = field(default_factory=dict)


def near(
    name: str,
    assumed: float,
    measured: float,
    unit: str,
    *,
    within: float = TOLERANCE,
    note: str = "",
    **constants: Any,
) -> Finding:
    """Two numbers that agree where they differ by no more than a share of the assumed one."""
    verdict = OK if abs(measured - assumed) <= within * abs(assumed) else DIFFERS
    if within != TOLERANCE:
        note = f"{note}; within {within:.0%}" if note else f"within {within:.0%}"
    return Finding(name, assumed, measured, unit, verdict, note, _paths(constants))


def at_most(name: str, limit: float, measured: float, unit: str, *, note: str = "", **constants: Any) -> Finding:
    """A number with an upper limit. It is not to be below 0."""
    return Finding(name, f"0 to {limit:g}", measured, unit, OK if 0 <= measured <= limit else DIFFERS, note,
                   _paths(constants))  # fmt: skip


def same(name: str, assumed: Value, measured: Value, unit: str = "", *, note: str = "", **constants: Any) -> Finding:
    """Two that are equal or not."""
    return Finding(name, assumed, measured, unit, OK if assumed == measured else DIFFERS, note, _paths(constants))


def beside(name: str, target: Value, measured: Value, unit: str, *, note: str = "", **constants: Any) -> Finding:
    """A published figure, and what this node says: no verdict."""
    return Finding(name, target, measured, unit, BESIDE, note, _paths(constants))


def unmeasured(name: str, assumed: Value, why: str, **constants: Any) -> Finding:
    return Finding(name, assumed, None, "", UNMEASURED, why, _paths(constants))


def _paths(constants: dict) -> dict[str, Any]:
    """``model__beta=2`` is ``beta`` in the table ``[model]``."""
    return {name.replace("__", "."): value for name, value in constants.items() if value is not None}
