"""Atomic instructions on LDS (ISA guide, "DS" format), and its append and consume counters."""

from __future__ import annotations

import numpy as np

from .atomics import operands_of
from .decode import M0, Instruction
from .lanes import active, scatter_registers
from .lds import lds_cells
from .program import only, op
from .rmw import OPERATIONS, update
from .state import LANES

U32 = np.uint32

# name of the data type: the suffix that OPERATIONS gives its instructions
WHOLE = {
    **{f"{name}_u": name for name in ("add", "sub", "rsub", "inc", "dec")},
    "min_i": "smin",
    "max_i": "smax",
    "min_u": "umin",
    "max_u": "umax",
    "and_b": "and",
    "or_b": "or",
    "xor_b": "xor",
    "mskor_b": "mskor",
    "wrxchg_b": "swap",
    "cmpst_b": "cmpswap",
}
FLOAT = {"add_f": "add", "min_f": "min", "max_f": "max", "cmpst_f": "cmpswap"}
# ds_<name>: what OPERATIONS calls it
TABLE = {
    **{f"{name}32": operation for name, operation in WHOLE.items()},
    **{f"{name}64": f"{operation}_x2" for name, operation in WHOLE.items()},
    **{f"{name}{bits}": f"{operation}_f{bits}" for name, operation in FLOAT.items() for bits in (32, 64)},
    "pk_add_f16": "pk_add_f16",
    "pk_add_bf16": "pk_add_bf16",
}


def _returning(name: str) -> str:
    kind, _, type_ = name.rpartition("_")
    return f"ds_{kind}_rtn_{type_}"


@op(*(f"ds_{name}" for name in TABLE), *(_returning(name) for name in TABLE))
def ds_atomic(instruction: Instruction):
    only(instruction, "offset")
    name = TABLE[instruction.name.removeprefix("ds_").replace("_rtn", "")]
    operation = OPERATIONS[name]
    operands = list(instruction.operands)
    target = operands.pop(0) if "_rtn" in instruction.name else None
    address, *data = operands
    add = instruction.modifiers.get("offset", 0)
    if name.startswith("cmpswap"):
        data = data[::-1]  # here the value to compare with comes first (ISA guide, DS_CMPST)

    def step(g):
        if not g.lanes.any():
            return
        values = [operands_of(g, o, operation, 1)[0] for o in data]
        cells = lds_cells(g, active(g, g.v(address.index)), operation.nbytes, add)
        found = update(cells, operation, values)
        if target is not None:
            scatter_registers(g, target, found.view(U32).reshape(len(found), operation.nbytes // 4))

    return step


@op("ds_append", "ds_consume")
def ds_append(instruction: Instruction):
    """The wave's active lanes are counted into (or out of) one word; every lane gets the count from before."""
    only(instruction, "offset")
    target, offset = instruction.operands[0], instruction.modifiers.get("offset", 0)
    operation = OPERATIONS["add" if instruction.name == "ds_append" else "sub"]

    def step(g):
        counts = g.lanes.sum(axis=1).astype(U32)
        waves = np.flatnonzero(counts)  # a wave without a lane does nothing
        if not len(waves):
            return
        first = np.zeros((g.n, LANES), bool)
        first[waves, 0] = True
        part = g.among(first)
        cells = lds_cells(part, (g.s(M0) & U32(0xFFFF))[waves], 4, offset)
        found = np.zeros((g.n, 1), U32)
        found[waves, 0] = update(cells, operation, [counts[waves]])
        g.set_v(target.index, found, target.kind)

    return step
