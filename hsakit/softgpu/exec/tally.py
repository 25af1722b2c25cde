"""What was executed, by class: how often a wave issued each kind of instruction.

Executions are counted by program counter; what an instruction is, is looked up once, when the counts are taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .mfma import SHAPES
from .program import Program

if TYPE_CHECKING:
    from .batch import Batch

TRANSCENDENTAL = re.compile(r"v_(rcp|rsq|sqrt|exp|log|sin|cos)")
WIDE = re.compile(r"_(f64|[iu]64|b64)|v_mul_(lo|hi)_[iu]32|v_mad_[iu]64")
MEMORY = ("global_", "flat_", "buffer_load", "buffer_store", "buffer_atomic", "scratch_")


@lru_cache(maxsize=4096)
def classify(name: str) -> tuple[str, int]:
    """(class, amount) of a mnemonic: for a matrix instruction its type and floating-point operations, else 1."""
    if name in SHAPES:
        shape = SHAPES[name]
        return f"mfma_{shape.type}", 2 * shape.m * shape.m * shape.k * shape.blocks
    if name.startswith("ds_"):
        return "lds", 1
    if name.startswith(MEMORY):
        return "memory", 1
    if name.startswith(("s_load", "s_store", "s_buffer", "s_memtime", "s_memrealtime", "s_atomic")):
        return "smem", 1
    if name.startswith("v_pk_"):
        return "packed", 1
    if name.startswith("v_"):
        if TRANSCENDENTAL.match(name):
            return "transcendental", 1
        return "wide" if WIDE.search(name) else "vector", 1
    if name.startswith(("s_cbranch", "s_branch", "s_setpc", "s_swappc", "s_call")):
        return "branch", 1
    if name.startswith("s_waitcnt"):
        return "wait", 1
    return ("barrier", 1) if name == "s_barrier" else ("scalar", 1)


def totals(program: Program, executed: Mapping[int, int]) -> dict[str, int]:
    """By class, from the number of waves that executed the instruction at each program counter."""
    sums: dict[str, int] = {}
    for pc, waves in executed.items():
        kind, amount = classify(program.entry(pc).instruction.name)
        sums[kind] = sums.get(kind, 0) + waves * amount
    return sums


def _add(sums: dict[Any, float], more: Mapping[Any, float], times: float = 1) -> None:
    for what, amount in more.items():
        sums[what] = sums.get(what, 0) + amount * times


class Count:
    """What workgroups executed in a segment, added up."""

    def __init__(self) -> None:
        self.workgroups: float = 0
        self.issued: float = 0  # instructions, by all waves
        self.sleep = 0  # clocks of s_sleep, of the wave that slept most
        self.instructions: dict[str, float] = {}
        self.loads: dict[int, float] = {}  # bytes, by whose memory they are in
        self.stores: dict[int, float] = {}

    @property
    def meets_memory(self) -> bool:
        return bool(self.instructions.get("memory") or self.instructions.get("smem"))

    def seen_by(self, gpu: int, instead: int) -> Count:
        """The same on ``gpu``, of what was executed ``instead`` by another: its own memory is another, too."""
        count = copy(self)
        count.loads, count.stores = (
            {gpu if place == instead else place: nbytes for place, nbytes in traffic.items()}
            for traffic in (self.loads, self.stores)
        )
        return count

    def include(self, other: Count) -> None:
        """Also that."""
        self.workgroups += other.workgroups
        self.issued += other.issued
        self.sleep = max(self.sleep, other.sleep)
        _add(self.instructions, other.instructions)
        _add(self.loads, other.loads)
        _add(self.stores, other.stores)

    def add(self, program: Program, batch: Batch, times: float = 1) -> None:
        """Take what a batch has counted since the last time; each of its workgroups stands for so many."""
        waves = batch.waves
        self.workgroups += len(batch.numbers) * times
        self.sleep = max(self.sleep, int(waves.slept.max()))
        memory = waves.memory
        for mine, its in ((self.loads, memory.loads), (self.stores, memory.stores)):
            _add(mine, its, times)
            its.clear()
        _add(self.instructions, totals(program, waves.executed), times)
        self.issued += sum(waves.executed.values()) * times
        waves.executed.clear()
        waves.slept[:] = 0
