"""The set of compute units (CUs) that a queue's waves may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from hsakit.culayout import ARRAY_CUS, MAX_ARRAYS, MAX_ENGINES, Cu, CuLayout
from hsakit.ffi.errors import InvalidArgument

if TYPE_CHECKING:
    from hsakit.hsa.agent import Agent

_FIRST_OF_PAIRS = sum(1 << bit for bit in range(0, MAX_ENGINES * MAX_ARRAYS * ARRAY_CUS, 2))


class HsaBits(NamedTuple):
    """What ``hsa_amd_queue_cu_set_mask`` takes: the number of bits, a multiple of 32, and their 32-bit words."""

    length: int
    words: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class CuMask:
    """An immutable set of CUs of a part. Iterating gives bit numbers; masks combine with ``&``, ``|``, ``-`` and ``~``.

    A mask on its way to a queue must leave each XCC a CU: one without can hang the dispatch that it has a share in.
    What makes a mask refuses at once; combinations are checked when a queue is to have them (``checked_for``), or their
    ``words`` or ``bits`` are asked for.
    ``allow_empty_xcc=True`` permits it by name, also to what is combined with the mask. Empty masks are for no queue.
    """

    layout: CuLayout
    value: int  # as an integer: bit i is the CU layout.coordinates[i]
    allow_empty_xcc: bool = field(default=False, compare=False, kw_only=True)

    def __post_init__(self):
        if wrong := self.value & ~self.layout.named:
            self.layout.at((wrong & -wrong).bit_length() - 1)
        if self.layout.pairs and (single := (self.value ^ self.value >> 1) & _FIRST_OF_PAIRS):
            first = (single & -single).bit_length() - 1
            raise InvalidArgument(
                f"only one of bits {first} and {first + 1} is set: the CUs of this part come in pairs (WGPs, bits 2k "
                "and 2k + 1) that can only be enabled together"
            )

    # Making masks

    @classmethod
    def all(cls, layout: CuLayout) -> CuMask:
        """All CUs that a mask can name."""
        return cls(layout, layout.named)

    @classmethod
    def from_bits(cls, layout: CuLayout, bits: Iterable[int], *, allow_empty_xcc: bool = False) -> CuMask:
        """The CUs with these bit numbers."""
        value = 0
        for bit in bits:
            layout.at(bit)
            value |= 1 << bit
        return cls(layout, value, allow_empty_xcc=allow_empty_xcc).checked()

    @classmethod
    def from_words(cls, layout: CuLayout, words: Sequence[int], *, allow_empty_xcc: bool = False) -> CuMask:
        """From 32-bit words as HSA has them."""
        return cls(layout, _join(words), allow_empty_xcc=allow_empty_xcc).checked()

    @classmethod
    def from_coordinates(
        cls, layout: CuLayout, cus: Iterable[tuple[int, int, int]], *, allow_empty_xcc: bool = False
    ) -> CuMask:
        """The CUs at these places (XCC, shader engine, CU of the engine)."""
        bits = []
        for cu in cus:
            if cu not in layout.bits:
                raise InvalidArgument(f"no mask of this part can name (xcc, se, cu) {tuple(cu)}: see layout.table()")
            bits.append(layout.bits[Cu(*cu)])
        return cls.from_bits(layout, bits, allow_empty_xcc=allow_empty_xcc)

    def first(self, n: int, *, allow_empty_xcc: bool = False) -> CuMask:
        """The first ``n`` CUs by bit number: as even over XCCs, and over the shader engines of each, as can be."""
        if not 0 < n <= len(self):
            raise InvalidArgument(f"first({n}) of {self!r}: it can give 1 to {len(self)}")
        bits = [bit for bit, _ in zip(self, range(n), strict=False)]
        return CuMask.from_bits(self.layout, bits, allow_empty_xcc=allow_empty_xcc or self.allow_empty_xcc)

    def split(self, n: int, *, allow_empty_xcc: bool = False) -> tuple[CuMask, CuMask]:
        """The first ``n`` CUs, and the rest: together this mask, with no CU in common. The rest may be empty."""
        first = self.first(n, allow_empty_xcc=allow_empty_xcc)
        return first, self - first

    def per_xcc(self, n: int) -> CuMask:
        """The first ``n`` CUs of each XCC."""
        fewest = min(self.xcc_counts)
        if not 0 < n <= fewest:
            raise InvalidArgument(f"per_xcc({n}) of {self!r}: the XCC with the fewest has {fewest}")
        taken = [0] * self.layout.xccs
        bits = []
        for bit, cu in zip(self, self.coordinates(), strict=True):
            if taken[cu.xcc] < n:
                taken[cu.xcc] += 1
                bits.append(bit)
        return CuMask.from_bits(self.layout, bits)

    def __and__(self, other: CuMask) -> CuMask:
        return NotImplemented if not isinstance(other, CuMask) else self._with(other, self.value & other.value)

    def __or__(self, other: CuMask) -> CuMask:
        return NotImplemented if not isinstance(other, CuMask) else self._with(other, self.value | other.value)

    def __sub__(self, other: CuMask) -> CuMask:
        return NotImplemented if not isinstance(other, CuMask) else self._with(other, self.value & ~other.value)

    def __invert__(self) -> CuMask:
        return replace(self, value=self.layout.named & ~self.value)

    def _with(self, other: CuMask, value: int) -> CuMask:
        if other.layout != self.layout:
            raise InvalidArgument(f"{self!r} and {other!r} are masks of different parts")
        return CuMask(self.layout, value, allow_empty_xcc=self.allow_empty_xcc or other.allow_empty_xcc)

    # Looking at one

    def __len__(self) -> int:
        return self.value.bit_count()

    def __iter__(self) -> Iterator[int]:
        return (bit for bit in range(self.value.bit_length()) if self.value >> bit & 1)

    def __repr__(self) -> str:
        counts = self.xcc_counts
        each = f"{counts[0]} an XCC" if len(set(counts)) == 1 else f"by XCC {' '.join(map(str, counts))}"
        return f"<CuMask {len(self)} of {self.layout.count} CUs, {each}>"

    def coordinates(self) -> tuple[Cu, ...]:
        """The place of each CU, in the order of the bits."""
        return tuple(map(self.layout.at, self))

    @property
    def xcc_counts(self) -> tuple[int, ...]:
        """How many CUs of each XCC."""
        return tuple(map(sum, self.se_counts))

    @cached_property
    def se_counts(self) -> tuple[tuple[int, ...], ...]:
        """How many CUs of each shader engine: ``[xcc][se]``."""
        counts = [[0] * len(engines) for engines in self.layout.cus]
        for xcc, se, _ in self.coordinates():
            counts[xcc][se] += 1
        return tuple(map(tuple, counts))

    @property
    def empty_xccs(self) -> tuple[int, ...]:
        """The XCCs without a CU."""
        return tuple(xcc for xcc, count in enumerate(self.xcc_counts) if not count)

    # To a queue and back

    def checked(self) -> CuMask:
        """This mask, if a queue may have it. InvalidArgument says why not."""
        if not self.value:
            raise InvalidArgument("an empty CU mask leaves a queue no CU: its first dispatch would hang")
        if self.empty_xccs and not self.allow_empty_xcc:
            raise InvalidArgument(
                f"{self!r} leaves no CU of XCC {', '.join(map(str, self.empty_xccs))}: every XCC takes its share of a "
                "dispatch's workgroups, and one without a CU can hang it. Take CUs of each XCC (bit i is one of XCC "
                f"i % {self.layout.xccs}), or pass allow_empty_xcc=True"
            )
        return self

    def checked_for(self, agent: Agent) -> CuMask:
        """This mask, if a queue of that GPU may have it. InvalidArgument says why not."""
        if self.layout.count != agent.cu_count:
            raise InvalidArgument(
                f"{self!r} is for a part of {self.layout.count} CUs; {agent.label} has {agent.cu_count}: "
                "CuLayout.of(agent) is its layout"
            )
        return self.checked()

    @property
    def words(self) -> tuple[int, ...]:
        """The 32-bit words for ``hipExtStreamCreateWithCUMask``. On RDNA, HIP 5.7 and later has one bit for a pair."""
        self.checked()
        if self.layout.pairs:
            return _words(sum(1 << bit // 2 for bit in self if not bit % 2), self.layout.count // 2)
        return _words(self.value, self.layout.count)

    @property
    def bits(self) -> HsaBits:
        """The number of bits and the words for ``hsa_amd_queue_cu_set_mask``."""
        words = _words(self.checked().value, self.layout.count)
        return HsaBits(32 * len(words), words)

    def matches(self, words: Sequence[int], api: str = "hsa") -> bool:
        """Whether words read back from a queue (``hsa``) or a stream (``hip``) name these CUs and no others.

        Missing words count as 0. Bits that have no CU are ignored, as the driver does.
        """
        return from_api(self.layout, _join(words), api) == self.value


def from_api(layout: CuLayout, value: int, api: str) -> int:
    """The driver's bits for those of an API (``hsa`` or ``hip``), without the ones that have no CU."""
    if api not in ("hsa", "hip"):
        raise InvalidArgument(f"api {api!r} is none of hsa, hip")
    if api == "hip" and layout.pairs:
        value = sum(3 << 2 * bit for bit in range(value.bit_length()) if value >> bit & 1)
    return value & layout.named


def _words(value: int, bits: int) -> tuple[int, ...]:
    return tuple(value >> low & 0xFFFFFFFF for low in range(0, bits, 32))


def _join(words: Sequence[int]) -> int:
    if not all(0 <= word <= 0xFFFFFFFF for word in words):
        raise InvalidArgument(f"CU mask words {list(words)}: each is an unsigned 32-bit number")
    return sum(int(word) << 32 * i for i, word in enumerate(words))
