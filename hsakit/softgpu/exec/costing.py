"""From what workgroups executed and touched to what a segment of them costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..clock import Cost
from ..clock.cost import Footprint, of
from .trace import LINE, Trace

if TYPE_CHECKING:
    from ..clock.constants import Constants
    from ..memory import AddressSpace
    from ..node import NodeSpec
    from .tally import Count


class Reuse(NamedTuple):
    """How the bytes of a kernel's loads and stores lie: of each byte that lanes ask for, so many are touched..."""

    loads: dict[str, float]
    """...and by whom: the fields of :class:`Footprint`"""
    stores: float

    def touched(self, loads: float, stores: float) -> Footprint:
        return Footprint(stored=self.stores * stores, **{field: share * loads for field, share in self.loads.items()})


ALONE = Reuse({"private": 1.0}, 1.0)  # every byte is touched once, by one workgroup


def reuse(space: AddressSpace, gpu: int, trace: Trace) -> Reuse:
    def own(lines: np.ndarray) -> np.ndarray:
        chosen = np.zeros(len(lines), bool)
        at = 0
        while at < len(lines):
            allocation = space.find((int(lines[at]) << LINE) + (1 << LINE) - 1)
            if allocation is None or allocation.end <= int(lines[at]) << LINE:
                at += 1
                continue
            behind = max(int(np.searchsorted(lines, allocation.end + (1 << LINE) - 1 >> LINE)), at + 1)
            chosen[at:behind] = allocation.vram_of == gpu
            at = behind
        return chosen

    touched = trace.footprint(own)
    stored = touched.pop("stored")
    loads = {field: nbytes / max(trace.loaded, 1) for field, nbytes in touched.items()}
    return Reuse(loads if trace.loaded else ALONE.loads, stored / trace.stored if trace.stored else ALONE.stores)


def cost(spec: NodeSpec, constants: Constants, gpu: int, count: Count, how: Reuse, grid: tuple[int, int, int],
         together: float, waits: int) -> Cost:  # fmt: skip
    """Of a workgroup, on average.  ``waits``: how often it waits for memory for as long as an access takes."""
    n = max(count.workgroups, 1)
    loads = {place: nbytes / n for place, nbytes in count.loads.items()}
    stores = {place: nbytes / n for place, nbytes in count.stores.items()}
    return of(
        {kind: amount / n for kind, amount in count.instructions.items()},
        sum(loads.values()) + sum(stores.values()),
        how.touched(loads.pop(gpu, 0.0), stores.pop(gpu, 0.0)),
        grid,
        together,
        spec,
        constants,
        wire=stores,
        wire_reads=loads,
        delay_ps=count.sleep * 1e6 / spec.gpu.clock_mhz + waits * constants.latency_ns * 1000,
    )
