"""All checks in their order, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hsakit.check import clocks, collectives, engines, gates, memory, parts, products, queues
from hsakit.check.bench import Bench
from hsakit.check.case import Check
from hsakit.check.finding import DIFFERS, Finding
from hsakit.check.ledger import Line
from hsakit.ffi.errors import InvalidArgument

CHECKS: tuple[Check, ...] = (
    parts.parts,
    parts.driver,
    parts.links,
    parts.census,
    engines.accepted,
    engines.rates,
    engines.link,
    engines.egress,
    engines.local,
    engines.order,
    engines.packet,
    engines.fanout,
    memory.hbm,
    memory.peer,
    clocks.rate,
    clocks.system,
    clocks.order,
    clocks.domain,
    gates.offsets,
    gates.together,
    gates.copies,
    queues.dependency,
    queues.late,
    queues.unrung,
    queues.costs,
    queues.host,
    queues.streams,
    products.compute,
    products.memory,
    products.engines,
    collectives.gather,
    collectives.exchange,
)


@dataclass(frozen=True)
class Outcome:
    findings: tuple[tuple[Check, Finding], ...]

    @property
    def differ(self) -> int:
        return sum(finding.verdict == DIFFERS for _, finding in self.findings)

    @property
    def constants(self) -> dict[str, Any]:
        """What a node file should have, by ``table.name``."""
        found: dict[str, Any] = {}
        for _, finding in self.findings:
            found.update(finding.constants)
        return found


def chosen(keys: Sequence[str]) -> list[Check]:
    """The checks of these keys, or that begin with them; all of them for none."""
    for key in keys:
        if not any(_is(check, key) for check in CHECKS):
            raise InvalidArgument(f"no check {key!r}: there are {', '.join(check.key for check in CHECKS)}")
    return [check for check in CHECKS if not keys or any(_is(check, key) for key in keys)]


def run(bench: Bench, checks: Sequence[Check], begins: Callable[[Check], None] = lambda check: None) -> Outcome:
    """``begins`` is called with each check before it runs."""
    found: list[tuple[Check, Finding]] = []
    for check in checks:
        begins(check)
        found += [(check, finding) for finding in check.run(bench)]
    return Outcome(tuple(found))


def by_hand(lines: Sequence[Line]) -> list[Line]:
    """The lines of the ledger that no check is about."""
    checked = {number for check in CHECKS for number in check.ledger}
    return [line for line in lines if line.number not in checked]


def _is(check: Check, key: str) -> bool:
    return check.key == key or check.key.startswith(f"{key}.")
