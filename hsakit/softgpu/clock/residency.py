"""Which workgroups are on which CUs of a GPU, and who gets those that become free.

A CU of an XCC is a number from 0 in the order in which workgroups are dealt to them; a set of CUs is an integer's bits.
"""

from __future__ import annotations

from collections.abc import Iterable

CAPACITY = (
    1 << 20
)  # units of a CU: a workgroup takes CAPACITY // per_cu of them, exact for all counts that are possible


def lowest(mask: int, count: int) -> int:
    """The lowest ``count`` of the bits of ``mask``."""
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest


def layers(turns: list[int]) -> list[tuple[int, int]]:
    """Sets of CUs, each given a workgroup a CU, as (CUs, workgroups on each of them), no CU twice."""
    found: list[tuple[int, int]] = []
    for cus in turns:
        before, found = found, []
        for some, count in before:
            found += [(part, n) for part, n in ((some & cus, count + 1), (some & ~cus, count)) if part]
            cus &= ~some
        if cus:
            found.append((cus, 1))
    return found


class Crowds:
    """How many workgroups are on each CU, as the binary digits of their number: a set of CUs a digit."""

    def __init__(self, cohorts: Iterable[list[tuple[int, int]]]):
        self._digits: list[int] = []
        for some in cohorts:
            for cus, count in some:
                place = 0
                while count:
                    if count & 1:
                        self._add(cus, place)
                    count, place = count >> 1, place + 1

    def _add(self, carry: int, place: int) -> None:
        digits = self._digits
        while carry:
            while place >= len(digits):
                digits.append(0)
            digits[place], carry = digits[place] ^ carry, digits[place] & carry
            place += 1

    def met(self, some: list[tuple[int, int]]) -> int:
        """Workgroups on the CU of each of these, itself with them, added up."""
        total = 0
        for cus, count in some:
            for place, digit in enumerate(self._digits):
                total += count * (digit & cus).bit_count() << place
        return total


class Xcc:
    """The CUs of an XCC, by what is free of each."""

    def __init__(self, cus: int):
        self.all = (1 << cus) - 1
        self._free = {CAPACITY: self.all}  # units -> CUs with so many free

    @property
    def state(self) -> frozenset[tuple[int, int]]:
        """What is free: equal for XCCs of which the same is."""
        return frozenset(self._free.items())

    def become(self, other: Xcc) -> None:
        """Have the same free as another one."""
        self._free = dict(other._free)

    def room(self, share: int, allowed: int) -> bool:
        """Could a workgroup that takes ``share`` units go to one of these CUs?"""
        return any(units >= share and cus & allowed for units, cus in self._free.items())

    def place(self, share: int, allowed: int, count: int) -> list[int]:
        """Put up to ``count`` workgroups on allowed CUs, the emptiest first, each CU in turn: a set of CUs a turn."""
        turns = []
        while count:
            best = max((u for u, cus in self._free.items() if u >= share and cus & allowed), default=None)
            if best is None:
                break
            cus = self._free[best] & allowed
            if cus.bit_count() > count:
                cus = lowest(cus, count)
            self._move(cus, best, best - share)
            turns.append(cus)
            count -= cus.bit_count()
        return turns

    def release(self, share: int, turns: list[int]) -> None:
        for cus in turns:
            for units, some in list(self._free.items()):
                if some & cus:
                    self._move(some & cus, units, units + share)

    def _move(self, cus: int, before: int, after: int) -> None:
        free = self._free
        free[before] ^= cus
        if not free[before]:
            del free[before]
        free[after] = free.get(after, 0) | cus
