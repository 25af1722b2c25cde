"""Which bit of a CU mask is which compute unit (CU) of a part.

Bits are the kernel driver's (``mqd_symmetrically_map_cu_mask`` in amdkfd). They are dealt out in turn: to the XCCs
first, then to the shader engines of an XCC, then to the arrays of an engine, then to the next CU of each. Only how many
CUs an array has left after harvesting matters, not which: the driver numbers the active ones from 0, and the hardware
finds them. An array that has run out is passed over: the last bits of a harvested part go to arrays that have CUs left.
RDNA parts (gfx10 and later) have CUs in pairs (WGPs), two neighbouring bits each, that can only be enabled together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from hsakit.ffi import node_choice
from hsakit.ffi.errors import InvalidArgument

if TYPE_CHECKING:
    from hsakit.hsa.agent import Agent

ARRAY_CUS = 16  # CUs of an array that the driver can name: half of an engine's 32-bit enable register
MAX_ENGINES, MAX_ARRAYS = 8, 2  # KFD_MAX_NUM_SE, KFD_MAX_NUM_SH_PER_SE


class Cu(NamedTuple):
    """One CU. ``cu`` counts the active ones of the engine's first array from 0, those of its second array from 16."""

    xcc: int
    se: int
    cu: int


@dataclass(frozen=True)
class CuLayout:
    """The active CUs of a part: ``cus[xcc][se]`` is how many a shader engine has, or a tuple with one for each array.

    ``pairs``: RDNA. ``assumed``: only the sum over the engines is known, and it was taken to be spread evenly.
    """

    cus: tuple[tuple[tuple[int, ...], ...], ...]
    pairs: bool = False
    assumed: bool = field(default=False, compare=False)

    def __post_init__(self):
        cus = tuple(tuple((se,) if isinstance(se, int) else tuple(se) for se in xcc) for xcc in self.cus)
        object.__setattr__(self, "cus", cus)
        engines, arrays = {len(xcc) for xcc in cus}, {len(se) for xcc in cus for se in xcc}
        if len(engines) != 1 or len(arrays) != 1 or max(engines) > MAX_ENGINES or not 1 <= max(arrays) <= MAX_ARRAYS:
            raise InvalidArgument(
                f"CU layout {cus}: give each XCC the same number of shader engines (1 to {MAX_ENGINES}), "
                f"and each engine the same number of arrays (1 to {MAX_ARRAYS})"
            )
        counts = [count for xcc in cus for se in xcc for count in se]
        if not all(0 <= count <= ARRAY_CUS for count in counts) or not all(any(map(any, xcc)) for xcc in cus):
            raise InvalidArgument(f"CU layout {cus}: an array has 0 to {ARRAY_CUS} active CUs, each XCC at least one")
        if self.pairs and (len(cus) > 1 or any(count % 2 for count in counts)):
            raise InvalidArgument(f"CU layout {cus}: a part with CU pairs has one XCC, and an even number in an array")

    @classmethod
    def even(cls, cus: int, xccs: int = 1, engines: int = 1, arrays: int = 1, pairs: bool = False) -> CuLayout:
        """``cus`` active CUs spread evenly over XCCs, then engines, then arrays; the first ones get what is left over.

        ``engines`` are those of one XCC, ``arrays`` those of one engine.
        """
        unit = 2 if pairs else 1
        if cus % unit:
            raise InvalidArgument(f"{cus} CUs: a part with CU pairs has an even number")
        spread = tuple(
            tuple(tuple(unit * count for count in _share(se, arrays)) for se in _share(xcc, engines))
            for xcc in _share(cus // unit, xccs)
        )
        return cls(spread, pairs)

    @classmethod
    def from_properties(cls, properties: Mapping[str, int]) -> CuLayout:
        """From the driver's description of a GPU, ``nodes/N/properties`` in its topology.

        That tells how many CUs an array can have and how many are active in all: if some are harvested, not where.
        """
        xccs = properties.get("num_xcc", 1)  # drivers before Linux 6.5 know no parts of several
        arrays, per_engine = properties["array_count"], properties["simd_arrays_per_engine"]
        cus = properties["simd_count"] // properties["simd_per_cu"]
        pairs = properties["gfx_target_version"] >= 10_00_00
        layout = cls.even(cus, xccs, arrays // per_engine // xccs, per_engine, pairs)
        return replace(layout, assumed=cus < arrays * properties["cu_per_simd_array"])

    @classmethod
    def of(cls, agent: Agent) -> CuLayout:
        """The layout of a GPU, as its driver describes it."""
        file = node_choice.topology_root() / "nodes" / str(agent.driver_node) / "properties"
        lines = (line.split() for line in file.read_text().splitlines())
        return cls.from_properties({name: int(value) for name, value in lines})

    @cached_property
    def count(self) -> int:
        """Active CUs of the part. The driver ignores bits from this number on."""
        return sum(count for xcc in self.cus for se in xcc for count in se)

    @property
    def xccs(self) -> int:
        return len(self.cus)

    @cached_property
    def coordinates(self) -> tuple[Cu | None, ...]:
        """The CU of each bit. None where a bit has none, which happens only where XCCs have different numbers."""
        found: list[Cu | None] = [None] * self.count
        step = 2 if self.pairs else 1
        for xcc, engines in enumerate(self.cus):
            turns = (
                Cu(xcc, se, cu + array * ARRAY_CUS)
                for cu in range(0, ARRAY_CUS, step)
                for array in range(len(engines[0]))
                for se, arrays in enumerate(engines)
                if arrays[array] > cu
            )
            # An XCC with more CUs than others has some whose bit would lie past the part: no mask can name them.
            for bit, cu in zip(range(xcc, self.count, self.xccs * step), turns, strict=False):
                for half in range(step):
                    found[bit + half] = cu._replace(cu=cu.cu + half)
        return tuple(found)

    @cached_property
    def bits(self) -> dict[Cu, int]:
        """The bit of each CU that a mask can name."""
        return {cu: bit for bit, cu in enumerate(self.coordinates) if cu is not None}

    @cached_property
    def named(self) -> int:
        """The mask of all bits that have a CU, as an integer."""
        return sum(1 << bit for bit in self.bits.values())

    def at(self, bit: int) -> Cu:
        """The CU of a bit. InvalidArgument if it has none."""
        cu = self.coordinates[bit] if 0 <= bit < self.count else None
        if cu is None:
            why = f"XCC {bit % self.xccs} has fewer CUs" if 0 <= bit < self.count else f"bits are 0 to {self.count - 1}"
            raise InvalidArgument(f"bit {bit} is no CU of this part, which has {self.count}: {why}")
        return cu

    def table(self) -> str:
        """Which bits are which CUs, a line for each shader engine."""
        kind = " in pairs (WGPs)" if self.pairs else ""
        lines = [f"{self.count} CUs{kind}; XCCs x SEs: {self.xccs} x {len(self.cus[0])}"]
        if self.assumed:
            lines.append(
                "Some CUs are harvested; the driver does not say in which SEs. The XCC of a bit is certain, its"
            )
            lines.append(
                "SE and CU are assumed (harvesting spread evenly) and may differ in the last bits of each XCC."
            )
        for xcc, engines in enumerate(self.cus):
            for se, arrays in enumerate(engines):
                bits = " ".join(str(bit) for cu, bit in self.bits.items() if cu[:2] == (xcc, se))
                lines.append(f"XCC {xcc} SE {se}: {sum(arrays):2} CUs, bits {bits}")
        return "\n".join(lines)


def _share(total: int, parts: int) -> list[int]:
    whole, left = divmod(total, parts)
    return [whole + (part < left) for part in range(parts)]
