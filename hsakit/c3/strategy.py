"""What a strategy is: a description, the variants it comes in, and one method that enqueues.

A strategy is a file in ``hsakit/c3/strategies`` with a subclass of Strategy in it; it is found there, and nothing else
has to know of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hsakit.c3 import paper
from hsakit.c3.heuristics import Machine
from hsakit.c3.prediction import Launch
from hsakit.c3.run import Run
from hsakit.c3.scenario import Scenario
from hsakit.ffi.errors import InvalidArgument

# Nanoseconds from the release of what is to start first to that of the other: of a kernel, and of engines, which start
# sooner after their release than kernels do.
APART = 2000.0
APART_ENGINES = 8000.0


@dataclass(frozen=True)
class Facts:
    """What a strategy may know before it runs.

    launch: of the GEMM. machine: its measured rates. engines: of a GPU, for copies to peers. times: isolated times of
    this scenario in nanoseconds, by the name of their rows (``gemm``, ``kernels``, ``engines``), empty while these are
    measured themselves.
    """

    scenario: Scenario
    gpus: int
    launch: Launch
    machine: Machine
    engines: int
    times: dict[str, float] = field(default_factory=dict)

    @property
    def collective_workgroups(self) -> int:
        """The CU-based library's default."""
        return paper.LIBRARY_WORKGROUPS[self.scenario.collective]

    def alone(self, name: str) -> float:
        """An isolated time. InvalidArgument if it was not measured, or went wrong."""
        if name not in self.times:
            raise InvalidArgument(f"the time of {name} alone is not known: it was not measured, or went wrong")
        return self.times[name]


@dataclass(frozen=True)
class Description:
    """order: parts by first start, empty where they do not run together or none is stated; apart: nanoseconds from the
    release of one to that of the next; collective_by: ``kernels``, ``engines``, ``both`` or None."""

    text: str
    launch: str
    order: tuple[str, ...]
    collective_by: str | None
    apart: float = 0.0
    concurrent: bool = True
    picked: dict[str, Any] = field(default_factory=dict)


class Strategy:
    """Subclasses have a ``name``, a ``place`` in reports, and these methods. ``usual``: runs without being named.
    ``needs``: the strategies, of one part alone, whose times it wants to know beforehand."""

    name: ClassVar[str]
    place: ClassVar[int]
    usual: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ()

    def variants(self, machine: Machine) -> list[dict[str, Any]]:
        """What it is tried with. The fastest of several stands for the strategy: an oracle."""
        return [{}]

    def describe(self, facts: Facts, **variant: Any) -> Description:
        """What ``enqueue`` will do with these facts."""
        raise NotImplementedError

    def enqueue(self, run: Run, facts: Facts, **variant: Any) -> None:
        """Put a run together."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<strategy {self.name}>"


def known() -> dict[str, Strategy]:
    """All strategies by name, in the order of their places."""
    from hsakit.c3 import strategies

    found: list[Strategy] = []
    for name in [f"{strategies.__name__}.{each.name}" for each in pkgutil.iter_modules(strategies.__path__)]:
        members = vars(importlib.import_module(name)).values()
        classes = [each for each in members if isinstance(each, type) and issubclass(each, Strategy)]
        found += [each() for each in classes if each.__module__ == name]  # others are imported there
    made = {strategy.name: strategy for strategy in sorted(found, key=lambda strategy: strategy.place)}
    if len(made) != len(found):
        raise InvalidArgument("two strategies have one name")
    return made


def select(names: Iterable[str] | None) -> list[Strategy]:
    """Strategies by name, with those that they need; the usual ones without names. InvalidArgument: which there are."""
    every = known()
    if names is None:
        return [strategy for strategy in every.values() if strategy.usual]
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name not in every:
            raise InvalidArgument(f"strategy {name!r} is none of {', '.join(every)}")
    needed = {need for name in chosen for need in every[name].needs}
    return [every[name] for name in every if name in chosen or name in needed]
