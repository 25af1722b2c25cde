"""Objects of the HSA runtime: agents, memory, signals, queues and copy engines."""

from hsakit.hsa.agent import Agent
from hsakit.hsa.dispatch import Dispatch, Launch
from hsakit.hsa.engine import CopyEngine
from hsakit.hsa.executable import Executable, Kernel
from hsakit.hsa.memory import Buffer, BufferSlice, PointerInfo, Pool
from hsakit.hsa.packet import Batch, Packet, barrier_and, barrier_or
from hsakit.hsa.queue import Queue
from hsakit.hsa.rect import Pitched
from hsakit.hsa.runtime import Runtime
from hsakit.hsa.signal import Signal
from hsakit.hsa.transfer import Copy

__all__ = [
    "Agent",
    "Batch",
    "Buffer",
    "BufferSlice",
    "Copy",
    "CopyEngine",
    "Dispatch",
    "Executable",
    "Kernel",
    "Launch",
    "Packet",
    "Pitched",
    "PointerInfo",
    "Pool",
    "Queue",
    "Runtime",
    "Signal",
    "barrier_and",
    "barrier_or",
]
