"""What all sweeps have in common: settings, points that become rows, and going through them with a file of results."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hsakit import hip, results
from hsakit.counters import Tally
from hsakit.ffi import loader
from hsakit.ffi.errors import InvalidArgument
from hsakit.node import Gpu, Node
from hsakit.scoped import Scoped
from hsakit.sweep.children import Children

APIS = ("hsa", "hip")


@dataclass(frozen=True)
class Settings:
    """repeats: measured runs a point; warmup: runs before them, verified but not measured. deadline: seconds a run may
    take."""

    repeats: int = 5
    warmup: int = 1
    deadline: float = 30.0

    def __post_init__(self):
        self._at_least(repeats=1, warmup=0)
        if not 0 < self.deadline < 86400:
            raise InvalidArgument(f"deadline is {self.deadline}: more than 0 seconds, less than a day")

    def _at_least(self, **limits: int) -> None:
        for name, least in limits.items():
            if getattr(self, name) < least:
                raise InvalidArgument(f"{name} is {getattr(self, name)}: at least {least}")


def find_gpu(node: Node, index: int) -> Gpu:
    """A GPU by its index. InvalidArgument says which there are."""
    if not 0 <= index < len(node.gpus):
        raise InvalidArgument(f"GPU {index}: this node has 0 to {len(node.gpus) - 1}")
    return node.gpus[index]


def hip_device(gpu: Gpu) -> hip.Device:
    """A GPU in HIP. InvalidArgument if it is not there."""
    if gpu.device is None:
        raise InvalidArgument(f"HIP does not see {gpu}, or there is no HIP library: go through hsa only")
    return gpu.device


def dispatched(tally: Tally, planned: int) -> tuple[dict, str | None]:
    """The packets of a row whose point launched so many kernels, and in words how the node's count differs."""
    packets: dict = {"planned": {"aql_dispatch": planned}, "counted": None}
    totals = tally.totals()
    if totals is None:
        return packets, None
    packets["counted"] = {name: n for name, n in totals.items() if n or name == "aql_dispatch"}
    if (n := totals["aql_dispatch"]) != planned:
        return packets, f"{n} dispatches were counted, {planned} planned"
    return packets, None


def rounds(warmup: int, repeats: int) -> Iterator[tuple[str, bool]]:
    """The runs of a point: each in words, and whether it is measured."""
    for number in range(warmup):
        yield f"warm-up {number + 1} of {warmup}", False
    for number in range(repeats):
        yield f"repeat {number + 1} of {repeats}", True


class Sweep(Scoped):
    """Runs points on a node. Not for several threads: a sweep owns what it measures."""

    kind: str

    def __init__(self, node: Any, settings: Settings, clock: str | None = None):
        self._node = node
        self._settings = settings
        self.clock = clock or node.clock
        self.versions = results.versions(**node.versions)
        self.broken: str | None = None  # why nothing more can be measured

    def through(self, apis: Iterable[str]) -> None:
        """Note the versions of what points go through. InvalidArgument if it is none of the APIs there are."""
        for api in apis:
            if api not in APIS:
                raise InvalidArgument(f"through {api!r}: valid are {', '.join(APIS)}")
        if "hip" in apis and self._node.hip_devices:
            self.versions |= {"hip": hip.version(), "libhip": loader.hip().path.name}

    def close(self) -> None:
        """Give back what the points used."""

    def key(self, point: Any) -> str:
        """What identifies a point's row in a file."""
        return f"{self.kind} {point} r{self._settings.repeats} w{self._settings.warmup}"

    def together(self, point: Any) -> Any:
        """What names the points that are measured together: each by itself, or those that share a name."""
        return self.key(point)

    def wake(self, points: Iterable) -> list[dict]:
        """What has to be done once before these points; returns rows of what failed."""
        return []

    def run(self, point: Any) -> dict:
        """Measure one point and return its row; what went wrong is in the row's `error`. Never waits past deadlines."""
        raise NotImplementedError

    def row(self, point: Any, **fields) -> dict:
        return results.make_row(self.kind, self.key(point), clock=self.clock, versions=self.versions, **fields)


@dataclass
class Outcome:
    """rows: one a point, those that the file had first. failed: rows with an error, also such that are no point's.
    interrupted: before all points were measured."""

    rows: list[dict]
    failed: int
    interrupted: bool
    seconds: float

    @property
    def good(self) -> int:
        return sum(row["error"] is None for row in self.rows)

    @property
    def verified(self) -> int:
        return sum(row["verified"] != "none" for row in self.rows)


def measure(
    sweep: Sweep,
    points: Sequence,
    out: results.Writer | None,
    say: Callable[[str], None],
    progress: Callable[[Sequence], Iterable] = iter,
    children: Callable[[int], Children] | None = None,
) -> Outcome:
    """Measure the points that `out` does not have already, a row each; `say` is told what goes wrong as it does.

    `progress` goes through the points. `children` starts processes that measure instead of this one, no more than so
    many; rows come in the same order. Ctrl-C ends it after the point being measured and what is measured together with
    it, a second one at once.
    """
    keys = {sweep.key(point) for point in points}
    found: dict[str, dict] = {}
    rows: list[dict] = []
    failed = 0
    if out is not None:
        out.refuse_other_settings(sweep.clock, sweep.versions)
        if out.set_aside:
            say(f"{out.path} existed and is kept as {out.set_aside}")
        found = {row["key"]: row for row in results.latest(out.rows) if row["key"] in keys & out.done}
    missing = {sweep.together(point) for point in points if sweep.key(point) not in found}
    left = [point for point in points if sweep.together(point) in missing]
    rows = [found[sweep.key(point)] for point in points if sweep.together(point) not in missing]
    if rows and out is not None:
        say(f"{len(rows)} of them are in {out.path} already")
    started = time.monotonic()
    with _Interrupt() as interrupt, contextlib.ExitStack() as closing:
        if children is None or not left:
            measured = _measured(sweep, left, progress)
        else:
            made = closing.enter_context(children(len(missing)))
            measured = _measured_by(made, sweep, left, progress, lambda: interrupt.asked)
        for row, whole in measured:
            if out is not None:
                out.write(row)
            if row["error"]:
                failed += 1
                say(f"FAILED {row['error']}")
            if row["key"] in keys:
                rows.append(row)
            if whole and children is None and (interrupt.asked or sweep.broken):
                break
    return Outcome(rows, failed, interrupt.asked and len(rows) < len(points), time.monotonic() - started)


def _measured(sweep: Sweep, left: Sequence, progress: Callable[[Sequence], Iterable]) -> Iterator[tuple[dict, bool]]:
    """Rows, and whether all that belong together are out."""
    for row in sweep.wake(left):
        yield row, True
    outstanding = Counter(map(sweep.together, left))
    for point in progress(left):
        group = sweep.together(point)
        outstanding[group] -= 1
        yield sweep.run(point), not outstanding[group]


def _measured_by(
    children: Children, sweep: Sweep, left: Sequence, progress: Callable[[Sequence], Iterable], stopped
) -> Iterator[tuple[dict, bool]]:
    """The same by other processes. After a stop it ends where nothing more was begun."""
    groups: dict[Any, list[str]] = {}
    for point in left:
        groups.setdefault(sweep.together(point), []).append(sweep.key(point))
    answers = children.measure(list(groups.values()), stopped)
    found: dict[str, dict] = {}
    outstanding = {group: len(keys) for group, keys in groups.items()}
    wanted = {key for keys in groups.values() for key in keys}
    for point in progress(left):
        key, group = sweep.key(point), sweep.together(point)
        while key not in found:
            answer = next(answers, None)
            if answer is None:
                return
            sweep.broken = sweep.broken or answer["broken"]
            for row in answer["rows"]:
                if row["key"] in wanted:
                    found[row["key"]] = row
                else:
                    yield row, True
        outstanding[group] -= 1
        yield found.pop(key), not outstanding[group]
    for _ in answers:  # none: asked for to its end, or the processes would be ended at once and leave things behind
        pass


class _Interrupt:
    """Ctrl-C ends the sweep after the point being measured, which takes its deadline at the most; a second one at once.

    Not an exception anywhere: it could rise in a callback below the library, where nobody can receive it.
    """

    asked = False

    def __enter__(self):
        self._before = signal.signal(signal.SIGINT, self)
        return self

    def __exit__(self, *_) -> None:
        signal.signal(signal.SIGINT, self._before)

    def __call__(self, *_) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        os.write(2, b"\nstopping after what is being measured; Ctrl-C again stops at once\n")
