"""A check: what it measures, of which lines of the ledger, and what it needs of a node for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hsakit.check.finding import DIFFERS, Finding, unmeasured
from hsakit.ffi.errors import HsakitError

if TYPE_CHECKING:
    from hsakit.check.bench import Bench


@dataclass(frozen=True)
class Check:
    """``times``: it needs times of the device or of a model. ``gpus``: how many GPUs it needs."""

    key: str
    description: str
    measure: Callable[[Bench], Iterable[Finding]]
    ledger: tuple[str, ...] = ()
    times: bool = False
    gpus: int = 1

    def run(self, bench: Bench) -> list[Finding]:
        """Never an exception of ours: what went wrong is a finding."""
        if self.times and bench.node.clock == "host":
            return [unmeasured(self.description, None, "times here are wall time of the host")]
        if len(bench.gpus) < self.gpus:
            return [unmeasured(self.description, None, f"needs {self.gpus} GPUs, and there are {len(bench.gpus)}")]
        found: list[Finding] = []
        try:
            found.extend(self.measure(bench))
        except HsakitError as error:
            found.append(Finding(self.description, None, "failed", "", DIFFERS, str(error)))
        return found


def check(key: str, description: str, *, ledger: str = "", times: bool = False, gpus: int = 1):
    """Makes a Check of a function that yields findings. ``ledger``: numbers of lines, with blanks between."""

    def made(function: Callable[[Bench], Iterable[Finding]]) -> Check:
        return Check(key, description, function, tuple(ledger.split()), times, gpus)

    return made
