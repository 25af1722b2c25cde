"""On which CUs workgroups really run: the census kernel keeps a CU to itself and says which one that is."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from typing import Any

import numpy as np

from hsakit.culayout import Cu, CuLayout
from hsakit.cumask import CuMask
from hsakit.ffi.errors import HsakitError
from hsakit.kernels import PLACE, Kernels
from hsakit.node import Gpu
from hsakit.sweep.masked import MaskedQueue, MaskedStream

_NAPS = 20  # some 80 us a workgroup: until the last one is placed, the first ones are still there


class CensusError(HsakitError):
    """Workgroups ran elsewhere than on the CUs of their mask."""


class Census:
    """Takes censuses on one GPU.

    Hardware numbers CUs as they are on the die, harvested ones included, and the driver's bits count the active ones.
    So a census without a mask comes first: it tells which CUs there are, and with them the layout of masks, of which
    the driver says only the sum. ``complete`` is False where that census did not see all of them, as under
    HSA_CU_MASK; the layout is then the driver's, and only how many CUs of each XCC ran can be compared.
    """

    def __init__(self, gpu: Gpu, kernels: Kernels, deadline: float):
        self._gpu = gpu
        self._deadline = deadline
        agent = gpu.agent
        self._places = gpu.node.cpus[0].pool("fine").allocate(2 * agent.cu_count * PLACE.itemsize, access=agent)
        with closing(MaskedQueue(gpu, None)) as queue:
            found = self._run(queue, self._launch(kernels, 2 * agent.cu_count))
        self._numbers: dict[tuple[int, int], list[int]] = defaultdict(list)  # of the CUs of an engine, on the die
        for xcc, se, cu in sorted(found):
            self._numbers[xcc, se].append(cu)
        self.complete = len(found) == agent.cu_count
        driver = CuLayout.of(agent)
        engines = range(len(driver.cus[0]))
        self.layout = (
            CuLayout(tuple(tuple((len(self._numbers[xcc, se]),) for se in engines) for xcc in range(driver.xccs)))
            if self.complete
            else driver
        )

    def close(self) -> None:
        self._places.close()

    def prepare(self, kernels: Kernels) -> Any:
        """The launch of a census, to be taken under any mask: of enough workgroups for all CUs there are."""
        # XCCs get the same share of the workgroups, however many CUs they have.
        return self._launch(kernels, self.layout.xccs * max(map(_count, self.layout.cus)))

    def take(self, masked: MaskedQueue | MaskedStream, launch: Any, mask: CuMask) -> set[Cu]:
        """The CUs that a census found on a queue or stream with this mask. CensusError if they are not the mask's."""
        found = self._run(masked, launch)
        used = {self._numbered(place) for place in found} if self.complete else found
        self._compare(used, mask)
        return used

    def table(self, used: set[Cu]) -> list[list[str]]:
        """Hexadecimal numbers with a bit for each CU, ``[xcc][shader engine]``."""
        engines = range(len(self.layout.cus[0]))
        return [
            [f"{sum(1 << cu.cu for cu in used if cu[:2] == (xcc, se)):04x}" for se in engines]
            for xcc in range(self.layout.xccs)
        ]

    def _launch(self, kernels: Kernels, workgroups: int) -> Any:
        return kernels.census(self._places, workgroups, naps=_NAPS, lds=self._gpu.agent.limits.lds)

    def _run(self, masked: MaskedQueue | MaskedStream, launch: Any) -> set[Cu]:
        workgroups = launch.geometry.grid[0]
        view = self._places.view(PLACE)[:workgroups]
        view["hw_id"] = 0xFFFFFFFF
        masked.run(launch, self._deadline)
        if missing := np.count_nonzero(view["hw_id"] == 0xFFFFFFFF):
            raise CensusError(f"{missing} of the census's {workgroups} workgroups did not run")
        return {Cu(*map(int, place)) for place in np.unique(view[["xcc", "se", "cu"]])}

    def _numbered(self, place: Cu) -> Cu:
        """A place on the die as the driver counts it."""
        numbers = self._numbers[place.xcc, place.se]
        if place.cu not in numbers:
            raise CensusError(f"a workgroup ran on {place}, which no workgroup of a census without a mask ran on")
        return place._replace(cu=numbers.index(place.cu))

    def _compare(self, used: set[Cu], mask: CuMask) -> None:
        wanted = set(mask.coordinates())
        if self.complete and used != wanted:
            extra, missing = sorted(used - wanted), sorted(wanted - used)
            raise CensusError(
                f"the census found {len(extra)} CUs outside of {mask!r} ({_some(extra)}) and missed {len(missing)} of "
                f"its own ({_some(missing)})"
            )
        counts = tuple(sum(place.xcc == xcc for place in used) for xcc in range(self.layout.xccs))
        if counts != mask.xcc_counts:
            raise CensusError(f"the census found {counts} CUs by XCC, {mask!r} has {mask.xcc_counts}")


def _count(engines: tuple[tuple[int, ...], ...]) -> int:
    return sum(map(sum, engines))


def _some(places: list[Cu]) -> str:
    return " ".join(f"{xcc}.{se}.{cu}" for xcc, se, cu in places[:4]) + (" ..." if len(places) > 4 else "")
