"""Collectives over the GPUs of a node: what every byte must be, by engines and by kernels.

from hsakit.collectives import Operation, Buffers, engines

with Buffers(node, Operation("all-gather", 8, 1 << 20)) as buffers:
    with engines.prepare(node, buffers.operation, buffers.send, buffers.recv) as gathered:
        buffers.run(gathered)               # poisons, submits, waits, compares every byte
"""

from hsakit.collectives.buffers import Buffers
from hsakit.collectives.collective import Collective, Part
from hsakit.collectives.operation import OPERATIONS, Operation
from hsakit.collectives.plan import Plan, direct

__all__ = ["OPERATIONS", "Buffers", "Collective", "Operation", "Part", "Plan", "direct"]
