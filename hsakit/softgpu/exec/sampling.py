"""Sampled execution of kernels: which dispatches need not be executed in full, and which workgroups stand for the rest.

A kernel whose workgroups have nothing to do with each other or with other agents (no atomics, flags, releases, looks at
the clock or at where they run) costs what some of them cost.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from .memory import HOST
from .program import IllegalInstruction, stops

if TYPE_CHECKING:
    from .costing import Reuse
    from .program import Program
    from .tally import Count

# A dispatch is sampled that has more workgroups than this, and moves more bytes or issues more instructions.
WORKGROUPS = 64
BYTES = 16 << 20
INSTRUCTIONS = 1 << 20
ALONG = 16  # representatives of a line of workgroups
MEETS = re.compile(r"atomic|s_(setpc|swappc|call|sleep|getreg|sendmsg|mem|rfe|cbranch_[gijc]_)|_gws_|s_set_gpr_idx")

Place = tuple[int, int, int]


class Sample(NamedTuple):
    """What is known of a kernel, from representatives that ran on a GPU."""

    gpu: int
    executed: Count
    reuse: Reuse

    @property
    def large(self) -> bool:
        """Whether these stand for the rest."""
        return is_large(self.executed)


def is_large(executed: Count, times: float = 1) -> bool:
    """Whether so much, so many times, need not be executed in full.  Where the host's memory is touched it must: what
    the host sees is whole."""
    loads, stores = executed.loads, executed.stores
    if loads.get(HOST) or stores.get(HOST):
        return False
    nbytes = sum(loads.values()) + sum(stores.values())
    return nbytes * times > BYTES or executed.issued * times > INSTRUCTIONS


def independent(program: Program, entry: int) -> bool:
    """Whether no instruction that can be reached from ``entry`` meets other workgroups or agents."""
    seen: set[int] = set()
    ahead = [entry]
    while ahead:
        pc = ahead.pop()
        while pc not in seen:
            seen.add(pc)
            try:
                instruction = program.instruction(pc)
            except IllegalInstruction:  # behind an end that the hardware does not reach either
                break
            name = instruction.name
            if stops(instruction) or MEETS.search(name):
                return False
            if name.startswith("s_endpgm"):
                break
            if name.startswith(("s_branch", "s_cbranch")):
                offset = instruction.operands[0].value & 0xFFFF
                target = instruction.next + 4 * (offset - 0x10000 if offset & 0x8000 else offset)
                if name == "s_branch":
                    pc = target
                    continue
                ahead.append(target)
            pc = instruction.next
    return True


def representatives(counts: Place) -> Iterator[tuple[int, list[Place]]]:
    """Workgroups of a grid, by how many they stand for.  First the first one and its neighbours in x, y and z, which
    show what workgroups share; then those that stand for the ones inside, and for those at each far side, where a grid
    need not fit the problem.  What a line of workgroups does may differ along it (the first ones of a copy have a tile
    more): several stand for its inside."""
    near = [tuple(int(axis == i and count > 1) for i, count in enumerate(counts)) for axis in range(-1, 3)]
    yield 0, list(dict.fromkeys((x, y, z) for x, y, z in near))
    sides = [(False, True) if count > 1 else (False,) for count in counts]
    for far in itertools.product(*sides):
        size = 1
        for count, is_far in zip(counts, far):
            size *= 1 if is_far or count == 1 else count - 1
        x, y, z = (count - 1 if is_far else count // 2 for count, is_far in zip(counts, far))
        inside = not any(far) and counts[1] == counts[2] == 1
        places = dict.fromkeys((2 * i + 1) * (counts[0] - 1) // (2 * ALONG) for i in range(ALONG)) if inside else [x]
        yield size, [(each, y, z) for each in places]
