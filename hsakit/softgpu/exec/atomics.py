"""Atomic instructions on global and flat addresses (ISA guide, "Memory atomics").

They are atomic with the host and with the other agents; ``glc`` or ``sc0`` asks for the value from before.
"""

from __future__ import annotations

import numpy as np

from .addresses import Address
from .decode import Instruction
from .lanes import active, gather_registers, scatter_registers
from .lds import lds_cells
from .program import only, op
from .rmw import OPERATIONS, Operation, update
from .scratch import scratch_cells
from .vector_memory import CACHE_HINTS, lanes_of_group, split, windows

NAMES = tuple(name for name in OPERATIONS if not name.startswith(("rsub", "mskor", "min_f32", "max_f32", "cmpswap_f")))


def operands_of(g, registers, operation: Operation, count: int) -> list[np.ndarray]:
    """The data of the active lanes: ``count`` values in consecutive registers."""
    words = operation.nbytes // 4
    values = gather_registers(g, registers, words * count)
    parts = (np.ascontiguousarray(values[:, i * words : (i + 1) * words]) for i in range(count))
    return [part.view(operation.dtype)[:, 0] for part in parts]


@op(*(f"{space}_atomic_{name}" for space in ("global", "flat") for name in NAMES))
def atomic(instruction: Instruction):
    only(instruction, "offset", *CACHE_HINTS)
    space, _, name = instruction.name.partition("_atomic_")
    operation, count = OPERATIONS[name], 2 if name.startswith("cmpswap") else 1
    operands = list(instruction.operands)
    target = operands.pop(0) if {"glc", "sc0"} & set(instruction.modifiers) else None
    where, data, *base = operands
    address = Address(instruction, *split(instruction, [where, *base]))
    access = _flat if space == "flat" else _global

    def step(g):
        if not g.lanes.any():
            return
        at = active(g, address.lanes(g))
        found = access(g, at, operation, operands_of(g, data, operation, count))
        words = np.ascontiguousarray(found).view(np.uint32).reshape(len(found), operation.nbytes // 4)
        if target is not None:
            scatter_registers(g, target, words)
        g.w.look(g, instruction.address, at, words, operation.nbytes)

    return step


def _global_cells(g, at: np.ndarray, nbytes: int):
    return g.w.memory.cells(at, nbytes)


_CELLS = (_global_cells, lds_cells, scratch_cells)  # by kind of memory


def _global(g, at: np.ndarray, operation: Operation, data: list[np.ndarray]) -> np.ndarray:
    return update(_global_cells(g, at, operation.nbytes), operation, data)


def _flat(g, at: np.ndarray, operation: Operation, data: list[np.ndarray]) -> np.ndarray:
    parts = windows(g, at)
    if parts is None:
        return _global(g, at, operation, data)
    found: np.ndarray = np.empty(len(at), operation.dtype)
    for kind, lanes, part, local in parts:
        with lanes_of_group(lanes):
            cells = _CELLS[kind](part, local, operation.nbytes)
        found[lanes] = update(cells, operation, [d[lanes] for d in data])
    return found
