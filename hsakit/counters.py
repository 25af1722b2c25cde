"""Packets that crossed the libraries, as a node that counts them tells: `nodes/N/packets` below the topology root.

A line is a name and a number: aql_barrier_and, aql_barrier_or, aql_dispatch, aql_vendor, sdma_copy, sdma_rect,
sdma_fence, sdma_trap, sdma_poll, sdma_atomic, sdma_timestamp, sdma_hdp_flush, and sdma_copy_engine_K for engine K. The
Linux driver has no such file; there is nothing to read then, and `snapshot` says None.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from dataclasses import dataclass

from hsakit.ffi import node_choice


@dataclass(frozen=True)
class Counters:
    """Counts by driver node and name; two snapshots subtract to what happened between them."""

    nodes: dict[int, dict[str, int]]

    def total(self, name: str) -> int:
        """The count of `name` over all nodes."""
        return sum(counts.get(name, 0) for counts in self.nodes.values())

    def engine_copies(self, node: int) -> dict[int, int]:
        """Copy packets of each engine of a node, engines with none left out."""
        prefix = "sdma_copy_engine_"
        counts = self.nodes.get(node, {})
        return {int(name[len(prefix) :]): n for name, n in counts.items() if name.startswith(prefix) and n}

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(
            {
                node: {name: n - earlier.nodes.get(node, {}).get(name, 0) for name, n in counts.items()}
                for node, counts in self.nodes.items()
            }
        )

    def __add__(self, other: Counters) -> Counters:
        merged = {node: dict(counts) for node, counts in self.nodes.items()}
        for node, counts in other.nodes.items():
            mine = merged.setdefault(node, {})
            for name, n in counts.items():
                mine[name] = mine.get(name, 0) + n
        return Counters(merged)


def snapshot(nodes: Iterable[int] | None = None, root: pathlib.Path | None = None) -> Counters | None:
    """The counts now, of all driver nodes or of those named; None where the driver does not count."""
    folder = pathlib.Path(root or node_choice.topology_root()) / "nodes"
    if nodes is None:
        nodes = [int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()] if folder.is_dir() else []
    found = {}
    for node in sorted(nodes):
        try:
            text = (folder / str(node) / "packets").read_text()
        except FileNotFoundError:
            continue
        found[node] = {name: int(number) for name, number in (line.split() for line in text.splitlines())}
    return Counters(found) if found else None


class Tally:
    """What crossed the libraries within the `with` blocks of a tally, together: `counted`, None where nobody counts."""

    def __init__(self, nodes: Iterable[int]):
        self.nodes = tuple(nodes)
        self._before: Counters | None = None
        self.counted: Counters | None = None

    def __enter__(self) -> None:
        self._before = snapshot(self.nodes)

    def __exit__(self, *_) -> None:
        after = snapshot(self.nodes)
        if self._before is not None and after is not None:
            crossed = after - self._before
            self.counted = crossed if self.counted is None else self.counted + crossed

    def totals(self) -> dict[str, int] | None:
        """The counts over all nodes, those of single engines left out."""
        if self.counted is None:
            return None
        names = {name for counts in self.counted.nodes.values() for name in counts if "engine" not in name}
        return {name: self.counted.total(name) for name in sorted(names)}
